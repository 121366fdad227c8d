package registry

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// derive makes a tool's snapshot from the instances that declare it and from what
// operators decided.
func (c *catalogue) derive(name string) {
	c.own(name)
	defer c.contend(name)
	newest := c.newest(name)
	if newest == nil {
		c.lose(name)
		return
	}
	delete(c.lost, name)
	t := c.snapshot(newest.Declaration, newest.check)
	for in, d := range c.serving[name] {
		if in.Identity == newest.in.Identity && d.Digest == newest.Digest && d.ready() && d.vouched() == newest.vouched() {
			slots := t.Setting.Limits.slots(d.Concurrency)
			t.Instances = append(t.Instances, Served{Instance: in.Instance, Slots: slots, Held: slots != d.Concurrency, Keys: d.Keys})
		}
	}
	slices.SortFunc(t.Instances, func(a, b Served) int { return compare(a.Instance, b.Instance) })
	if t.Serving = t.Instances; t.Setting.Off() {
		t.Instances = nil
	}
	c.tools[name] = t
}

// snapshot gives a tool that nobody serves yet.
func (c *catalogue) snapshot(d *frames.Declaration, check *verdict) *Tool {
	set := c.settings[d.Name].Setting
	return &Tool{Declaration: set.Limits.apply(d), Setting: set, declared: d, check: check}
}

// own gives a name that nobody has to the identity that was heard to declare it
// first, unless it is decided who has it. What the instances say of their own age
// does not count: anybody can say it.
func (c *catalogue) own(name string) {
	if route := c.settings[name].Route; route != "" {
		c.owners[name] = route
	}
	if c.owners[name] != "" {
		return
	}
	var first *declared
	for _, d := range c.serving[name] {
		if first == nil || cmp.Or(d.heard.Compare(first.heard), compare(d.in.Instance, first.in.Instance)) < 0 {
			first = d
		}
	}
	if first != nil {
		c.owners[name] = first.in.Identity
	}
}

// newest gives the declaration of the owner that counts: of those on instances
// that take calls and are alive, if there are any, the one that came last.
func (c *catalogue) newest(name string) *declared {
	var newest *declared
	for in, d := range c.serving[name] {
		if in.Identity == c.owners[name] && (newest == nil || d.counts(newest)) {
			newest = d
		}
	}
	return newest
}

// ready reports whether the instance takes calls, as far as it said.
func (d *declared) ready() bool { return d.in.drained.IsZero() }

// vouched reports whether the instance was heard to be alive with the tool: what
// only declares replaces nothing that is known to be there.
func (d *declared) vouched() bool { return d.in.vouches(d.Name) }

// counts reports whether d goes before other.
func (d *declared) counts(other *declared) bool {
	if ready := d.ready(); ready != other.ready() {
		return ready
	}
	if vouched := d.vouched(); vouched != other.vouched() {
		return vouched
	}
	return cmp.Or(d.since.Compare(other.since), compare(other.in.Instance, d.in.Instance)) > 0
}

// lose keeps a tool that its identity no longer serves known for a while, so that
// a call learns that it is down and not that it never was, and so that nobody else
// takes the name when a service starts anew.
func (c *catalogue) lose(name string) {
	t := c.tools[name]
	if c.lost[name].IsZero() && (t != nil || c.owners[name] != "") {
		c.lost[name] = c.clock()
	}
	switch set := c.settings[name].Setting; {
	case t != nil && t.declared != nil:
		c.tools[name] = c.snapshot(t.declared, t.check)
	case set.Off(): // nobody declared it since the start, but what was decided is shown
		c.tools[name] = &Tool{Declaration: shown(&frames.Declaration{}, name), Setting: set}
	default:
		delete(c.tools, name)
	}
}

// forget forgets a tool that was lost.
func (c *catalogue) forget(name string, ch *changes) {
	delete(c.lost, name)
	delete(c.tools, name)
	delete(c.owners, name)
	c.unpin(name)
	ch.add(name)
}

// trim forgets the tools that were lost first where there are too many.
func (c *catalogue) trim(ch *changes) {
	over := len(c.lost) - maxLost
	if over <= 0 {
		return
	}
	names := slices.SortedFunc(maps.Keys(c.lost), func(a, b string) int { return c.lost[a].Compare(c.lost[b]) })
	for _, name := range names[:over] {
		c.forget(name, ch)
		c.derive(name)
	}
}

// refusals lists what cannot be called: declarations that break the protocol,
// what instances cannot take tools from, and declarations of names that belong to
// another identity. Sorted.
func (c *catalogue) refusals() []*Tool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*Tool
	for _, id := range slices.SortedFunc(maps.Keys(c.instances), compare) {
		in := c.instances[id]
		names := slices.AppendSeq(slices.Collect(maps.Keys(in.refused)), maps.Keys(in.tools))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			out = c.refusedBy(in, name, out)
		}
		out = append(out, in.skipped...)
	}
	return out
}

// refusedBy appends what is refused of an instance under a name.
func (c *catalogue) refusedBy(in *instance, name string, out []*Tool) []*Tool {
	if t := in.refused[name]; t != nil {
		out = append(out, t)
	}
	if d, owner := in.tools[name], c.owners[name]; d != nil && owner != in.Identity {
		out = append(out, &Tool{Declaration: d.Declaration, Refused: conflict(name, owner)})
	}
	return out
}

// standing gives all that is known of a name: the tool or nil, and what is refused
// under the name, sorted.
func (c *catalogue) standing(name string) (t *Tool, refused []*Tool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, in := range c.instances {
		if in.refused[name] != nil || in.tools[name] != nil {
			refused = c.refusedBy(in, name, refused)
		}
	}
	slices.SortFunc(refused, func(a, b *Tool) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Instance, b.Instance))
	})
	return c.tools[name], refused
}

// identities gives who has a name, and who declares it on an instance that takes
// calls and is alive, sorted.
func (c *catalogue) identities(name string) (has string, declare []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for in, d := range c.serving[name] {
		if d.ready() && d.vouched() {
			declare = append(declare, in.Identity)
		}
	}
	slices.Sort(declare)
	return c.owners[name], slices.Compact(declare)
}

// names gives every name that is known, whatever may be said of it. Unsorted.
func (c *catalogue) names() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := map[string]struct{}{}
	for name := range c.tools {
		all[name] = struct{}{}
	}
	for name, k := range c.settings {
		if k.Setting != (Setting{}) {
			all[name] = struct{}{}
		}
	}
	for _, in := range c.instances {
		for name := range in.refused {
			all[name] = struct{}{}
		}
		for name := range in.tools {
			all[name] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(all))
}

func conflict(name, owner string) *frames.Error {
	if owner == Plain {
		owner = "a service without an instance"
	}
	return frames.NewError(frames.CodeConflict, "tool %s is declared by %s already", name, owner).WithReason("conflict")
}

func compare(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Tool, b.Tool))
}

// earlier gives the earlier of two moments.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
