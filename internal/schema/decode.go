package schema

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Decode is [Decoder.Decode] for a type that is decoded once.
func Decode(args []byte, v any) error { return new(Decoder).Decode(args, v) }

// Decoder decodes arguments and remembers what it learnt of the types it met,
// so one belongs beside each typed tool. Its zero value is ready; it may be
// used by many goroutines and is not to be copied.
type Decoder struct {
	members sync.Map // reflect.Type of a struct -> map[string]field
}

// Decode fills what the pointer v points to from a call's arguments, after they
// were validated. It is encoding/json but for four things: keys match exactly
// ("PATH" never fills a field "path"); a number that is whole fills an integer
// however it is written (1.0, 1e2); numbers in an any become json.Number, so
// none loses digits; what does not fit is an error VALIDATION_INPUT that names
// the place. Keys that v does not have are ignored. After an error v is partly
// filled.
func (d *Decoder) Decode(args []byte, v any) (err error) {
	if p := jsontext.Check(args, jsontext.Limits{}); p != nil {
		return inputReport.problem(args, p)
	}
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return frames.NewError(frames.CodeInternal, "cannot decode into %T", v)
	}
	defer func() {
		if r := recover(); r != nil {
			err = frames.NewError(frames.CodeInternal, "decoding into %T failed: %v", v, r)
		}
	}()
	w := decoding{types: d}
	err = w.value(bytes.TrimSpace(args), target.Elem())
	if m, ok := errors.AsType[*misfit](err); ok {
		return inputReport.error([]frames.Issue{frames.Issue(*m)}, 0)
	}
	return err
}

// misfit is a value that its Go type cannot hold.
type misfit frames.Issue

func (m *misfit) Error() string { return issueText(frames.Issue(*m)) }

// decoding is one Decode; it knows where it is.
type decoding struct {
	types *Decoder
	at    []string
}

