package frames

import "unicode/utf8"

// scanner walks a msgpack message once, without recursion, and checks all that
// reading relies on: lengths and counts against the bytes left, depth, number
// of values, string keys that are unique, UTF-8, no ext but the timestamp, no
// number that is none.
type scanner struct {
	walk
	// notFinite is the first NaN or infinity in the arguments or the result of
	// the frame, where it is not the message that is refused for it.
	notFinite *fault
	// payload is the key that notFinite stands under.
	payload string
}

// scanValue checks the value at s.pos and moves behind it. The header is the
// value's own.
func (s *scanner) scanValue() (header, *fault) {
	base := s.depth
	first, f := s.enter()
	if f != nil || s.depth == base {
		return first, f
	}
	for {
		if f := s.leave(base); f != nil || s.depth == base {
			return first, f
		}
		l := s.top()
		l.left--
		l.index++
		if l.isMap {
			if _, f := s.scanKey(); f != nil {
				return first, f
			}
		}
		if _, f := s.enter(); f != nil {
			return first, f
		}
	}
}

// leave closes every container above base that is complete.
func (s *scanner) leave(base int) *fault {
	for s.depth > base && s.top().left == 0 {
		if f := s.pop(); f != nil {
			return f
		}
	}
	return nil
}

// enter reads one value's header; a scalar is passed over, a container opened.
func (s *scanner) enter() (header, *fault) {
	h, ok := shortString(s.data[s.pos:])
	if !ok {
		if h, ok = readHeader(s.data[s.pos:]); !ok {
			return h, s.badHeader()
		}
	}
	if s.nodes++; s.nodes > MaxNodes {
		return h, s.tooMany()
	}
	left := len(s.data) - s.pos - h.size
	switch h.kind {
	case KindMap, KindArray:
		return h, s.open(h, left)
	case KindExt:
		return h, s.failExt(int8(s.data[s.pos+h.size-1]))
	}
	if h.n > left {
		return h, s.fail("%s of %d bytes, but only %d are left", h.kind, h.n, left)
	}
	if h.kind >= KindFloat {
		if f := s.checkScalar(h.kind, s.data[s.pos+h.size:s.pos+h.size+h.n]); f != nil {
			return h, f
		}
	}
	s.pos += h.size + h.n
	return h, nil
}

func (s *scanner) open(h header, left int) *fault {
	least := left // each value takes a byte, each pair two
	if h.kind == KindMap {
		least = left / 2
	}
	if h.n > least {
		return s.fail("%s of %d, but only %d bytes are left", h.kind, h.n, left)
	}
	if s.nodes+h.n > MaxNodes {
		return s.tooMany()
	}
	if f := s.push(h.kind == KindMap, h.n); f != nil {
		return f
	}
	if h.kind == KindMap {
		s.growKeys(h.n)
	}
	s.pos += h.size
	return nil
}

func (s *scanner) checkScalar(kind Kind, payload []byte) *fault {
	switch kind {
	case KindString:
		if !utf8.Valid(payload) {
			return s.fail("invalid UTF-8")
		}
	case KindFloat:
		if f := float(payload); !isFinite(f) {
			return s.failNumber(f)
		}
	case KindTime:
		if !spokenTime(payload) {
			return s.fail("timestamp out of range")
		}
	}
	return nil
}

// The years of a timestamp that RFC 3339 can write: 0 to 9999.
const (
	minSecond = -62167219200
	maxSecond = 253402300799
)

func spokenTime(payload []byte) bool {
	sec, nsec := timestamp(payload)
	return nsec < 1e9 && sec >= minSecond && sec <= maxSecond
}

// failNumber refuses NaN and the infinities. In arguments and results they are
// noted only: there the call fails, not the message.
func (s *scanner) failNumber(n float64) *fault {
	f := s.fail("%v is no number that JSON can say", n)
	if s.depth < 2 {
		return f
	}
	outer, inner := string(s.key(0)), string(s.key(1))
	if (outer != "content" && outer != "data") || (inner != "arguments" && inner != "result") {
		return f
	}
	if s.notFinite == nil {
		s.notFinite, s.payload = f, inner
	}
	return nil
}

// scanKey reads the key that stands before the next value of a map.
func (s *scanner) scanKey() (keyRef, *fault) {
	k, text, f := s.readKey()
	if f != nil {
		return k, f
	}
	return k, s.noteKey(k, text)
}

// readKey passes over a key, of which it checks that it is a string.
func (s *scanner) readKey() (k keyRef, text []byte, f *fault) {
	h, ok := shortString(s.data[s.pos:])
	if !ok {
		if h, ok = readHeader(s.data[s.pos:]); !ok {
			return k, nil, s.badHeader()
		}
	}
	start := s.pos + h.size
	switch {
	case h.kind != KindString:
		return k, nil, s.failKey("key is %s, want a string", h.kind)
	case h.n > len(s.data)-start:
		return k, nil, s.failKey("key of %d bytes, but only %d are left", h.n, len(s.data)-start)
	}
	s.pos = start + h.n
	return keyRef{uint32(start), uint32(h.n)}, s.data[start:s.pos], nil
}

// noteKey checks what readKey does not.
func (s *scanner) noteKey(k keyRef, text []byte) *fault {
	if !utf8.Valid(text) {
		s.pos = int(k.off)
		return s.failKey("invalid UTF-8 in a key")
	}
	return s.addKey(k, text)
}

// shortString is readHeader for strings of less than 32 bytes, which most keys
// and many values are.
func shortString(b []byte) (header, bool) {
	if len(b) == 0 || b[0]&0xe0 != 0xa0 {
		return header{}, false
	}
	return header{KindString, 1, int(b[0] & 0x1f)}, true
}

func (s *scanner) badHeader() *fault {
	switch {
	case s.pos >= len(s.data):
		return s.fail("cut off")
	case s.data[s.pos] == 0xc1:
		return s.fail("byte c1 begins no value")
	}
	return s.fail("cut off inside a header")
}

func (s *scanner) failExt(t int8) *fault {
	switch t {
	case 0x72:
		return s.fail("ext type 114 is a msgpackr record: pack with useRecords: false")
	case 0:
		return s.fail("ext type 0 is msgpackr's undefined: leave the key out")
	case timestampExt:
		return s.fail("timestamp of a wrong length")
	}
	return s.fail("ext type %d is not spoken, only the timestamp (-1) is", t)
}
