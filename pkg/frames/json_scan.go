package frames

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonScanner holds a JSON text to the rules of the msgpack scan, and to the
// JSON grammar, in one pass without recursion.
type jsonScanner struct {
	walk
	// counts holds the number of elements or pairs of each container, in the
	// order in which they open; open gives each open one's place in it.
	counts []uint32
	open   [MaxDepth]uint32
	// size is at most how long the values are in msgpack.
	size int
}

func newJSONScanner(data []byte) *jsonScanner {
	return &jsonScanner{walk: walk{data: data}}
}

// CheckJSON holds one JSON value to the rules of a message: the grammar, UTF-8
// without lone surrogates, unique keys, [MaxDepth], [MaxNodes], numbers that
// float64 can hold at least roughly, of at most 1,024 characters. The error is
// BAD_FRAME with place and reason.
func CheckJSON(text []byte) error {
	if f := newJSONScanner(text).scanText(); f != nil {
		return f.err()
	}
	return nil
}

// scanText checks a text of exactly one value.
func (s *jsonScanner) scanText() *fault {
	if f := s.checkText(); f != nil {
		return f
	}
	if f := s.scanValue(); f != nil {
		return f
	}
	if s.space(); s.pos < len(s.data) {
		return s.fail("more than one JSON value")
	}
	return nil
}

// scanFrames checks a message and gives where its frames begin.
func (s *jsonScanner) scanFrames() (starts []int, f *fault) {
	if f := s.checkText(); f != nil {
		return nil, f
	}
	for s.space(); s.pos < len(s.data); s.space() {
		switch {
		case len(starts) == MaxFrames:
			return nil, s.fail("more than %d frames", MaxFrames)
		case s.data[s.pos] != '{':
			return nil, s.fail("a frame is an object, not %s", s.here())
		}
		starts = append(starts, s.pos)
		if f := s.scanValue(); f != nil {
			return nil, f
		}
	}
	return starts, nil
}

func (s *jsonScanner) checkText() *fault {
	if f := checkSize(s.data); f != nil {
		return f
	}
	if utf8.Valid(s.data) {
		return nil
	}
	for {
		r, n := utf8.DecodeRune(s.data[s.pos:])
		if r == utf8.RuneError && n < 2 {
			return s.fail("invalid UTF-8")
		}
		s.pos += n
	}
}

// scanValue checks the value that comes next and moves behind it.
func (s *jsonScanner) scanValue() *fault {
	base := s.depth
	for {
		if f := s.enter(); f != nil {
			return f
		}
		if f := s.leave(base); f != nil || s.depth == base {
			return f
		}
	}
}

