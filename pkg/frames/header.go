package frames

import (
	"encoding/binary"
	"math"
)

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
	return readLongHeader(b)
}

func readLongHeader(b []byte) (h header, ok bool) {
	f := formats[b[0]-0xc0]
	h = header{f.kind, 1 + int(f.lenBytes) + int(f.extra), int(f.n)}
	if f.kind == KindAbsent || len(b) < h.size {
		return header{}, false
	}
	if f.lenBytes > 0 {
		h.n = readLength(b[1:], f.lenBytes)
	}
	if h.kind == KindExt && int8(b[h.size-1]) == timestampExt && (h.n == 4 || h.n == 8 || h.n == 12) {
		h.kind = KindTime
	}
	return h, true
}

// timestampExt is the ext type of a timestamp, the only one that is spoken.
const timestampExt = -1

// format describes one of the first bytes 0xc0 … 0xdf: the length of the
// length field, or the fixed payload length, and one extra byte for an ext type.
type format struct {
	kind               Kind
	lenBytes, extra, n uint8
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

// readLength gives a length field's value. One that no message can hold
// becomes math.MaxInt32, which every check against the bytes left refuses.
func readLength(b []byte, size uint8) int {
	switch size {
	case 1:
		return int(b[0])
	case 2:
		return int(binary.BigEndian.Uint16(b))
	default:
		return int(min(binary.BigEndian.Uint32(b), math.MaxInt32))
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
		left := len(b) - pos
		switch {
		case h.n > left:
			return 0
		case h.kind == KindMap:
			todo += 2 * h.n
		case h.kind == KindArray:
			todo += h.n
		default:
			pos += h.n
		}
		if todo-1 > left {
			return 0
		}
	}
	return pos
}
