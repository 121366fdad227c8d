package frames

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a message, msgpack and JSON alike.
const (
	// MaxDepth is how deep maps and arrays may nest.
	MaxDepth = 64
	// MaxNodes is how many values one message may hold.
	MaxNodes = 1 << 16
	// MaxInline is the most that arguments, a result or a request may hold
	// inline, whatever the server allows; see [InlineLimit].
	MaxInline = 4 << 20
)

// InlineLimit gives how many bytes of arguments, result or request travel
// inline on a server with that max_payload.
func InlineLimit(maxPayload int64) int {
	return int(min(MaxInline, maxPayload/2))
}

// scanner walks a message once, without recursion, and checks all that Decode
// relies on: lengths and counts against the bytes left, depth, number of
// values, string keys that are unique, UTF-8, no ext but the timestamp.
type scanner struct {
	data  []byte
	pos   int
	nodes int
	depth int
	stack [MaxDepth]level
	keys  []keyRef
}

// level is one open map or array.
type level struct {
	left  int // values still to come
	isMap bool
	first int // of the map's keys in scanner.keys
	index int // of the array's element that is being read
}

type keyRef struct{ off, n int }

// scanValue checks the value at s.pos and moves behind it.
func (s *scanner) scanValue() *Error {
	for {
		if err := s.enter(); err != nil {
			return err
		}
		if err := s.leave(); err != nil || s.depth == 0 {
			return err
		}
		if err := s.key(); err != nil {
			return err
		}
	}
}

// enter reads one value's header; a scalar is passed over, a container opened.
func (s *scanner) enter() *Error {
	h, ok := readHeader(s.data[s.pos:])
	if !ok {
		return s.badHeader()
	}
	if s.nodes++; s.nodes > MaxNodes {
		return s.fail("more than %d values", MaxNodes)
	}
	left := len(s.data) - s.pos - h.size
	switch h.kind {
	case KindMap:
		return s.open(h, 2*h.n, left, true)
	case KindArray:
		return s.open(h, h.n, left, false)
	case KindExt:
		return s.failExt(int8(s.data[s.pos+h.size-1]))
	}
	if h.n > left {
		return s.fail("%s of %d bytes, but only %d are left", h.kind, h.n, left)
	}
	if h.kind == KindString && !utf8.Valid(s.data[s.pos+h.size:s.pos+h.size+h.n]) {
		return s.fail("invalid UTF-8")
	}
	s.pos += h.size + h.n
	return nil
}

func (s *scanner) open(h header, values, left int, isMap bool) *Error {
	if values > left {
		return s.fail("%s of %d, but only %d bytes are left", h.kind, h.n, left)
	}
	if s.depth == MaxDepth {
		return s.fail("nested deeper than %d", MaxDepth)
	}
	s.pos += h.size
	s.stack[s.depth] = level{left: h.n, isMap: isMap, first: len(s.keys), index: -1}
	s.depth++
	return nil
}

// leave closes every container that is complete.
func (s *scanner) leave() *Error {
	for s.depth > 0 {
		l := &s.stack[s.depth-1]
		if l.left > 0 {
			l.left--
			l.index++
			return nil
		}
		if l.isMap {
			if err := s.checkUnique(l.first); err != nil {
				return err
			}
			s.keys = s.keys[:l.first]
		}
		s.depth--
	}
	return nil
}

// key reads the key that stands before the next value of a map.
func (s *scanner) key() *Error {
	l := &s.stack[s.depth-1]
	if !l.isMap {
		return nil
	}
	h, ok := readHeader(s.data[s.pos:])
	if !ok {
		return s.badHeader()
	}
	if h.kind != KindString {
		return s.fail("key is %s, want a string", h.kind)
	}
	start := s.pos + h.size
	if h.n > len(s.data)-start {
		return s.fail("key of %d bytes, but only %d are left", h.n, len(s.data)-start)
	}
	if !utf8.Valid(s.data[start : start+h.n]) {
		return s.fail("invalid UTF-8 in a key")
	}
	s.keys = append(s.keys, keyRef{start, h.n})
	s.pos = start + h.n
	return nil
}

// checkUnique looks for a key that stands twice among those from first on.
func (s *scanner) checkUnique(first int) *Error {
	keys := s.keys[first:]
	if len(keys) > 12 {
		slices.SortFunc(keys, func(a, b keyRef) int {
			return cmp.Or(bytes.Compare(s.bytesOf(a), s.bytesOf(b)), a.off-b.off)
		})
		for i := 1; i < len(keys); i++ {
			if bytes.Equal(s.bytesOf(keys[i-1]), s.bytesOf(keys[i])) {
				return s.failKey(keys[i])
			}
		}
		return nil
	}
	for i, k := range keys {
		for _, other := range keys[:i] {
			if k.n == other.n && bytes.Equal(s.bytesOf(k), s.bytesOf(other)) {
				return s.failKey(k)
			}
		}
	}
	return nil
}

func (s *scanner) bytesOf(k keyRef) []byte { return s.data[k.off : k.off+k.n] }

func (s *scanner) failKey(k keyRef) *Error {
	s.pos = k.off
	return s.fail("duplicate key %s", strconv.Quote(shorten(string(s.bytesOf(k)))))
}

func (s *scanner) badHeader() *Error {
	if s.pos >= len(s.data) {
		return s.fail("cut off")
	}
	if s.data[s.pos] == 0xc1 {
		return s.fail("byte c1 begins no value")
	}
	return s.fail("cut off inside a header")
}

func (s *scanner) failExt(t int8) *Error {
	switch t {
	case 0x72:
		return s.fail("ext type 114 is a msgpackr record: pack with useRecords: false")
	case 0:
		return s.fail("ext type 0 is msgpackr's undefined: leave the key out")
	case -1:
		return s.fail("timestamp of a wrong length")
	}
	return s.fail("ext type %d is not spoken, only the timestamp (-1) is", t)
}

func (s *scanner) fail(format string, args ...any) *Error {
	return badFrame(s.pos, s.path(), fmt.Sprintf(format, args...))
}

// path gives the JSON Pointer of the value that is being read.
func (s *scanner) path() string {
	var b strings.Builder
	for i := range s.depth {
		l := s.stack[i]
		b.WriteByte('/')
		switch end := s.keyEnd(i); {
		case !l.isMap:
			b.WriteString(strconv.Itoa(max(l.index, 0)))
		case end > l.first:
			b.WriteString(pointerEscape(shorten(string(s.bytesOf(s.keys[end-1])))))
		}
	}
	return b.String()
}

// keyEnd gives where the keys of the open level i end in s.keys.
func (s *scanner) keyEnd(i int) int {
	if i+1 < s.depth {
		return s.stack[i+1].first
	}
	return len(s.keys)
}

// badFrame makes the one error of unreadable messages: where, and why.
func badFrame(offset int, path, why string) *Error {
	e := NewError(CodeBadFrame, "unreadable frame at byte %d%s: %s", offset, at(path), why)
	e.Issues = []Issue{{Path: path, Message: why}}
	return e
}

func at(path string) string {
	if path == "" {
		return ""
	}
	return " (" + path + ")"
}

func pointerEscape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// shorten bounds a text that goes into an error message, on a rune's border.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
