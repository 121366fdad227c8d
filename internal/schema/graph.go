package schema

import (
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// reach gives every schema that root and the others lead to, by location.
func reach(root *jsonschema.Schema, others []*jsonschema.Schema) map[string]*jsonschema.Schema {
	found := map[string]*jsonschema.Schema{}
	todo := append(slices.Clone(others), root)
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s == nil || found[s.Location] != nil {
			continue
		}
		found[s.Location] = s
		todo = append(todo, sameValue(s)...)
		todo = append(todo, partsOf(s)...)
	}
	return found
}

// sameValue gives the schemas that s applies to the very value it is given.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	out = slices.Concat(out, s.AllOf, s.AnyOf, s.OneOf)
	out = slices.AppendSeq(out, maps.Values(s.DependentSchemas))
	for _, d := range s.Dependencies {
		if sub, ok := d.(*jsonschema.Schema); ok {
			out = append(out, sub)
		}
	}
	return present(out)
}

// partsOf gives the schemas that s applies to members, items and keys.
func partsOf(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{
		s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	out = slices.Concat(out, s.PrefixItems)
	out = slices.AppendSeq(out, maps.Values(s.Properties))
	out = slices.AppendSeq(out, maps.Values(s.PatternProperties))
	for _, other := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch other := other.(type) {
		case *jsonschema.Schema:
			out = append(out, other)
		case []*jsonschema.Schema:
			out = append(out, other...)
		}
	}
	return present(out)
}

func present(list []*jsonschema.Schema) []*jsonschema.Schema {
	return slices.DeleteFunc(list, func(s *jsonschema.Schema) bool { return s == nil })
}
