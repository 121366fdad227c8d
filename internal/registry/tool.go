package registry

import (
	"slices"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// AliveLimit is how old an instance's last sign of life may be; instances give
// one each 5 s.
const AliveLimit = 15 * time.Second

// forgetAfter is how long a tool that nobody serves any more stays known.
const forgetAfter = 10 * time.Minute

// Plain is the identity of all services that announce no instance. What such a
// service says of its own identity is not proved, so that it counts for nothing;
// no connection can have this identity.
const Plain = "tool"

// Instance is one process that serves tools. Its fields do not change.
type Instance struct {
	Identity string
	// ID is empty for services that announce no instance: they are reached
	// through the tool's queue group, and together are one instance of Plain.
	ID string
	// Tool is the tool of such services; empty where there is an ID.
	Tool string
}

// Announced reports whether the instance announces itself, so that it can be
// called directly and its silence means that it is gone.
func (i Instance) Announced() bool { return i.ID != "" }

// Tool is a tool as it stands now: a snapshot that is not changed.
type Tool struct {
	// Declaration is the newest, with an operator's limits where those are tighter.
	*frames.Declaration
	// Instances are those that serve this declaration and take calls; none where an
	// operator switched the tool off.
	Instances []Served
	// Serving are the same, also where the tool is switched off.
	Serving []Served
	// Refused says why the declaration cannot be called; nil for most.
	Refused *frames.Error
	// Setting is what operators decided about the name.
	Setting Setting

	declared *frames.Declaration // as it was announced; nil where it was not
	check    *verdict            // of its schemas
}

// State says in one word how a tool stands.
type State string

// States of a tool.
const (
	Ready    State = "ready"    // it can be called
	Down     State = "down"     // nobody serves it now
	Disabled State = "disabled" // an operator switched it off
	Retired  State = "retired"  // an operator took the name away
	Refused  State = "refused"  // its declaration is at fault
	Conflict State = "conflict" // another identity has the name
)

// States lists them all.
func States() []State { return []State{Ready, Down, Disabled, Retired, Refused, Conflict} }

// Served is a tool on one instance.
type Served struct {
	Instance Instance
	// Slots is how many calls it runs at once; 0 is no limit.
	Slots int
	// Held: an operator allows fewer than the instance would run.
	Held bool
	// Keys are the names that the instance owns; empty means it serves any.
	Keys []string
}

// Owns reports whether the instance serves calls for the key.
func (s *Served) Owns(key string) bool { return len(s.Keys) == 0 || slices.Contains(s.Keys, key) }

// Owners gives the names that live instances own, sorted; nil where the tool
// needs none.
func (t *Tool) Owners() []string { return slices.DeleteFunc(t.Keys(), frames.IsPathKey) }

// Keys gives all keys that live instances own, sorted: names and roots. Of a
// declaration that is refused they are those that it names.
func (t *Tool) Keys() []string {
	var keys []string
	for _, s := range t.Serving {
		keys = append(keys, s.Keys...)
	}
	if t.Refused != nil {
		keys = slices.Clone(t.Declaration.Keys)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Callable reports whether a call could be dispatched now.
func (t *Tool) Callable() bool { return t.Refused == nil && len(t.Instances) > 0 }
