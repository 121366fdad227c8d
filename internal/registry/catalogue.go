package registry

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Bounds of what is kept: announcements come from identities that are trusted
// with their own tools only.
const (
	maxInstances    = 10_000
	maxDeclarations = 200_000
	maxAsked        = 1_000     // for each instance
	maxLost         = 1_000     // tools that nobody serves any more
	maxBytes        = 512 << 20 // of declarations, as if no two were the same
	nameBytes       = 128       // a name that an instance says it is alive with
	skippedBytes    = 2 << 10   // what it says that it skips
)

// sign is one thing that an instance said.
type sign struct {
	from Instance
	at   time.Time
	kind signKind
	// decl is what declares, or as much of it as could be read where err refuses it.
	decl *frames.Declaration
	err  *frames.Error
	// since is when the instance began to serve the declaration, as it says itself:
	// it orders the declarations of one identity, and nothing else.
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
	// alive: it gave a sign of life; named are the tools that the last one named,
	// where none are named all are meant.
	alive bool
	named map[string]bool
	// bytes is what the names take.
	bytes   int
	tools   map[string]*declared
	refused map[string]*Tool
	skipped []*Tool
	// asked are tools that it named and that were looked for once.
	asked map[string]bool
}

// declared is a tool as one instance declares it.
type declared struct {
	*frames.Declaration
	in *instance
	// heard is when the instance was first heard to declare the tool, since when it
	// says that it began to serve this declaration.
	heard, since time.Time
	check        *verdict
}

// cost is about how many bytes a declaration takes.
func (d *declared) cost() int {
	n := 1<<10 + len(d.Schema) + len(d.OutputSchema) + len(d.Description) + len(d.Title)
	for _, extra := range []frames.Fields{d.Extra, d.ExtraAnnotations} {
		for _, f := range extra {
			n += len(f.Value)
		}
	}
	for _, key := range d.Keys {
		n += len(key)
	}
	return n
}

// catalogue holds the instances and, derived from them, the tools. It takes
// what was heard and knows nothing of the bus.
type catalogue struct {
	mu        sync.RWMutex
	instances map[Instance]*instance
	tools     map[string]*Tool
	serving   map[string]map[*instance]*declared // by tool name
	count     int                                // of declarations, the refused too
	bytes     int                                // of the declarations that are not refused
	full      bool                               // something had no room since this was last looked at
	settings  map[string]kept                    // by tool name
	owners    map[string]string                  // tool name → the identity that declared it first, while the tool is known
	lost      map[string]time.Time               // tool name → when its last instance went

	contests  map[string]contest
	contested chan struct{} // there are contests

	clock    func() time.Time
	onChange []func(tool string)
	onGone   []func(id Instance, dead bool)
}

func newCatalogue() *catalogue {
	return &catalogue{
		instances: map[Instance]*instance{}, tools: map[string]*Tool{}, serving: map[string]map[*instance]*declared{},
		owners: map[string]string{}, lost: map[string]time.Time{}, settings: map[string]kept{},
		contests: map[string]contest{}, contested: make(chan struct{}, 1), clock: time.Now,
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
	c.trim(&ch)
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

// wasFull reports whether something had no room since it was last asked.
func (c *catalogue) wasFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := c.full
	c.full = false
	return full
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
		c.skip(in, s.skipped)
		c.lives(in, s.tools, ch)
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
			c.full = true
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
			in.asked[strings.Clone(name)] = true
			lacks = true
		}
	}
	return lacks
}

// lives takes a sign of life.
func (c *catalogue) lives(in *instance, tools []string, ch *changes) {
	if !in.drained.IsZero() || in.alive && in.namedAre(tools) {
		return
	}
	before := *in
	c.bytes -= in.bytes
	in.alive, in.named, in.bytes = true, nil, 0
	if bytes := nameBytes * len(tools); c.room(bytes) {
		in.named, in.bytes = make(map[string]bool, len(tools)), bytes
		c.bytes += bytes
	} else {
		c.full, tools = true, nil
	}
	for _, name := range tools {
		in.named[strings.Clone(name)] = true // not with the message that it is part of
	}
	for name := range in.tools {
		if before.vouches(name) != in.vouches(name) {
			ch.add(name)
		}
	}
}

