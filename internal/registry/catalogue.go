package registry

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Bounds of what is kept: announcements come from identities that are trusted
// with their own tools only.
const (
	maxInstances    = 10_000
	maxDeclarations = 200_000
	maxAsked        = 1_000 // for each instance
)

// sign is one thing that an instance said.
type sign struct {
	from Instance
	at   time.Time
	kind signKind
	// decl is what declares, or as much of it as could be read where err refuses it.
	decl *frames.Declaration
	err  *frames.Error
	// since is when the instance began to serve the declaration, as it says itself.
	since time.Time
	// tools are those that a sign of life names.
	tools []string
	// skipped is what a sign of life names that the instance takes no tools from.
	skipped []*Tool
}

type signKind uint8

const (
	declares signKind = iota
	lives
	ends
)

// instance is what is known of one process.
type instance struct {
	Instance
	seen time.Time
	// drained is when it said END; zero while it takes calls.
	drained time.Time
	tools   map[string]*declared
	refused map[string]*Tool
	skipped []*Tool
	// asked are tools that it named and that were looked for once.
	asked map[string]bool
}

// declared is a tool as one instance declares it.
type declared struct {
	*frames.Declaration
	in    *instance
	since time.Time
}

// catalogue holds the instances and, derived from them, the tools. It takes
// what was heard and knows nothing of the bus.
type catalogue struct {
	mu        sync.RWMutex
	instances map[Instance]*instance
	tools     map[string]*Tool
	serving   map[string]map[*instance]*declared // by tool name
	count     int                                // of declarations, the refused too
	owners    map[string]string                  // tool name → the identity that declared it first, while the tool is known
	lost      map[string]time.Time               // tool name → when its last instance went

	clock    func() time.Time
	onChange []func(tool string)
	onGone   []func(id Instance, dead bool)
}

