package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/weavebus/weavebus/pkg/frames"
)

// For gives the JSON Schema of T as a tool's arguments: what [Decode] fills a T
// from. The same T always gives the same bytes.
//
// A struct is a closed object with its fields in their order, named as
// encoding/json names them. A field is required unless it has omitempty or
// omitzero, or is a pointer; a pointer without these options takes null too. A
// map with string keys is an open object, time.Time a date-time string, []byte
// a base64 string, json.RawMessage and any take every value; a type with its
// own JSON form takes every value, one with its own text form a string. Two
// tags say more of a field: `jsonschema:"its description"` and
// `enum:"head,tail"`, the allowed values of a scalar or of a list's items.
//
// Types that JSON cannot carry, and types that contain themselves, are errors
// of the reason bad_schema that name the field.
func For[T any]() ([]byte, error) { return schemaOf(reflect.TypeFor[T](), false) }

// ForResult gives the JSON Schema of T as a tool's result: what encoding/json
// writes for a T. It differs from [For] where that writes null: slices, maps
// and pointers without omitempty or omitzero are required, and may be null.
func ForResult[T any]() ([]byte, error) { return schemaOf(reflect.TypeFor[T](), true) }

func schemaOf(t reflect.Type, result bool) ([]byte, error) {
	in := inferrer{result: result}
	s, err := in.schema(t, result)
	if err != nil {
		return nil, refused(frames.Issue{Message: fmt.Sprintf("Go type %v has none: %v", t, err)}, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, refused(frames.Issue{Message: fmt.Sprintf("Go type %v has none", t)}, err)
	}
	return text, nil
}

// inferrer walks a type; open holds the named types it is inside of.
type inferrer struct {
	result bool
	open   []reflect.Type
}

// schema gives the schema of t; nullable says that a nil of it is written.
func (in *inferrer) schema(t reflect.Type, nullable bool) (*jsonschema.Schema, error) {
	isNil := t.Kind() == reflect.Pointer
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if in.result {
		isNil = isNil || t.Kind() == reflect.Slice || t.Kind() == reflect.Map
	}
	if slices.Contains(in.open, t) {
		return nil, fmt.Errorf("%v contains itself, and a schema has to end; json.RawMessage stands for any value", t)
	}
	if t.Name() != "" {
		in.open = append(in.open, t)
		defer func() { in.open = in.open[:len(in.open)-1] }()
	}
	s := known(t)
	if s == nil {
		var err error
		if s, err = in.kind(t); err != nil {
			return nil, err
		}
	}
	if nullable && isNil {
		allowNull(s)
	}
	return s, nil
}

func allowNull(s *jsonschema.Schema) {
	if s.Type == "" {
		return
	}
	s.Types, s.Type = []string{s.Type, "null"}, ""
	if s.Enum != nil {
		s.Enum = append(s.Enum, nil)
	}
}

// known gives the types whose JSON form their Go form does not show.
func known(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[json.Number]():
		return &jsonschema.Schema{Type: "number"}
	case reflect.TypeFor[big.Int]():
		return &jsonschema.Schema{Type: "integer"}
	}
	switch p := reflect.PointerTo(t); {
	case p.Implements(reflect.TypeFor[json.Marshaler]()), p.Implements(reflect.TypeFor[json.Unmarshaler]()):
		return &jsonschema.Schema{}
	case p.Implements(reflect.TypeFor[encoding.TextMarshaler]()), p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
	}
	return nil
}

func (in *inferrer) kind(t reflect.Type) (*jsonschema.Schema, error) {
	switch t.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}, nil
	case reflect.String:
		return &jsonschema.Schema{Type: "string"}, nil
	case reflect.Float32, reflect.Float64:
		return &jsonschema.Schema{Type: "number"}, nil
	case reflect.Struct:
		return in.object(t)
	case reflect.Map:
		return in.openObject(t)
	case reflect.Slice, reflect.Array:
		return in.list(t)
	case reflect.Interface:
		if t.NumMethod() == 0 || in.result {
			return &jsonschema.Schema{}, nil
		}
	}
	if s := integer(t.Kind()); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%v has no JSON form", t)
}

