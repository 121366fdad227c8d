package dispatch

import (
	"encoding/json"
	"slices"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// repairsKey is where a result's metadata lists what was done to the arguments.
const repairsKey = "repairs"

// readArguments makes the arguments of a call those that will run: within the
// limits, repaired where they have one meaning all the same, fitting the schema of
// the call's declaration, with its defaults.
func (d *Dispatcher) readArguments(p *Prepared) error {
	c := &p.Call
	if err := d.small(c.Tool, c.Arguments); err != nil {
		return err
	}
	s, err := d.argumentsOf(p.Declaration)
	if err != nil {
		return err
	}
	if c.Translate != nil {
		if err := repair(c); err != nil {
			return err
		}
		c.Arguments = c.Translate(p.Declaration, c.Arguments)
	}
	if err := s.Validate(c.Arguments); err != nil {
		if err := mend(s, c); err != nil {
			return err
		}
	}
	c.Arguments = s.WithDefaults(c.Arguments)
	return nil
}

// fit holds arguments that a hook gave to the limits and to the schema, and gives
// them with its defaults. Nothing is repaired: a program wrote them.
func (d *Dispatcher) fit(decl *frames.Declaration, args json.RawMessage) (json.RawMessage, error) {
	if err := d.small(decl.Name, args); err != nil {
		return nil, err
	}
	s, err := d.argumentsOf(decl)
	if err != nil {
		return nil, err
	}
	return s.Fit(args)
}

// argumentsOf gives the schema of a tool's arguments. A tool whose schemas do not
// compile is not called at all.
func (d *Dispatcher) argumentsOf(decl *frames.Declaration) (*schema.Schema, error) {
	s, err := d.reg.Arguments(decl)
	if err == nil {
		_, err = d.reg.Output(decl)
	}
	if err != nil {
		return nil, registry.Unusable(decl.Name, "", frames.AsError(err))
	}
	return s, nil
}

// repair makes arguments one JSON object; the error says why they cannot be.
func repair(c *Call) error {
	args, repairs, err := argstream.Repair(c.Arguments)
	if err == nil {
		c.Arguments, c.Repairs = args, slices.Concat(c.Repairs, repairs)
	}
	return err
}

// mend makes arguments fit that do not.
func mend(s *schema.Schema, c *Call) error {
	if err := repair(c); err != nil {
		return err
	}
	args, repairs, err := s.Mend(c.Arguments)
	if err == nil {
		c.Arguments, c.Repairs = args, slices.Concat(c.Repairs, repairs)
	}
	return err
}
