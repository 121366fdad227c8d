package frames

import (
	"encoding/binary"
	"iter"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Raw is one value in msgpack as it stands on the wire; nil is an absent
// value. Values that come out of [Decode], [Value] and [FromJSON] are well
// formed; on other bytes the methods give the zero value, they never panic.
type Raw []byte

// Kind is the shape of a [Raw] value.
type Kind uint8

// The kinds of values. KindAbsent is that of a nil Raw and of unreadable bytes.
const (
	KindAbsent Kind = iota
	KindNil
	KindBool
	KindInt
	KindUint
	KindFloat
	KindString
	KindBin
	KindArray
	KindMap
	KindTime
	KindExt
)

var kindNames = [...]string{"nothing", "nil", "bool", "int", "uint", "float", "string", "bin", "array", "map", "timestamp", "ext"}

// String names the kind for an error message.
func (k Kind) String() string { return kindNames[min(int(k), len(kindNames)-1)] }

// header is what the first bytes of a value say.
type header struct {
	kind Kind
	// size is the length of the header in bytes, n that of the payload behind
	// it; for an array or a map, n counts its elements or pairs.
	size, n int
}

// readHeader reads a value's header; ok is false where b ends inside it, or
// where no value begins with its first byte.
func readHeader(b []byte) (h header, ok bool) {
	if len(b) == 0 {
		return header{}, false
	}
	c := b[0]
	switch {
	case c <= 0x7f:
		return header{KindUint, 1, 0}, true
	case c >= 0xe0:
		return header{KindInt, 1, 0}, true
	case c <= 0x8f:
		return header{KindMap, 1, int(c & 0x0f)}, true
	case c <= 0x9f:
		return header{KindArray, 1, int(c & 0x0f)}, true
	case c <= 0xbf:
		return header{KindString, 1, int(c & 0x1f)}, true
	}
	f := formats[c-0xc0]
	if f.kind == KindAbsent {
		return header{}, false
	}
	if f.lenBytes == 0 {
		h = header{f.kind, 1 + f.extra, f.n}
	} else {
		n, ok := readLength(b[1:], f.lenBytes)
		if !ok {
			return header{}, false
		}
		h = header{f.kind, 1 + f.lenBytes + f.extra, n}
	}
	if len(b) < h.size {
		return header{}, false
	}
	if h.kind == KindExt && int8(b[h.size-1]) == -1 && (h.n == 4 || h.n == 8 || h.n == 12) {
		h.kind = KindTime
	}
	return h, true
}

// format describes one of the first bytes 0xc0 … 0xdf: the length of the
// length field, or the fixed payload length, and one extra byte for an ext type.
type format struct {
	kind            Kind
	lenBytes, extra int
	n               int
}

var formats = [32]format{
	{kind: KindNil}, {}, {kind: KindBool}, {kind: KindBool},
	{kind: KindBin, lenBytes: 1}, {kind: KindBin, lenBytes: 2}, {kind: KindBin, lenBytes: 4},
	{kind: KindExt, lenBytes: 1, extra: 1}, {kind: KindExt, lenBytes: 2, extra: 1}, {kind: KindExt, lenBytes: 4, extra: 1},
	{kind: KindFloat, n: 4}, {kind: KindFloat, n: 8},
	{kind: KindUint, n: 1}, {kind: KindUint, n: 2}, {kind: KindUint, n: 4}, {kind: KindUint, n: 8},
	{kind: KindInt, n: 1}, {kind: KindInt, n: 2}, {kind: KindInt, n: 4}, {kind: KindInt, n: 8},
	{kind: KindExt, extra: 1, n: 1}, {kind: KindExt, extra: 1, n: 2}, {kind: KindExt, extra: 1, n: 4},
	{kind: KindExt, extra: 1, n: 8}, {kind: KindExt, extra: 1, n: 16},
	{kind: KindString, lenBytes: 1}, {kind: KindString, lenBytes: 2}, {kind: KindString, lenBytes: 4},
	{kind: KindArray, lenBytes: 2}, {kind: KindArray, lenBytes: 4},
	{kind: KindMap, lenBytes: 2}, {kind: KindMap, lenBytes: 4},
}

func readLength(b []byte, n int) (int, bool) {
	if len(b) < n {
		return 0, false
	}
	switch n {
	case 1:
		return int(b[0]), true
	case 2:
		return int(binary.BigEndian.Uint16(b)), true
	default:
		return int(binary.BigEndian.Uint32(b)), true
	}
}

// valueLen gives the length of the value that b begins with, 0 if it is cut.
func valueLen(b []byte) int {
	pos := 0
	for todo := 1; todo > 0; todo-- {
		h, ok := readHeader(b[pos:])
		if !ok {
			return 0
		}
		pos += h.size
		switch h.kind {
		case KindMap:
			todo += 2 * h.n
		case KindArray:
			todo += h.n
		default:
			pos += h.n
		}
		if pos > len(b) || todo > len(b) {
			return 0
		}
	}
	return pos
}

// Kind gives the value's kind.
func (r Raw) Kind() Kind {
	h, _ := readHeader(r)
	return h.kind
}

// Absent reports whether there is no value: absent and nil are the same.
func (r Raw) Absent() bool { return len(r) == 0 || r[0] == 0xc0 }

// Len gives the number of elements of an array or pairs of a map, else 0.
func (r Raw) Len() int {
	if h, ok := readHeader(r); ok && (h.kind == KindArray || h.kind == KindMap) {
		return h.n
	}
	return 0
}

// payload gives the bytes behind the header of a value that is no container.
func (r Raw) payload() (header, []byte) {
	h, ok := readHeader(r)
	if !ok || h.kind == KindArray || h.kind == KindMap || len(r) < h.size+h.n {
		return header{}, nil
	}
	return h, r[h.size : h.size+h.n]
}

// Text gives a str, or a bin that is valid UTF-8.
func (r Raw) Text() (string, bool) {
	b, ok := r.textBytes()
	return string(b), ok
}

func (r Raw) textBytes() ([]byte, bool) {
	h, p := r.payload()
	if h.kind == KindString || (h.kind == KindBin && utf8.Valid(p)) {
		return p, true
	}
	return nil, false
}

// Bytes gives a bin, or a str's bytes. The slice shares r's memory.
func (r Raw) Bytes() ([]byte, bool) {
	h, p := r.payload()
	return p, h.kind == KindBin || h.kind == KindString
}

// Bool gives a bool.
func (r Raw) Bool() (value, ok bool) {
	if len(r) == 1 && (r[0] == 0xc2 || r[0] == 0xc3) {
		return r[0] == 0xc3, true
	}
	return false, false
}

// Int64 gives a number in any numeric form that is whole and fits.
func (r Raw) Int64() (int64, bool) {
	h, p := r.payload()
	switch h.kind {
	case KindInt:
		return r.signed(p), true
	case KindUint:
		u := r.unsigned(p)
		return int64(u), u <= math.MaxInt64
	case KindFloat:
		f := float(p)
		return int64(f), f == math.Trunc(f) && f >= -1<<63 && f < 1<<63
	case KindTime:
		t := timestamp(p)
		return t.UnixMilli(), true
	}
	return 0, false
}

// Uint64 gives a number in any numeric form that is whole, fits and is not negative.
func (r Raw) Uint64() (uint64, bool) {
	h, p := r.payload()
	switch h.kind {
	case KindInt:
		i := r.signed(p)
		return uint64(i), i >= 0
	case KindUint:
		return r.unsigned(p), true
	case KindFloat:
		f := float(p)
		return uint64(f), f == math.Trunc(f) && f >= 0 && f < 1<<64
	}
	return 0, false
}

// Float64 gives a number in any numeric form, rounded where it must be.
func (r Raw) Float64() (float64, bool) {
	h, p := r.payload()
	switch h.kind {
	case KindInt:
		return float64(r.signed(p)), true
	case KindUint:
		return float64(r.unsigned(p)), true
	case KindFloat:
		return float(p), true
	}
	return 0, false
}

func (r Raw) signed(p []byte) int64 {
	switch len(p) {
	case 0:
		return int64(int8(r[0]))
	case 1:
		return int64(int8(p[0]))
	case 2:
		return int64(int16(binary.BigEndian.Uint16(p)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(p)))
	default:
		return int64(binary.BigEndian.Uint64(p))
	}
}

func (r Raw) unsigned(p []byte) uint64 {
	switch len(p) {
	case 0:
		return uint64(r[0])
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(p))
	case 4:
		return uint64(binary.BigEndian.Uint32(p))
	default:
		return binary.BigEndian.Uint64(p)
	}
}