// integer bounds the small integer types; those of 64 bits are bounded when
// they are decoded, because a schema's bounds are read as floats by many.
func integer(k reflect.Kind) *jsonschema.Schema {
	bounds := func(low, high float64) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "integer", Minimum: &low, Maximum: &high}
	}
	switch k {
	case reflect.Int, reflect.Int64:
		return &jsonschema.Schema{Type: "integer"}
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return &jsonschema.Schema{Type: "integer", Minimum: new(float64)}
	case reflect.Int8:
		return bounds(math.MinInt8, math.MaxInt8)
	case reflect.Int16:
		return bounds(math.MinInt16, math.MaxInt16)
	case reflect.Int32:
		return bounds(math.MinInt32, math.MaxInt32)
	case reflect.Uint8:
		return bounds(0, math.MaxUint8)
	case reflect.Uint16:
		return bounds(0, math.MaxUint16)
	case reflect.Uint32:
		return bounds(0, math.MaxUint32)
	}
	return nil
}

func (in *inferrer) list(t reflect.Type) (*jsonschema.Schema, error) {
	items, err := in.schema(t.Elem(), true)
	if err != nil {
		return nil, err
	}
	s := &jsonschema.Schema{Type: "array", Items: items}
	if t.Kind() == reflect.Array {
		n := t.Len()
		s.MinItems, s.MaxItems = &n, &n
	}
	return s, nil
}

func (in *inferrer) openObject(t reflect.Type) (*jsonschema.Schema, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("%v: a map needs string keys", t)
	}
	values, err := in.schema(t.Elem(), true)
	if err != nil {
		return nil, err
	}
	return &jsonschema.Schema{Type: "object", AdditionalProperties: values}, nil
}

func (in *inferrer) object(t reflect.Type) (*jsonschema.Schema, error) {
	s := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, f := range fieldsOf(t) {
		p, err := in.property(f)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.goName, err)
		}
		s.Properties[f.name] = p
		s.PropertyOrder = append(s.PropertyOrder, f.name)
		if in.required(f) {
			s.Required = append(s.Required, f.name)
		}
	}
	return s, nil
}

func (in *inferrer) required(f field) bool {
	if f.omits || f.byPtr {
		return false
	}
	return in.result || f.typ.Kind() != reflect.Pointer
}

func (in *inferrer) property(f field) (*jsonschema.Schema, error) {
	if f.private {
		return nil, fmt.Errorf("it is promoted through an embedded pointer to an unexported type, which cannot be set")
	}
	s, err := in.schema(f.typ, false)
	if err != nil {
		return nil, err
	}
	if f.quoted {
		s = &jsonschema.Schema{Type: "string"}
	}
	if err := describeField(s, f); err != nil {
		return nil, err
	}
	if in.nilIsWritten(f) {
		allowNull(s)
	}
	return s, nil
}

// nilIsWritten reports whether encoding/json writes null for the field's nil.
func (in *inferrer) nilIsWritten(f field) bool {
	switch f.typ.Kind() {
	case reflect.Pointer:
		return !f.omits
	case reflect.Slice, reflect.Map:
		return in.result && !f.omits
	}
	return false
}

// reserved is a form of description kept for later by the library whose tag
// this is.
var reserved = regexp.MustCompile(`^[^ \t\n]*=`)

func describeField(s *jsonschema.Schema, f field) error {
	if text, ok := f.tag.Lookup("jsonschema"); ok {
		if text == "" || reserved.MatchString(text) {
			return fmt.Errorf("the jsonschema tag is its description: not empty, no word with = first; an enum or a bound stands in a schema of your own (tool.InputSchema)")
		}
		s.Description = text
	}
	list, ok := f.tag.Lookup("enum")
	if !ok {
		return nil
	}
	if s.Items != nil {
		s = s.Items
	}
	for text := range strings.SplitSeq(list, ",") {
		v, err := enumValue(s.Type, strings.TrimSpace(text))
		if err != nil {
			return err
		}
		s.Enum = append(s.Enum, v)
	}
	return nil
}

func enumValue(typ, text string) (any, error) {
	switch typ {
	case "string":
		return text, nil
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return json.Number(text), nil
		}
	case "number":
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("enum value %q is no %s", text, typ)
}
