package schema

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weavebus/weavebus/pkg/frames"
)

// ForArguments refuses a schema that no object fits, as far as that can be told
// without an example: a tool could never be called by it.
func (s *Schema) ForArguments() error {
	if s.takesObject {
		return nil
	}
	return refused(frames.Issue{
		Message: "arguments are always an object, and the schema accepts none", Expected: `"type": "object" at the root`,
	}, nil)
}

// objectFits keeps its answers in known, and takes one that it is still
// looking for to be yes.
func objectFits(s *jsonschema.Schema, known map[*jsonschema.Schema]bool) bool {
	if s == nil {
		return true
	}
	answer, ok := known[s]
	if !ok {
		known[s] = true
		answer = acceptsSomeObject(s, func(sub *jsonschema.Schema) bool { return objectFits(sub, known) })
		known[s] = answer
	}
	return answer
}

func acceptsSomeObject(s *jsonschema.Schema, fits func(*jsonschema.Schema) bool) bool {
	switch {
	case s.Bool != nil:
		return *s.Bool
	case !typeFits(s), s.Const != nil && !isObject(*s.Const), s.Enum != nil && !slices.ContainsFunc(s.Enum.Values, isObject):
		return false
	case s.Not != nil && acceptsAllObjects(s.Not), !fits(s.Ref):
		return false
	case len(s.AnyOf) > 0 && !slices.ContainsFunc(s.AnyOf, fits), len(s.OneOf) > 0 && !slices.ContainsFunc(s.OneOf, fits):
		return false
	}
	return !slices.ContainsFunc(s.AllOf, func(sub *jsonschema.Schema) bool { return !fits(sub) })
}

func typeFits(s *jsonschema.Schema) bool {
	if s.Types == nil || s.Types.IsEmpty() {
		return true
	}
	return slices.ContainsFunc(s.Types.ToStrings(), func(t string) bool { return t == "object" })
}

// acceptsAllObjects knows the plain cases only: true, {}, {"type": "object"}.
func acceptsAllObjects(s *jsonschema.Schema) bool {
	if s.Bool != nil {
		return *s.Bool
	}
	bare := s.Const == nil && s.Enum == nil && s.Format == nil && len(sameValue(s)) == 0 && len(partsOf(s)) == 0
	open := len(s.Required) == 0 && len(s.DependentRequired) == 0 && len(s.Dependencies) == 0 &&
		s.AdditionalProperties == nil && s.MinProperties == nil && s.MaxProperties == nil
	return s.Types != nil && typeFits(s) && bare && open
}

func isObject(v any) bool { _, ok := v.(map[string]any); return ok }