func newCatalogue() *catalogue {
	return &catalogue{
		instances: map[Instance]*instance{}, tools: map[string]*Tool{}, serving: map[string]map[*instance]*declared{},
		owners: map[string]string{}, lost: map[string]time.Time{}, clock: time.Now,
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

func (c *catalogue) has(id Instance) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.instances[id] != nil
}

// lacks reports whether an instance did not declare the tool here.
func (c *catalogue) lacks(id Instance, tool string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	in := c.instances[id]
	return in == nil || (in.tools[tool] == nil && in.refused[tool] == nil)
}

// changes collects what one change did, for the listeners.
type changes struct {
	tools map[string]struct{}
	gone  []Instance
}

func (ch *changes) add(tool string) {
	if ch.tools == nil {
		ch.tools = map[string]struct{}{}
	}
	ch.tools[tool] = struct{}{}
}

// change runs f under the lock, derives the tools that f names anew and tells
// the listeners; dead says how instances that f removed were found to be gone.
func (c *catalogue) change(dead bool, f func(ch *changes)) {
	var ch changes
	c.mu.Lock()
	f(&ch)
	for name := range ch.tools {
		c.derive(name)
	}
	c.mu.Unlock()
	for name := range ch.tools {
		for _, listener := range c.onChange {
			listener(name)
		}
	}
	for _, id := range ch.gone {
		for _, listener := range c.onGone {
			listener(id, dead)
		}
	}
}

// hear takes one thing that was said. It reports whether the instance serves
// tools that are not known here.
func (c *catalogue) hear(s *sign) (missing bool) {
	c.change(false, func(ch *changes) { missing = c.take(s, ch) })
	return missing
}

// load takes all that a stream held, in its order and as one change: who is gone
// by then is never seen to be there.
func (c *catalogue) load(said []sign, now time.Time) {
	c.change(false, func(ch *changes) {
		for i := range said {
			c.take(&said[i], ch)
		}
		c.dropSilent(now, ch)
	})
}

func (c *catalogue) take(s *sign, ch *changes) (missing bool) {
	in := c.touch(s.from, s.at)
	switch {
	case in == nil:
	case s.kind == lives:
		in.skipped = s.skipped
		return in.lacks(s.tools)
	case s.kind == ends:
		in.drained = s.at
		in.changed(ch)
	case s.err != nil:
		c.refuse(in, s, ch)
	default:
		c.declare(in, s, ch)
	}
	return false
}

// touch gives the record of an instance, a new one where there is none; nil if
// there are too many.
func (c *catalogue) touch(id Instance, seen time.Time) *instance {
	in := c.instances[id]
	if in == nil {
		if len(c.instances) >= maxInstances {
			return nil
		}
		in = &instance{Instance: id, tools: map[string]*declared{}}
		c.instances[id] = in
	}
	if seen.After(in.seen) {
		in.seen = seen
	}
	return in
}

// lacks reports whether the instance named a tool that it did not declare here;
// of each it says so once.
func (in *instance) lacks(tools []string) bool {
	if len(tools) == 0 && len(in.tools) == 0 {
		tools = []string{""} // it is there, but never said with what
	}
	lacks := false
	for _, name := range tools {
		if in.tools[name] != nil || in.refused[name] != nil || in.asked[name] {
			continue
		}
		if in.asked == nil {
			in.asked = map[string]bool{}
		}
		if len(in.asked) < maxAsked {
			in.asked[name] = true
			lacks = true
		}
	}
	return lacks
}

func (in *instance) changed(ch *changes) {
	for name := range in.tools {
		ch.add(name)
	}
}

func (c *catalogue) declare(in *instance, s *sign, ch *changes) {
	if !in.drained.IsZero() && !s.at.Before(in.drained) {
		c.clear(in, ch) // the id is used by another process now
		in.drained = time.Time{}
	}
	d := &declared{Declaration: s.decl, in: in, since: s.at}
	if !s.since.IsZero() {
		d.since = s.since
	}
	c.unrefuse(in, d.Name)
	if old := in.tools[d.Name]; old != nil && old.Digest == d.Digest {
		if slices.Equal(old.Keys, d.Keys) {
			return
		}
		d.since = old.since
	}
	if in.tools[d.Name] == nil && !c.room() {
		return
	}
	c.put(in, d)
	ch.add(d.Name)
}

func (c *catalogue) room() bool { return c.count < maxDeclarations }

func (c *catalogue) put(in *instance, d *declared) {
	if in.tools[d.Name] == nil {
		c.count++
	}
	in.tools[d.Name] = d
	if c.serving[d.Name] == nil {
		c.serving[d.Name] = map[*instance]*declared{}
	}
	c.serving[d.Name][in] = d
}

// withdraw takes a tool off an instance.
func (c *catalogue) withdraw(in *instance, name string, ch *changes) {
	if in.tools[name] == nil {
		return
	}
	c.count--
	delete(in.tools, name)
	delete(c.serving[name], in)
	if len(c.serving[name]) == 0 {
		delete(c.serving, name)
	}
	ch.add(name)
}

// clear takes all tools off an instance.
func (c *catalogue) clear(in *instance, ch *changes) {
	for name := range in.tools {
		c.withdraw(in, name, ch)
	}
	c.count -= len(in.refused)
	in.refused, in.asked = nil, nil
}

// refuse keeps a declaration that cannot be called, to show it. The tool that
// the instance declared before under the name is no more.
func (c *catalogue) refuse(in *instance, s *sign, ch *changes) {
	name := s.decl.Name
	c.withdraw(in, name, ch)
	if in.refused[name] == nil && !c.room() {
		return
	}
	if in.refused == nil {
		in.refused = map[string]*Tool{}
	}
	if in.refused[name] == nil {
		c.count++
	}
	in.refused[name] = &Tool{Declaration: s.decl, Refused: s.err}
}

func (c *catalogue) unrefuse(in *instance, name string) {
	if in.refused[name] != nil {
		c.count--
		delete(in.refused, name)
	}
}

// remove takes an instance out: dead if nobody listens there any more.
func (c *catalogue) remove(id Instance, dead bool) {
	c.change(dead, func(ch *changes) {
		if in := c.instances[id]; in != nil {
			c.drop(in, ch)
		}
	})
}

// drop takes an instance out. Its tools are known from now on, if only by name.
func (c *catalogue) drop(in *instance, ch *changes) {
	for name, d := range in.tools {
		if c.tools[name] == nil {
			c.tools[name] = &Tool{Declaration: d.Declaration}
		}
	}
	c.clear(in, ch)
	delete(c.instances, in.Instance)
	ch.gone = append(ch.gone, in.Instance)
}

// expire removes the instances that were silent for too long, and forgets the
// tools that were lost long ago.
func (c *catalogue) expire(now time.Time) {
	c.change(false, func(ch *changes) {
		c.dropSilent(now, ch)
		for name, at := range c.lost {
			if now.Sub(at) > forgetAfter {
				delete(c.lost, name)
				delete(c.tools, name)
				delete(c.owners, name)
				ch.add(name)
			}
		}
	})
}

func (c *catalogue) dropSilent(now time.Time, ch *changes) {
	for _, in := range c.instances {
		if now.Sub(in.seen) > in.patience() {
			c.drop(in, ch)
		}
	}
}

// patience is how long an instance may be silent: one that announces nothing
// is heard of by DESCRIBE only.
func (in *instance) patience() time.Duration {
	if in.Announced() {
		return AliveLimit
	}
	return 3 * describeEach
}

// renew counts a time in which nothing could be heard as no silence.
func (c *catalogue) renew(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range c.instances {
		in.seen = now
	}
}