// enter reads one scalar, or opens a container.
func (s *jsonScanner) enter() *fault {
	if s.space(); s.pos >= len(s.data) {
		return s.broken("cut off")
	}
	if s.nodes++; s.nodes > MaxNodes {
		return s.tooMany()
	}
	switch c := s.data[s.pos]; c {
	case '{', '[':
		return s.openContainer(c == '{')
	case '"':
		_, f := s.str()
		return f
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *jsonScanner) openContainer(isMap bool) *fault {
	if f := s.push(isMap, 0); f != nil {
		return f
	}
	if len(s.counts) == cap(s.counts) {
		s.growCounts()
	}
	s.open[s.depth-1] = uint32(len(s.counts))
	s.counts = append(s.counts, 0)
	s.pos++
	return nil
}

// growCounts makes room for some containers, then for all that may still come.
func (s *jsonScanner) growCounts() {
	more := 16
	if len(s.counts) >= more {
		rest := s.data[s.pos:]
		more = min(bytes.Count(rest, []byte{'{'})+bytes.Count(rest, []byte{'['}), MaxNodes-len(s.counts))
	}
	s.counts = slices.Grow(s.counts, more)
}

// leave closes every container above base that ends here, and moves to the
// next value of the innermost one that does not.
func (s *jsonScanner) leave(base int) *fault {
	for s.depth > base {
		l := s.top()
		if s.space(); s.pos >= len(s.data) {
			return s.broken("cut off")
		}
		c := s.data[s.pos]
		if (l.isMap && c == '}') || (!l.isMap && c == ']') {
			s.pos++
			s.counts[s.open[s.depth-1]] = l.index
			s.size += packedHeader(int(l.index), 16)
			if f := s.pop(); f != nil {
				return f
			}
			continue
		}
		return s.nextValue(l, c)
	}
	return nil
}

func (s *jsonScanner) nextValue(l *level, c byte) *fault {
	if l.index > 0 {
		if c != ',' {
			return s.broken("%s instead of a comma", s.here())
		}
		s.pos++
	}
	l.index++
	if l.isMap {
		return s.key()
	}
	return nil
}

func (s *jsonScanner) key() *fault {
	if s.space(); s.pos >= len(s.data) || s.data[s.pos] != '"' {
		return s.brokenKey("%s instead of a key", s.here())
	}
	start := s.pos + 1
	escaped, f := s.str()
	if f != nil {
		return f
	}
	k := keyRef{uint32(start), uint32(s.pos - 1 - start)}
	if escaped {
		k.off = uint32(len(s.data) + len(s.unescaped))
		s.unescaped = appendUnescaped(s.unescaped, s.data[start:s.pos-1])
		k.n = uint32(len(s.data)+len(s.unescaped)) - k.off
	}
	if f := s.addKey(k, s.text(k)); f != nil {
		return f
	}
	if s.space(); s.pos >= len(s.data) || s.data[s.pos] != ':' {
		return s.broken("%s instead of a colon", s.here())
	}
	s.pos++
	return nil
}

func (s *jsonScanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

func (s *jsonScanner) literal(word string) *fault {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.broken("%s begins no value", s.here())
	}
	s.pos += len(word)
	s.size++
	return nil
}

// str passes over a string and tells whether it has escapes.
func (s *jsonScanner) str() (escaped bool, f *fault) {
	start := s.pos
	for s.pos++; s.pos < len(s.data); {
		switch c := s.data[s.pos]; {
		case c == '"':
			n := s.pos - start - 1
			s.size += packedHeader(n, 32) + n
			s.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			if f := s.escape(); f != nil {
				return true, f
			}
		case c < 0x20:
			return escaped, s.broken("control character %02x in a string", c)
		default:
			s.pos++
		}
	}
	s.pos = start
	return escaped, s.broken("a string that does not end")
}

func (s *jsonScanner) escape() *fault {
	rest := s.data[s.pos:]
	if len(rest) > 1 && rest[1] == 'u' {
		return s.unicodeEscape(rest)
	}
	if len(rest) < 2 || strings.IndexByte(`"\/bfnrt`, rest[1]) < 0 {
		return s.broken("unknown escape in a string")
	}
	s.pos += 2
	return nil
}

func (s *jsonScanner) unicodeEscape(rest []byte) *fault {
	r, ok := hex4(rest)
	switch {
	case !ok:
		return s.broken("unknown escape in a string")
	case r < 0xd800 || r > 0xdfff:
		s.pos += 6
		return nil
	case r < 0xdc00:
		if low, ok := hex4(rest[6:]); ok && low >= 0xdc00 && low <= 0xdfff {
			s.pos += 12
			return nil
		}
	}
	return s.fail("lone surrogate %s in a string", rest[:6])
}

// hex4 reads \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n := rune(0)
	for _, c := range b[2:6] {
		d := strings.IndexByte("0123456789abcdef", c|0x20)
		if d < 0 || (c < '0') {
			return 0, false
		}
		n = n<<4 | rune(d)
	}
	return n, true
}

// here shows the byte at s.pos for an error message.
func (s *jsonScanner) here() string {
	if s.pos >= len(s.data) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(s.data[s.pos:])
	return strconv.QuoteRune(r)
}

func (s *jsonScanner) broken(format string, args ...any) *fault {
	return s.fail("broken JSON: "+format, args...)
}

func (s *jsonScanner) brokenKey(format string, args ...any) *fault {
	return s.failKey("broken JSON: "+format, args...)
}
