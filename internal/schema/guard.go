package schema

import (
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// fewValues is up to where an enum is compared one by one.
const fewValues = 8

// guard makes a compiled schema charge its work to the meter, and mends what
// the library does badly: long enums are looked up instead of compared one by
// one with numbers parsed anew, and the key that propertyNames refuses gets a
// path of its own (the library's is overwritten while it goes on).
func guard(s *jsonschema.Schema, work *meter) {
	v := visitor{work: work, format: s.Format, branches: len(sameValue(s)), each: 1 + len(s.PatternProperties)}
	if s.Contains != nil {
		v.each++
	}
	if s.Enum != nil && len(s.Enum.Values) > fewValues {
		v.enum, v.allowed = newValueSet(s.Enum.Values), s.Enum.Values
		s.Enum = nil
	}
	if s.PropertyNames != nil {
		s.Extensions = append(s.Extensions, &keyNames{s.PropertyNames})
		v.each++
		s.PropertyNames = nil
	}
	if v.branches > 0 || v.enum != nil || s.Format != nil || len(partsOf(s)) > 0 || len(s.Extensions) > 0 {
		s.Format = &jsonschema.Format{Name: v.name(), Validate: v.visit}
	}
}

// visitor stands in a schema's format, which the library asks before it goes
// into branches, members and items.
type visitor struct {
	work     *meter
	format   *jsonschema.Format
	branches int // schemas that see the same value
	each     int // looks at each member or item
	enum     valueSet
	allowed  []any
}

func (v *visitor) name() string {
	if v.format == nil {
		return ""
	}
	return v.format.Name
}

func (v *visitor) visit(value any) error {
	size := sizeOf(value)
	v.work.spend(perVisit + v.branches*(perVisit+size) + v.each*size)
	if v.enum != nil {
		v.work.spend(size)
		if !v.enum[canonical(value)] {
			return &notAllowedError{v.allowed}
		}
	}
	if v.format == nil {
		return nil
	}
	return v.format.Validate(value)
}

// sizeOf is how much a look at the whole value costs, in the meter's units.
func sizeOf(value any) int {
	switch value := value.(type) {
	case map[string]any:
		return len(value)
	case []any:
		return len(value)
	case string:
		return len(value) / 64
	}
	return 0
}

// notAllowedError is a value that is not in a long enum.
type notAllowedError struct{ allowed []any }

func (*notAllowedError) Error() string { return "not one of the allowed values" }

// asEnum gives the enum's own kind back if k hides it.
func asEnum(k *kind.Format) (*kind.Enum, bool) {
	e, ok := errors.AsType[*notAllowedError](k.Err)
	if !ok {
		return nil, false
	}
	return &kind.Enum{Got: k.Got, Want: e.allowed}, true
}

// keyNames is propertyNames.
type keyNames struct{ names *jsonschema.Schema }

// Validate holds the object's keys to the schema.
func (k *keyNames) Validate(ctx *jsonschema.ValidatorContext, v any) {
	object, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if bad, ok := errors.AsType[*jsonschema.ValidationError](k.names.Validate(name)); ok {
			ctx.AddErrors(bad.Causes, &kind.PropertyNames{Property: name})
		}
	}
}

var _ jsonschema.SchemaExt = (*keyNames)(nil)

// valueSet holds values by their canonical text.
type valueSet map[string]bool

func newValueSet(values []any) valueSet {
	set := make(valueSet, len(values))
	for _, v := range values {
		set[canonical(v)] = true
	}
	return set
}

// canonical gives one text for all values that JSON Schema calls equal.
func canonical(v any) string {
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case json.Number:
		b.WriteString(canonicalNumber(string(v)))
	case string:
		b.WriteString(strconv.Quote(v))
	case []any:
		b.WriteByte('[')
		for _, item := range v {
			writeCanonical(b, item)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteByte('{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(strconv.Quote(key) + ":")
			writeCanonical(b, v[key])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	}
}

func canonicalNumber(literal string) string {
	if literal != "-0" && !strings.ContainsAny(literal, ".eE") {
		return literal
	}
	r, ok := new(big.Rat).SetString(literal)
	if !ok {
		return literal
	}
	return r.RatString()
}
