package frames

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// Append writes frames back to back in the encoding and gives the longer slice.
// The error is BAD_FRAME for a JSON message that cannot say a value (NaN, an
// infinity); a msgpack message cannot fail.
func Append(dst []byte, enc Encoding, fs ...*Frame) ([]byte, error) {
	if enc == JSON {
		return appendJSONFrames(dst, fs)
	}
	for _, f := range fs {
		dst = appendFrame(dst, f)
	}
	return dst, nil
}

// Encode is Append to a new slice.
func Encode(enc Encoding, fs ...*Frame) ([]byte, error) {
	n := 0
	for _, f := range fs {
		n += 160 + len(f.Content) + len(f.Value)
	}
	return Append(make([]byte, 0, n), enc, fs...)
}

func appendFrame(b []byte, f *Frame) []byte {
	head := len(b)
	b = append(b, 0xde, 0, 0)
	n := 0
	str := func(key, v string) {
		if v != "" {
			b, n = appendString(appendString(b, key), v), n+1
		}
	}
	num := func(key string, v uint64) {
		if v != 0 {
			b, n = appendUint(appendString(b, key), v), n+1
		}
	}
	raw := func(key string, v Raw) {
		if len(v) != 0 {
			b, n = append(appendString(b, key), v...), n+1
		}
	}
	num("v", Version)
	str("type", string(f.Type))
	str("id", f.ID)
	if f.TS != 0 {
		b, n = appendFloat(appendString(b, "ts"), float64(f.TS)), n+1
	}
	str("streamId", f.StreamID)
	num("seq", f.Seq)
	num("entry", f.Entry)
	num("part", uint64(f.Part))
	if f.Last {
		raw("last", Raw{0xc3})
	}
	num("epoch", f.Epoch)
	str("toolCallId", f.ToolCallID)
	str("name", f.Name)
	str("key", f.Key)
	raw("value", f.Value)
	raw("content", f.Content)
	if len(f.Metadata) != 0 {
		b, n = f.Metadata.append(appendString(b, "metadata")), n+1
	}
	for _, x := range f.Extra {
		raw(x.Key, x.Value)
	}
	binary.BigEndian.PutUint16(b[head+1:], uint16(n))
	return b
}

func appendString(b []byte, s string) []byte {
	if strings.ToValidUTF8(s, "") != s {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n < 1<<8:
		b = append(b, 0xd9, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

func appendBin(b, v []byte) []byte {
	switch n := len(v); {
	case n < 1<<8:
		b = append(b, 0xc4, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xc5), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, v...)
}

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 1<<7:
		return append(b, byte(v))
	case v < 1<<8:
		return append(b, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
	}
}

func appendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt8:
		return append(b, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
	}
}

func appendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}

func appendMapHeader(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x80|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xde), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, 0xdf), uint32(n))
	}
}

func appendArrayHeader(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
	}
}

// Value writes a Go value as msgpack. Strings, numbers, bools, []byte (bin),
// []string, []any and map[string]any (keys sorted) are written directly, a Raw
// is taken as it is, a json.RawMessage is read as JSON, and any other type goes
// through encoding/json. What cannot be written becomes nil.
func Value(v any) Raw {
	return appendValue(nil, v)
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0xc0)
	case Raw:
		if len(v) == 0 {
			return append(b, 0xc0)
		}
		return append(b, v...)
	case string:
		return appendString(b, v)
	case bool:
		return appendBool(b, v)
	case int:
		return appendInt(b, int64(v))
	case int64:
		return appendInt(b, v)
	case uint64:
		return appendUint(b, v)
	case float64:
		return appendFloat(b, v)
	case []byte:
		return appendBin(b, v)
	case Fields:
		return v.append(b)
	case []any:
		return appendList(b, v)
	case []string:
		return appendList(b, v)
	case []Raw:
		return appendList(b, v)
	case map[string]any:
		return appendMap(b, v)
	}
	return appendViaJSON(b, v)
}

func appendList[T any](b []byte, items []T) []byte {
	b = appendArrayHeader(b, len(items))
	for _, item := range items {
		b = appendValue(b, item)
	}
	return b
}

func appendMap(b []byte, m map[string]any) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = appendMapHeader(b, len(keys))
	for _, k := range keys {
		b = appendValue(appendString(b, k), m[k])
	}
	return b
}

func appendViaJSON(b []byte, v any) []byte {
	text, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(v); err != nil {
			return append(b, 0xc0)
		}
	}
	raw, err := FromJSON(text)
	if err != nil {
		return append(b, 0xc0)
	}
	return append(b, raw...)
}

// Field is a key of a map with its value.
type Field struct {
	Key   string
	Value Raw
}

// Fields is a map in the order of the wire.
type Fields []Field

// Get gives the value of a key; nil where there is none.
func (fs Fields) Get(key string) Raw {
	for i := range fs {
		if fs[i].Key == key {
			return fs[i].Value
		}
	}
	return nil
}

// Text gives a str value; "" where there is none.
func (fs Fields) Text(key string) string {
	s, _ := fs.Get(key).Text()
	return s
}

// Bool gives a bool value; false where there is none.
func (fs Fields) Bool(key string) bool {
	b, _ := fs.Get(key).Bool()
	return b
}

// Int gives a whole number; 0 where there is none.
func (fs Fields) Int(key string) int64 {
	n, _ := fs.Get(key).Int64()
	return n
}

// Set puts a key's value in place of an earlier one, or at the end. The slice's
// memory is not shared with another Fields that was made by Clone.
func (fs *Fields) Set(key string, value Raw) {
	for i := range *fs {
		if (*fs)[i].Key == key {
			(*fs)[i].Value = value
			return
		}
	}
	*fs = append(*fs, Field{key, value})
}

// Delete takes a key away.
func (fs *Fields) Delete(key string) {
	*fs = slices.DeleteFunc(*fs, func(f Field) bool { return f.Key == key })
}

// Clone gives a copy that may be changed.
func (fs Fields) Clone() Fields { return slices.Clone(fs) }

// Raw gives the map as one value.
func (fs Fields) Raw() Raw { return fs.append(nil) }

func (fs Fields) append(b []byte) []byte {
	b = appendMapHeader(b, len(fs))
	for _, f := range fs {
		b = appendValue(appendString(b, f.Key), f.Value)
	}
	return b
}
