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
	if !ok || h.kind == KindArray || h.kind == KindMap || h.n > len(r)-h.size {
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
		if u > math.MaxInt64 {
			return 0, false
		}
		return int64(u), true
	case KindFloat:
		f := float(p)
		if f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
			return 0, false
		}
		return int64(f), true
	}
	return 0, false
}

// Uint64 gives a number in any numeric form that is whole, fits and is not negative.
func (r Raw) Uint64() (uint64, bool) {
	h, p := r.payload()
	switch h.kind {
	case KindInt:
		i := r.signed(p)
		return uint64(max(i, 0)), i >= 0
	case KindUint:
		return r.unsigned(p), true
	case KindFloat:
		f := float(p)
		if f != math.Trunc(f) || f < 0 || f >= 1<<64 {
			return 0, false
		}
		return uint64(f), true
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

// Time gives a timestamp, in UTC.
func (r Raw) Time() (time.Time, bool) {
	h, p := r.payload()
	if h.kind != KindTime {
		return time.Time{}, false
	}
	sec, nsec := timestamp(p)
	return time.Unix(sec, nsec).UTC(), true
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

func isFinite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// timestamp reads the payload of a timestamp: 4, 8 or 12 bytes.
func timestamp(p []byte) (sec, nsec int64) {
	switch len(p) {
	case 4:
		return int64(binary.BigEndian.Uint32(p)), 0
	case 8:
		v := binary.BigEndian.Uint64(p)
		return int64(v & (1<<34 - 1)), int64(v >> 34)
	default:
		return int64(binary.BigEndian.Uint64(p[4:])), int64(binary.BigEndian.Uint32(p))
	}
}

// Lookup gives the value of a map's key; nil where there is none.
func (r Raw) Lookup(key string) Raw {
	for c := r.pairs(); c.next(); {
		if string(c.key) == key {
			return c.value
		}
	}
	return nil
}

// Pairs ranges over a map's keys and values in their order.
func (r Raw) Pairs() iter.Seq2[string, Raw] {
	return func(yield func(string, Raw) bool) {
		for c := r.pairs(); c.next(); {
			if !yield(string(c.key), c.value) {
				return
			}
		}
	}
}

// Fields gives a map's keys and values in their order; nil for other values.
func (r Raw) Fields() Fields {
	var fs Fields
	for k, v := range r.Pairs() {
		fs = append(fs, Field{k, v})
	}
	return fs
}

// Items ranges over an array's elements.
func (r Raw) Items() iter.Seq[Raw] {
	return func(yield func(Raw) bool) {
		for c := r.items(); c.next(); {
			if !yield(c.value) {
				return
			}
		}
	}
}

// cursor walks the elements of an array or the pairs of a map.
type cursor struct {
	data  Raw
	pos   int
	left  int
	isMap bool
	key   []byte
	// keyAt is where the key's text begins in data.
	keyAt int
	value Raw
}

func (r Raw) pairs() cursor { return r.walk(KindMap) }
func (r Raw) items() cursor { return r.walk(KindArray) }

func (r Raw) walk(kind Kind) cursor {
	h, ok := readHeader(r)
	if !ok || h.kind != kind {
		return cursor{}
	}
	return cursor{data: r, pos: h.size, left: h.n, isMap: kind == KindMap}
}

// next moves on to the next element or pair; false at the end or where the
// bytes are unreadable.
func (c *cursor) next() bool {
	if c.left == 0 {
		return false
	}
	c.left--
	if c.isMap && !c.nextKey() {
		return false
	}
	n := valueLen(c.data[c.pos:])
	c.value = c.data[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return n > 0
}

func (c *cursor) nextKey() bool {
	rest := c.data[c.pos:]
	key, ok := rest.textBytes()
	if !ok {
		return false
	}
	h, _ := readHeader(rest)
	c.key, c.keyAt = key, c.pos+h.size
	c.pos += h.size + h.n
	return true
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
		return strconv.Quote(shorten(string(p[:min(len(p), 256)])))
	case KindInt, KindUint, KindFloat, KindBool:
		w := jsonWriter{}
		if w.value(r, hintNone) == nil {
			return string(w.b)
		}
		return strconv.FormatFloat(float(p), 'g', -1, 64)
	}
	return r.Kind().String()
}
