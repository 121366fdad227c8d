package registry

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// instance is what is known of one process.
type instance struct {
	Instance
	seen     time.Time
	draining bool
	// announced: it sends alives, so silence means that it is gone.
	announced bool
	tools     map[string]*frames.Declaration
}

// catalogue holds the instances and, derived from them, the tools. It takes
// what was heard and knows nothing of the bus.
type catalogue struct {
	mu        sync.RWMutex
	instances map[Instance]*instance
	tools     map[string]*Tool
	owners    map[string]string    // tool name → the identity that declared it first
	lost      map[string]time.Time // tool name → when its last instance went
	onChange  []func(tool string)
	onGone    []func(Instance)
}

func newCatalogue() *catalogue {
	return &catalogue{
		instances: map[Instance]*instance{}, tools: map[string]*Tool{}, owners: map[string]string{}, lost: map[string]time.Time{},
	}
}

func (c *catalogue) get(name string) *Tool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.tools[name]
}

func (c *catalogue) all() []*Tool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	names := slices.Sorted(maps.Keys(c.tools))
	out := make([]*Tool, len(names))
	for i, n := range names {
		out[i] = c.tools[n]
	}
	return out
}

// declare takes a tool's declaration from an instance. seen is when it was said.
func (c *catalogue) declare(d *frames.Declaration, seen time.Time, announced bool) {
	c.change(func() []string {
		in := c.touch(Instance{d.Identity, d.Instance}, seen)
		in.announced = in.announced || announced
		if old := in.tools[d.Name]; old != nil && old.Digest == d.Digest && slices.Equal(old.Keys, d.Keys) {
			return nil
		}
		in.tools[d.Name] = d
		if c.owners[d.Name] == "" {
			c.owners[d.Name] = d.Identity
		}
		return []string{d.Name}
	})
}

// alive takes an instance's sign of life; one of an unknown instance is dropped,
// its declarations will come.
func (c *catalogue) alive(id Instance, seen time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in := c.instances[id]; in != nil && seen.After(in.seen) {
		in.seen, in.announced = seen, true
	}
}

func (c *catalogue) touch(id Instance, seen time.Time) *instance {
	in := c.instances[id]
	if in == nil {
		in = &instance{Instance: id, tools: map[string]*frames.Declaration{}}
		c.instances[id] = in
	}
	if seen.After(in.seen) {
		in.seen = seen
	}
	return in
}

// drain takes an instance's END: it gets no new calls, those it runs go on.
func (c *catalogue) drain(id Instance) {
	c.change(func() []string {
		in := c.instances[id]
		if in == nil || in.draining {
			return nil
		}
		in.draining = true
		return slices.Collect(maps.Keys(in.tools))
	})
}

// remove takes an instance out: nobody listens there any more.
func (c *catalogue) remove(id Instance) {
	var known bool
	c.change(func() []string {
		in := c.instances[id]
		if known = in != nil; !known {
			return nil
		}
		delete(c.instances, id)
		return slices.Collect(maps.Keys(in.tools))
	})
	if !known {
		return
	}
	for _, f := range c.onGone {
		f(id)
	}
}

// expire removes the instances that were silent for too long.
func (c *catalogue) expire() {
	now := time.Now()
	var old []Instance
	c.mu.RLock()
	for id, in := range c.instances {
		if now.Sub(in.seen) > in.patience() {
			old = append(old, id)
		}
	}
	c.mu.RUnlock()
	for _, id := range old {
		c.remove(id)
	}
	c.forget()
}

// patience is how long an instance may be silent: one that announces nothing
// is heard of by DESCRIBE only.
func (in *instance) patience() time.Duration {
	if in.announced {
		return AliveLimit
	}
	return 3 * describeEach
}

// change runs f under the lock, derives the tools that f names anew and tells
// the listeners of them.
func (c *catalogue) change(f func() []string) {
	c.mu.Lock()
	names := f()
	for _, n := range names {
		c.derive(n)
	}
	c.mu.Unlock()
	for _, n := range names {
		for _, listener := range c.onChange {
			listener(n)
		}
	}
}

// derive makes a tool's snapshot from the instances that declare it.
func (c *catalogue) derive(name string) {
	owner := c.owners[name]
	var newest *frames.Declaration
	var at time.Time
	for id, in := range c.instances {
		d := in.tools[name]
		if d == nil || id.Identity != owner {
			continue
		}
		if newest == nil || in.seen.After(at) {
			newest, at = d, in.seen
		}
	}
	if newest == nil {
		c.disown(name)
		return
	}
	delete(c.lost, name)
	t := &Tool{Declaration: newest}
	for id, in := range c.instances {
		d := in.tools[name]
		if d == nil || in.draining || id.Identity != owner || d.Digest != newest.Digest {
			continue
		}
		t.Instances = append(t.Instances, Served{Instance: id, Slots: d.Concurrency, Keys: d.Keys})
	}
	slices.SortFunc(t.Instances, func(a, b Served) int { return compare(a.Instance, b.Instance) })
	c.tools[name] = t
}

// disown gives up a name that its identity no longer serves. Another identity
// that declares it takes it over; else the tool stays known for a while, so that a
// call learns that it is down and not that it never was.
func (c *catalogue) disown(name string) {
	delete(c.owners, name)
	for _, id := range slices.SortedFunc(maps.Keys(c.instances), compare) {
		if c.instances[id].tools[name] != nil {
			c.owners[name] = id.Identity
			c.derive(name)
			return
		}
	}
	if t := c.tools[name]; t != nil {
		c.tools[name] = &Tool{Declaration: t.Declaration}
		c.lost[name] = time.Now()
	}
}

// forget drops the tools that were lost long ago.
func (c *catalogue) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, at := range c.lost {
		if time.Since(at) > forgetAfter {
			delete(c.lost, name)
			delete(c.tools, name)
		}
	}
}

// conflicts lists the declarations that other identities than the owner hold.
func (c *catalogue) conflicts() []*Tool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*Tool
	for _, id := range slices.SortedFunc(maps.Keys(c.instances), compare) {
		for name, d := range c.instances[id].tools {
			if owner := c.owners[name]; owner != id.Identity {
				out = append(out, &Tool{Declaration: d, Refused: frames.NewError(frames.CodeConflict,
					"tool %s is declared by %s already", name, owner)})
			}
		}
	}
	return out
}

func compare(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.ID, b.ID))
}
