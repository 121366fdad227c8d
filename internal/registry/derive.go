package registry

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weavebus/weavebus/pkg/frames"
)

// derive makes a tool's snapshot from the instances that declare it.
func (c *catalogue) derive(name string) {
	c.own(name)
	newest := c.newest(name)
	if newest == nil {
		c.lose(name)
		return
	}
	delete(c.lost, name)
	t := &Tool{Declaration: newest.Declaration}
	for in, d := range c.serving[name] {
		if in.drained.IsZero() && in.Identity == newest.in.Identity && d.Digest == newest.Digest {
			t.Instances = append(t.Instances, Served{Instance: in.Instance, Slots: d.Concurrency, Keys: d.Keys})
		}
	}
	slices.SortFunc(t.Instances, func(a, b Served) int { return compare(a.Instance, b.Instance) })
	c.tools[name] = t
}

// own gives a name that nobody has to the identity that declared it first.
func (c *catalogue) own(name string) {
	if c.owners[name] != "" {
		return
	}
	var first *declared
	for _, d := range c.serving[name] {
		if first == nil || cmp.Or(d.since.Compare(first.since), compare(d.in.Instance, first.in.Instance)) < 0 {
			first = d
		}
	}
	if first != nil {
		c.owners[name] = first.in.Identity
	}
}

// newest gives the declaration of the owner that counts: the one that came last,
// of those on instances that take calls if there are any.
func (c *catalogue) newest(name string) *declared {
	var newest *declared
	for in, d := range c.serving[name] {
		if in.Identity == c.owners[name] && (newest == nil || d.counts(newest)) {
			newest = d
		}
	}
	return newest
}

// counts reports whether d goes before other.
func (d *declared) counts(other *declared) bool {
	if live, alive := d.in.drained.IsZero(), other.in.drained.IsZero(); live != alive {
		return live
	}
	return cmp.Or(d.since.Compare(other.since), compare(other.in.Instance, d.in.Instance)) > 0
}

// lose keeps a tool that its identity no longer serves known for a while, so that
// a call learns that it is down and not that it never was, and so that nobody else
// takes the name when a service starts anew.
func (c *catalogue) lose(name string) {
	if t := c.tools[name]; t != nil && c.lost[name].IsZero() {
		c.tools[name] = &Tool{Declaration: t.Declaration}
		c.lost[name] = c.clock()
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
		for _, name := range slices.Sorted(maps.Keys(in.refused)) {
			out = append(out, in.refused[name])
		}
		out = append(out, in.skipped...)
		for _, name := range slices.Sorted(maps.Keys(in.tools)) {
			if owner := c.owners[name]; owner != in.Identity {
				out = append(out, &Tool{Declaration: in.tools[name].Declaration, Refused: conflict(name, owner)})
			}
		}
	}
	return out
}

func conflict(name, owner string) *frames.Error {
	if owner == Plain {
		owner = "a service without an instance"
	}
	return frames.NewError(frames.CodeConflict, "tool %s is declared by %s already", name, owner)
}

func compare(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Tool, b.Tool))
}