func (d *Decoder) fields(t reflect.Type) map[string]field {
	if found, ok := d.members.Load(t); ok {
		return found.(map[string]field) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	byName := map[string]field{}
	for _, f := range fieldsOf(t) {
		byName[f.name] = f
	}
	d.members.Store(t, byName)
	return byName
}

func (d *decoding) misfit(raw []byte, message, expected string) error {
	return &misfit{Path: d.path(), Message: message, Expected: expected, Got: preview(decodeAny(raw))}
}

func (d *decoding) path() string {
	return jsontext.Clip(jsontext.Pointer(d.at...), jsontext.MaxPath)
}

func (d *decoding) wrongType(raw []byte, expected string) error {
	return &misfit{
		Path: d.path(), Message: "wrong type", Expected: expected, Got: typed(decodeAny(raw)),
	}
}

// inside decodes a part of the value.
func (d *decoding) inside(token string, raw []byte, v reflect.Value) error {
	d.at = append(d.at, token)
	err := d.value(raw, v)
	d.at = d.at[:len(d.at)-1]
	return err
}

func (d *decoding) value(raw []byte, v reflect.Value) error {
	isNull := raw[0] == 'n'
	if v.Kind() == reflect.Pointer {
		if isNull {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.value(raw, v.Elem())
	}
	if done, err := d.ownForm(raw, v); done {
		return err
	}
	if isNull {
		if k := v.Kind(); k == reflect.Interface || k == reflect.Map || k == reflect.Slice {
			v.SetZero()
		}
		return nil
	}
	return d.kind(raw, v)
}

// ownForm decodes types that decode themselves.
func (d *decoding) ownForm(raw []byte, v reflect.Value) (done bool, err error) {
	if !v.CanAddr() {
		return false, nil
	}
	switch p := v.Addr().Interface().(type) {
	case *json.Number:
		if !isNumber(raw) {
			return true, d.wrongType(raw, "number")
		}
		*p = json.Number(raw)
	case *big.Int:
		n, err := d.whole(raw)
		if err == nil {
			p.Set(n)
		}
		return true, err
	case *time.Time:
		if json.Unmarshal(raw, p) != nil {
			return true, d.misfit(raw, "wrong format", `a time as "2006-01-02T15:04:05Z"`)
		}
	case json.Unmarshaler, encoding.TextUnmarshaler:
		if err := json.Unmarshal(raw, p); err != nil {
			return true, d.misfit(raw, "does not decode: "+jsontext.Clip(err.Error(), 120), "")
		}
	default:
		return false, nil
	}
	return true, nil
}

func (d *decoding) kind(raw []byte, v reflect.Value) error {
	switch k := v.Kind(); k {
	case reflect.Bool:
		if raw[0] != 't' && raw[0] != 'f' {
			return d.wrongType(raw, "boolean")
		}
		v.SetBool(raw[0] == 't')
	case reflect.String:
		if raw[0] != '"' {
			return d.wrongType(raw, "string")
		}
		v.SetString(jsontext.Unquote(raw))
	case reflect.Float32, reflect.Float64:
		return d.float(raw, v)
	case reflect.Struct:
		return d.object(raw, v)
	case reflect.Map:
		return d.openObject(raw, v)
	case reflect.Slice:
		return d.slice(raw, v)
	case reflect.Array:
		return d.array(raw, v)
	case reflect.Interface:
		if v.NumMethod() > 0 {
			return frames.NewError(frames.CodeInternal, "cannot decode into %v", v.Type())
		}
		v.Set(reflect.ValueOf(decodeAny(raw)))
	default:
		if k < reflect.Int || k > reflect.Uintptr {
			return frames.NewError(frames.CodeInternal, "cannot decode into %v", v.Type())
		}
		return d.integer(raw, v)
	}
	return nil
}

// decodeAny keeps numbers as they are written.
func decodeAny(raw []byte) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	_ = dec.Decode(&v)
	return v
}

func (d *decoding) object(raw []byte, v reflect.Value) error {
	if raw[0] != '{' {
		return d.wrongType(raw, "object")
	}
	byName := d.types.fields(v.Type())
	return jsontext.Members(raw, func(key, value []byte) error {
		f, ok := byName[jsontext.Unquote(key)]
		if !ok {
			return nil
		}
		target, err := settable(v, f)
		if err != nil {
			return err
		}
		if f.quoted {
			return d.quoted(f.name, value, target)
		}
		return d.inside(f.name, value, target)
	})
}

// settable gives the field's place, making the embedded structs on the way.
func settable(v reflect.Value, f field) (reflect.Value, error) {
	for i, n := range f.index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !v.CanSet() {
					return v, frames.NewError(frames.CodeInternal, "cannot set the embedded pointer to %v", v.Type().Elem())
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(n)
	}
	return v, nil
}

// quoted decodes a scalar that stands inside a string.
func (d *decoding) quoted(name string, raw []byte, v reflect.Value) error {
	inner := []byte(jsontext.Unquote(raw))
	if raw[0] == '"' && jsontext.Check(inner, jsontext.Limits{}) == nil {
		return d.inside(name, bytes.TrimSpace(inner), v)
	}
	if raw[0] == 'n' {
		return d.inside(name, raw, v)
	}
	d.at = append(d.at, name)
	return d.wrongType(raw, "JSON in a string")
}

func (d *decoding) openObject(raw []byte, v reflect.Value) error {
	t := v.Type()
	if raw[0] != '{' {
		return d.wrongType(raw, "object")
	}
	if t.Key().Kind() != reflect.String || reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
			return d.misfit(raw, "does not decode: "+jsontext.Clip(err.Error(), 120), "")
		}
		return nil
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	return jsontext.Members(raw, func(key, value []byte) error {
		name, item := jsontext.Unquote(key), reflect.New(t.Elem()).Elem()
		if err := d.inside(name, value, item); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), item)
		return nil
	})
}

func (d *decoding) slice(raw []byte, v reflect.Value) error {
	if v.Type().Elem().Kind() == reflect.Uint8 && raw[0] == '"' {
		if json.Unmarshal(raw, v.Addr().Interface()) != nil {
			return d.misfit(raw, "wrong format", "base64 text")
		}
		return nil
	}
	if raw[0] != '[' {
		return d.wrongType(raw, "array")
	}
	out, i := reflect.MakeSlice(v.Type(), 0, 4), 0
	err := jsontext.Items(raw, func(value []byte) error {
		item := reflect.New(v.Type().Elem()).Elem()
		err := d.inside(strconv.Itoa(i), value, item)
		out, i = reflect.Append(out, item), i+1
		return err
	})
	v.Set(out)
	return err
}

func (d *decoding) array(raw []byte, v reflect.Value) error {
	if raw[0] != '[' {
		return d.wrongType(raw, "array")
	}
	v.SetZero()
	i := 0
	return jsontext.Items(raw, func(value []byte) error {
		if i == v.Len() {
			return d.misfit(raw, "too many items", "at most "+count(v.Len(), "item"))
		}
		i++
		return d.inside(strconv.Itoa(i-1), value, v.Index(i-1))
	})
}
