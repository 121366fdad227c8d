package registry

import (
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Arguments gives the schema of a tool's arguments, compiled.
func (r *Registry) Arguments(d *frames.Declaration) (*schema.Schema, error) {
	s, err := r.cfg.Schemas.Compile(d.Schema)
	if err == nil {
		err = s.ForArguments()
	}
	if err != nil {
		return nil, err
	}
	return s.Named(d.Name), nil
}

// Output gives the schema of a tool's results, compiled; nil where it declares none.
func (r *Registry) Output(d *frames.Declaration) (*schema.Schema, error) {
	if d.OutputSchema == nil {
		return nil, nil //nolint:nilnil // none is an answer
	}
	s, err := r.cfg.Schemas.Compile(d.OutputSchema)
	if err != nil {
		return nil, err
	}
	return s.Named(d.Name), nil
}

// Check says why a tool cannot be called: its declaration is refused as a
// conflict, or a schema does not compile; nil where it can. Schemas are compiled
// here, not when they are announced.
func (r *Registry) Check(t *Tool) *frames.Error {
	if t.Refused != nil {
		return t.Refused
	}
	_, err := r.Arguments(t.Declaration)
	if err == nil {
		_, err = r.Output(t.Declaration)
	}
	return frames.AsError(err)
}
