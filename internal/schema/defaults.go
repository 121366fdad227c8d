package schema

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// Fit is [Schema.Validate] for arguments that are then given with the defaults of
// members that are absent; a member that is required is not missed if it has one.
func (s *Schema) Fit(args []byte) ([]byte, error) {
	err := s.Validate(args)
	if err == nil {
		return s.WithDefaults(args), nil
	}
	if filled, ok := s.filled(args); ok {
		return filled, nil
	}
	return nil, err
}

// WithDefaults gives arguments that fit, with the defaults of members that are
// absent. Defaults count where the schema applies without a condition: in
// properties, items, $ref and allOf. An object that is absent is not made for the
// defaults in it, and null is not absent. A default that does not fit its own
// schema is left out; where the arguments do not fit with the others either, they
// stay as they are.
func (s *Schema) WithDefaults(args []byte) []byte {
	if filled, ok := s.filled(args); ok {
		return filled
	}
	return args
}

// filled gives JSON text with defaults in it, if it then fits.
func (s *Schema) filled(text []byte) ([]byte, bool) {
	if !s.defaults || jsontext.Check(text, jsontext.Limits{}) != nil {
		return nil, false
	}
	for _, f := range []filling{{left: budget}, {left: budget, fits: s.takesDefault}} {
		f.value(bytes.TrimSpace(text), f.applied([]*jsonschema.Schema{s.root}))
		if !f.filled || f.left <= 0 {
			return nil, false
		}
		if s.Validate(f.out.Bytes()) == nil {
			return f.out.Bytes(), true
		}
	}
	return nil, false
}

// takesDefault reports whether the default of a node fits the node.
func (s *Schema) takesDefault(node *jsonschema.Schema) bool {
	var failed error
	done, err := s.work.run(func() { failed = node.Validate(*node.Default) })
	return done && err == nil && failed == nil
}

func hasDefaults(nodes map[string]*jsonschema.Schema) bool {
	for _, n := range nodes {
		if n.Default != nil {
			return true
		}
	}
	return false
}

type filling struct {
	out    bytes.Buffer
	filled bool
	left   int // of the work that it may cost; at 0 it gives up

	fits func(*jsonschema.Schema) bool // nil: every default does
	seen map[*jsonschema.Schema]bool   // what fits said
}

// takes reports whether a node's default is filled in.
func (f *filling) takes(node *jsonschema.Schema) bool {
	if f.fits == nil {
		return true
	}
	fits, ok := f.seen[node]
	if !ok {
		fits = f.fits(node)
		if f.seen == nil {
			f.seen = map[*jsonschema.Schema]bool{}
		}
		f.seen[node] = fits
	}
	return fits
}

// applied gives the schemas and those that they apply to the same value without
// a condition.
func (f *filling) applied(list []*jsonschema.Schema) []*jsonschema.Schema {
	for i := 0; i < len(list) && f.left > 0; i++ { // it grows
		for _, sub := range append(slices.Clone(list[i].AllOf), list[i].Ref) {
			f.left -= 1 + len(list)
			if sub != nil && !slices.Contains(list, sub) {
				list = append(list, sub)
			}
		}
	}
	return list
}

// value writes one value, which all of the schemas describe.
func (f *filling) value(raw []byte, schemas []*jsonschema.Schema) {
	switch {
	case len(schemas) == 0:
		f.out.Write(raw)
	case raw[0] == '{':
		f.object(raw, schemas)
	case raw[0] == '[':
		f.array(raw, schemas)
	default:
		f.out.Write(raw)
	}
}

func (f *filling) object(raw []byte, schemas []*jsonschema.Schema) {
	missing := f.defaultsOf(schemas)
	first := true
	f.out.WriteByte('{')
	_ = jsontext.Members(raw, func(key, value []byte) error {
		name := jsontext.Unquote(key)
		delete(missing, name)
		separate(&f.out, &first)
		f.out.Write(key)
		f.out.WriteByte(':')
		f.value(value, f.applied(membersOf(schemas, name)))
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		separate(&f.out, &first)
		f.out.Write(text(name))
		f.out.WriteByte(':')
		f.out.Write(text(missing[name]))
		f.filled = true
	}
	f.out.WriteByte('}')
}

func (f *filling) array(raw []byte, schemas []*jsonschema.Schema) {
	first, i := true, 0
	f.out.WriteByte('[')
	_ = jsontext.Items(raw, func(value []byte) error {
		separate(&f.out, &first)
		f.value(value, f.applied(itemsOf(schemas, i)))
		i++
		return nil
	})
	f.out.WriteByte(']')
}

// defaultsOf gives the defaults of members; of several the first counts.
func (f *filling) defaultsOf(schemas []*jsonschema.Schema) map[string]any {
	out := map[string]any{}
	for _, s := range schemas {
		for name, p := range s.Properties {
			for _, a := range f.applied([]*jsonschema.Schema{p}) {
				if _, has := out[name]; !has && a.Default != nil && f.takes(a) {
					out[name] = *a.Default
				}
			}
		}
	}
	return out
}

func membersOf(schemas []*jsonschema.Schema, name string) (out []*jsonschema.Schema) {
	for _, s := range schemas {
		if p := s.Properties[name]; p != nil {
			out = append(out, p)
		} else if rest, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && len(s.PatternProperties) == 0 {
			out = append(out, rest)
		}
	}
	return out
}

func itemsOf(schemas []*jsonschema.Schema, i int) (out []*jsonschema.Schema) {
	for _, s := range schemas {
		first, rest := s.PrefixItems, s.Items2020
		switch items := s.Items.(type) {
		case []*jsonschema.Schema:
			first = items
		case *jsonschema.Schema:
			rest = items
		}
		switch {
		case i < len(first):
			out = append(out, first[i])
		case rest != nil:
			out = append(out, rest)
		}
	}
	return out
}

// text writes a value as JSON; numbers stay as they were written.
func text(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) //nolint:errchkjson // it was read from JSON
	return bytes.TrimSpace(b.Bytes())
}