func float(p []byte) float64 {
	if len(p) == 4 {
		return float64(math.Float32frombits(binary.BigEndian.Uint32(p)))
	}
	return math.Float64frombits(binary.BigEndian.Uint64(p))
}

func timestamp(p []byte) time.Time {
	switch len(p) {
	case 4:
		return time.Unix(int64(binary.BigEndian.Uint32(p)), 0).UTC()
	case 8:
		v := binary.BigEndian.Uint64(p)
		return time.Unix(int64(v&(1<<34-1)), int64(v>>34)).UTC()
	default:
		return time.Unix(int64(binary.BigEndian.Uint64(p[4:])), int64(binary.BigEndian.Uint32(p))).UTC()
	}
}

// Lookup gives the value of a map's key; nil where there is none.
func (r Raw) Lookup(key string) Raw {
	for k, v := range r.pairs() {
		if string(k) == key {
			return v
		}
	}
	return nil
}

// Pairs ranges over a map's keys and values in their order.
func (r Raw) Pairs() iter.Seq2[string, Raw] {
	return func(yield func(string, Raw) bool) {
		for k, v := range r.pairs() {
			if !yield(string(k), v) {
				return
			}
		}
	}
}

func (r Raw) pairs() iter.Seq2[[]byte, Raw] {
	return func(yield func([]byte, Raw) bool) {
		h, ok := readHeader(r)
		if !ok || h.kind != KindMap {
			return
		}
		rest := r[h.size:]
		for range h.n {
			k, after := rest.next()
			v, end := after.next()
			key, ok := k.textBytes()
			if v == nil || !ok || !yield(key, v) {
				return
			}
			rest = end
		}
	}
}

// Items ranges over an array's elements.
func (r Raw) Items() iter.Seq[Raw] {
	return func(yield func(Raw) bool) {
		h, ok := readHeader(r)
		if !ok || h.kind != KindArray {
			return
		}
		rest := r[h.size:]
		for range h.n {
			v, after := rest.next()
			if v == nil || !yield(v) {
				return
			}
			rest = after
		}
	}
}

// next splits the first value off; nil where there is none.
func (r Raw) next() (value, rest Raw) {
	n := valueLen(r)
	if n == 0 {
		return nil, nil
	}
	return r[:n:n], r[n:]
}

// text gives a map's str field; "" where there is none.
func (r Raw) text(key string) string {
	return r.Lookup(key).stringValue()
}

func (r Raw) stringValue() string {
	s, _ := r.Text()
	return s
}

// preview gives a short form of the value for an error message.
func (r Raw) preview() string {
	switch h, p := r.payload(); h.kind {
	case KindString:
		return strconv.Quote(string(p[:min(len(p), 32)]))
	case KindInt, KindUint, KindFloat, KindBool:
		b, err := appendJSONValue(nil, r)
		if err == nil {
			return string(b)
		}
	}
	return r.Kind().String()
}
