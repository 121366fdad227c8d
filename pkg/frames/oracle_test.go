package frames

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// toGo gives a value as the library decodes it into an any, with numbers as
// int64, uint64 and float64.
func toGo(r Raw) any {
	switch r.Kind() {
	case KindBool:
		b, _ := r.Bool()
		return b
	case KindInt:
		n, _ := r.Int64()
		return n
	case KindUint:
		n, _ := r.Uint64()
		return n
	case KindFloat:
		f, _ := r.Float64()
		return f
	case KindString:
		s, _ := r.Text()
		return s
	case KindBin:
		p, _ := r.Bytes()
		return p
	case KindTime:
		t, _ := r.Time()
		return t
	case KindArray:
		list := []any{}
		for v := range r.Items() {
			list = append(list, toGo(v))
		}
		return list
	case KindMap:
		m := map[string]any{}
		for k, v := range r.Pairs() {
			m[k] = toGo(v)
		}
		return m
	}
	return nil
}

// libraryValues decodes the values of data with the library.
func libraryValues(data []byte) ([]any, error) {
	r := bytes.NewReader(data)
	dec := msgpack.NewDecoder(r)
	var out []any
	for r.Len() > 0 {
		v, err := dec.DecodeInterface()
		if err != nil {
			return nil, err
		}
		out = append(out, widen(v))
	}
	return out, nil
}

// widen gives numbers their widest type.
func widen(v any) any {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return rv.Int()
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return rv.Uint()
	case reflect.Float32:
		return rv.Float()
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = widen(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = widen(v[k])
		}
	}
	return v
}

// same compares two values of the library's types: whole numbers by what they
// say, times by their instant, NaN as itself. With loose, a float is also the
// whole number that it says.
func same(a, b any, loose bool) bool {
	if loose && isNumber(a) && isNumber(b) {
		a, b = floats(a), floats(b)
	}
	switch a := a.(type) {
	case int64, uint64:
		_, isFloat := b.(float64)
		return isNumber(b) && !isFloat && fmt.Sprint(a) == fmt.Sprint(b)
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || (math.IsNaN(a) && math.IsNaN(b)))
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case time.Time:
		b, ok := b.(time.Time)
		return ok && a.Equal(b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, func(x, y any) bool { return same(x, y, loose) })
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, func(x, y any) bool { return same(x, y, loose) })
	}
	return a == b
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, uint64, float64:
		return true
	}
	return false
}

// TestLibraryReadsOurs: the library decodes what we write to the same values.
func TestLibraryReadsOurs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rawOf(drawValue(t, 3))
		got, err := libraryValues(want)
		if err != nil || len(got) != 1 {
			t.Fatalf("%x: %v", want, err)
		}
		if !same(toGo(want), got[0], false) {
			t.Fatalf("%x\nis %v\nto the library %v", want, toGo(want), got[0])
		}
	})
}

// TestWeReadTheLibrarys: what the library encodes of Go values we read the same.
func TestWeReadTheLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := drawMap(t, 3, drawValue)
		var buf bytes.Buffer
		enc := msgpack.NewEncoder(&buf)
		enc.UseCompactInts(rapid.Bool().Draw(t, "compact ints"))
		enc.UseCompactFloats(rapid.Bool().Draw(t, "compact floats"))
		if err := enc.Encode(map[string]any{"type": "META", "ts": 1732900000123, "seq": uint16(7), "content": content}); err != nil {
			t.Fatal(err)
		}
		m, err := Decode(buf.Bytes())
		if err != nil {
			t.Fatalf("%v: %x", err, buf.Bytes())
		}
		f := m.Frames[0]
		if f.Type != TypeMeta || f.TS != 1732900000123 || f.Seq != 7 {
			t.Fatalf("read %+v", f)
		}
		want, err := libraryValues(f.Content)
		if err != nil {
			t.Fatal(err)
		}
		if !same(want[0], toGo(f.Content), false) {
			t.Fatalf("the library reads %v\nwe read %v", want[0], toGo(f.Content))
		}
		if !same(content, toGo(f.Content), true) {
			t.Fatalf("%v\nis read as %v", content, toGo(f.Content))
		}
	})
}

// TestEveryHeader holds the header table against the library: each first byte
// with a payload that is long enough.
func TestEveryHeader(t *testing.T) {
	for first := range 256 {
		data := append([]byte{byte(first)}, binary.BigEndian.AppendUint32(nil, 0)...)
		data = append(data, make([]byte, 64)...)
		h, ok := readHeader(data)
		if (first == 0xc1) == ok {
			t.Errorf("%02x: a value begins with it: %v", first, ok)
		}
		if h.kind == KindExt || !ok {
			continue
		}
		dec := msgpack.NewDecoder(bytes.NewReader(data))
		raw, err := dec.DecodeRaw()
		if err != nil || len(raw) != valueLen(data) {
			t.Errorf("%02x: the library reads %d bytes (%v), we %d", first, len(raw), err, valueLen(data))
		}
	}
}
