package dispatch

import (
	"slices"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// repairsKey is where a result's metadata lists what was done to the arguments.
const repairsKey = "repairs"

// readArguments makes the arguments of a call those that will run: repaired where
// they have one meaning all the same, fitting the schema, with its defaults.
func (d *Dispatcher) readArguments(t *registry.Tool, c *Call) error {
	s, err := d.argumentsOf(t)
	if err != nil {
		return err
	}
	if err := s.Validate(c.Arguments); err != nil {
		if err := repair(s, c); err != nil {
			return err
		}
	}
	c.Arguments = s.WithDefaults(c.Arguments)
	return nil
}

// argumentsOf gives the schema of a tool's arguments. A tool whose schemas do not
// compile is not called at all.
func (d *Dispatcher) argumentsOf(t *registry.Tool) (*schema.Schema, error) {
	s, err := d.reg.Arguments(t.Declaration)
	if err == nil {
		_, err = d.reg.Output(t.Declaration)
	}
	if err != nil {
		return nil, refused(t.Name, frames.AsError(err))
	}
	return s, nil
}

// repair mends arguments that do not fit; the error says why they cannot be.
func repair(s *schema.Schema, c *Call) error {
	text, repairs, err := argstream.Repair(c.Arguments)
	if err != nil {
		return err
	}
	args, more, err := s.Mend(text, c.NullIsAbsent)
	if err != nil {
		return err
	}
	c.Arguments, c.Repairs = args, slices.Concat(c.Repairs, repairs, more)
	return nil
}