// skip keeps what an instance says that it takes no tools from.
func (c *catalogue) skip(in *instance, skipped []*Tool) {
	c.bytes -= skippedBytes * len(in.skipped)
	if in.skipped = skipped; len(skipped) > 0 && !c.room(skippedBytes*len(skipped)) {
		c.full, in.skipped = true, nil
	}
	c.bytes += skippedBytes * len(in.skipped)
}

func (in *instance) namedAre(tools []string) bool {
	return len(tools) == len(in.named) && !slices.ContainsFunc(tools, func(name string) bool { return !in.named[name] })
}

// vouches reports whether the instance is known to be alive with the tool. One that
// announces nothing is known by its answers.
func (in *instance) vouches(tool string) bool {
	return !in.Announced() || in.alive && (len(in.named) == 0 || in.named[tool])
}

func (in *instance) changed(ch *changes) {
	for name := range in.tools {
		ch.add(name)
	}
}

func (c *catalogue) declare(in *instance, s *sign, ch *changes) {
	if !in.drained.IsZero() && !s.at.Before(in.drained) {
		c.clear(in, ch) // the id is used by another process now
		in.drained, in.alive = time.Time{}, false
	}
	d := &declared{Declaration: s.decl, in: in, heard: s.at, since: s.at, check: &verdict{}}
	if !s.since.IsZero() {
		d.since = earlier(s.since, s.at)
	}
	c.unrefuse(in, d.Name)
	if old := in.tools[d.Name]; old != nil {
		d.heard = earlier(d.heard, old.heard)
		if old.Digest == d.Digest {
			if slices.Equal(old.Keys, d.Keys) {
				return
			}
			d.since = old.since
		}
	}
	if !c.room(d.cost()) {
		c.full = true
		return
	}
	c.share(d)
	c.put(in, d)
	ch.add(d.Name)
}

func (c *catalogue) room(bytes int) bool {
	return c.count < maxDeclarations && c.bytes+bytes <= maxBytes
}

// share lets a declaration take its texts from another instance's that is the same.
func (c *catalogue) share(d *declared) {
	for _, twin := range c.serving[d.Name] {
		if twin.Digest != d.Digest {
			continue
		}
		own := d.Declaration
		same := *twin.Declaration
		same.Service, same.Identity, same.Instance, same.Keys = own.Service, own.Identity, own.Instance, own.Keys
		d.Declaration, d.check = &same, twin.check
		return
	}
}

func (c *catalogue) put(in *instance, d *declared) {
	if old := in.tools[d.Name]; old != nil {
		c.bytes -= old.cost()
	} else {
		c.count++
	}
	c.bytes += d.cost()
	in.tools[d.Name] = d
	if c.serving[d.Name] == nil {
		c.serving[d.Name] = map[*instance]*declared{}
	}
	c.serving[d.Name][in] = d
}

// withdraw takes a tool off an instance.
func (c *catalogue) withdraw(in *instance, name string, ch *changes) {
	d := in.tools[name]
	if d == nil {
		return
	}
	c.count--
	c.bytes -= d.cost()
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
	c.bytes -= in.bytes
	in.refused, in.asked, in.named, in.bytes = nil, nil, nil, 0
	c.skip(in, nil)
}

// refuse keeps a declaration that cannot be called, to show it. The tool that
// the instance declared before under the name is no more.
func (c *catalogue) refuse(in *instance, s *sign, ch *changes) {
	name := s.decl.Name
	c.withdraw(in, name, ch)
	if in.refused[name] == nil && !c.room(0) {
		c.full = true
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
			c.tools[name] = c.snapshot(d.Declaration, d.check)
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
				c.forget(name, ch)
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
