package registry

import (
	"slices"
	"sync"

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

// verdict is whether a declaration's schemas compile, found out once.
type verdict struct {
	once sync.Once
	err  *frames.Error
}

// Check says why a tool cannot be called: its declaration is refused as a
// conflict, or a schema does not compile; nil where it can. Schemas are tried out
// here, not when they are announced, and once; what they compile to is made, and
// kept, where they are used.
func (r *Registry) Check(t *Tool) *frames.Error {
	if t.Refused != nil || t.check == nil {
		return t.Refused
	}
	t.check.once.Do(func() { t.check.err = frames.AsError(try(t.declared)) })
	return t.check.err
}

func try(d *frames.Declaration) error {
	s, err := schema.Compile(d.Schema)
	if err == nil {
		err = s.ForArguments()
	}
	if err == nil && d.OutputSchema != nil {
		_, err = schema.Compile(d.OutputSchema)
	}
	return err
}

// State says how a tool stands.
func (r *Registry) State(t *Tool) State {
	switch {
	case t.Refused != nil && t.Refused.Code == frames.CodeConflict:
		return Conflict
	case t.Setting.Retired:
		return Retired
	case t.Setting.Disabled:
		return Disabled
	case r.Check(t) != nil:
		return Refused
	case len(t.Instances) == 0:
		return Down
	}
	return Ready
}

// Standing gives all that is known under a name: the tool, or nil, and the
// declarations that are refused.
func (r *Registry) Standing(name string) (t *Tool, refused []*Tool) { return r.cat.standing(name) }

// Unserved says why a call of a tool cannot be dispatched that no instance takes.
func (r *Registry) Unserved(name string) *frames.Error {
	t, refused := r.Standing(name)
	switch set := r.cat.setting(name); {
	case set.Retired:
		return frames.NotFound(name, r.Callable())
	case set.Disabled:
		return frames.Disabled(name)
	case len(refused) > 0:
		return unserved(t, refused)
	case t == nil:
		return frames.NotFound(name, r.Callable())
	}
	return frames.Unavailable(name)
}

// unserved is the error of a call of a name that somebody declares, but not in a
// way that can be called.
func unserved(t *Tool, refused []*Tool) *frames.Error {
	bad := refused[0]
	why, by := bad.Refused, bad.Identity
	if bad.Instance != "" {
		by += "/" + bad.Instance
	}
	if t != nil || why.Code == frames.CodeConflict {
		return frames.Unavailable(bad.Name).With(func(e *frames.Error) {
			e.Message += "; what " + by + " declares is refused: " + why.Message
			e.Reason, e.Issues = string(stateOf(why)), why.Issues
		})
	}
	return Unusable(bad.Name, "declared by "+by, why).WithReason("bad_declaration")
}

func stateOf(why *frames.Error) State {
	if why.Code == frames.CodeConflict {
		return Conflict
	}
	return Refused
}

// Unusable is the error of a call of a tool whose declaration is at fault: no
// other arguments would help. which may say which declaration.
func Unusable(tool, which string, why *frames.Error) *frames.Error {
	if which != "" {
		which = ", " + which + ","
	}
	return frames.Unavailable(tool).With(func(e *frames.Error) {
		e.Message = "Tool " + tool + which + " is refused: " + why.Message
		e.LLMMessage = "Tool " + tool + " cannot be called: its own declaration is at fault, not your call. Try another way."
		e.Reason, e.Issues, e.Retryable = "bad_schema", why.Issues, false
	})
}

// Known reports whether anything is known of a name: somebody declares it, or did
// until a while ago, or an operator decided about it.
func (r *Registry) Known(name string) bool {
	t, refused := r.Standing(name)
	return t != nil || len(refused) > 0 || r.Setting(name) != (Setting{})
}

// Names gives every name that anything is known of, sorted.
func (r *Registry) Names() []string { return slices.Sorted(slices.Values(r.cat.names())) }

// Identities gives who has a tool's name, empty for nobody, and who declares it on
// an instance that takes calls and is alive, sorted.
func (r *Registry) Identities(tool string) (has string, declare []string) {
	return r.cat.identities(tool)
}

// Callable gives the names of the tools that can be called, sorted.
func (r *Registry) Callable() []string {
	var names []string
	for _, t := range r.Tools() {
		if t.Callable() {
			names = append(names, t.Name)
		}
	}
	return names
}
