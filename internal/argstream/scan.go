package argstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// scanner reads JSON strictly in one pass. It recurses at most MaxDepth deep
// and allocates for the keys of open objects only.
type scanner struct {
	text []byte
	pos  int
}

func (s *scanner) fail(reason, what string, args ...any) *fault {
	return &fault{reason: reason, what: fmt.Sprintf(what, args...), at: s.pos}
}

// cut is the fault of a text that ends too early.
func (s *scanner) cut(inside string) *fault {
	s.pos = len(s.text)
	return s.fail(ReasonTruncated, "the text ends inside %s", inside)
}

func (s *scanner) unexpected(want string) *fault {
	r, size := utf8.DecodeRune(s.text[s.pos:])
	if r == utf8.RuneError && size <= 1 {
		return s.notText()
	}
	return s.fail(ReasonInvalid, "%q where %s should be", r, want)
}

// notText is the fault of bytes that are no UTF-8: cut off if they are the
// beginning of a rune at the end of the text, else wrong.
func (s *scanner) notText() *fault {
	if !utf8.FullRune(s.text[s.pos:]) {
		return s.cut("a character")
	}
	return s.fail(ReasonUTF8, "byte 0x%02x is not valid UTF-8", s.text[s.pos])
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// next skips space and gives the byte there; false at the end.
func (s *scanner) next() (byte, bool) {
	s.space()
	if s.pos == len(s.text) {
		return 0, false
	}
	return s.text[s.pos], true
}

func (s *scanner) document() *fault {
	first, _ := s.next()
	start := s.pos
	if f := s.value(1); f != nil {
		return f
	}
	if _, more := s.next(); more {
		return s.fail(ReasonInvalid, "more than one JSON value: text after the first one")
	}
	if first != '{' {
		s.pos = start
		return s.fail(ReasonNotObject, "%s where a JSON object should be", kindOf(first))
	}
	return nil
}

func kindOf(first byte) string {
	switch first {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func (s *scanner) value(depth int) *fault {
	c, ok := s.next()
	switch {
	case !ok:
		return s.cut("the value")
	case depth > MaxDepth && (c == '{' || c == '['):
		return s.fail(ReasonLimit, "nested deeper than %d", MaxDepth)
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.array(depth)
	case c == '"':
		_, f := s.str()
		return f
	case c == '-' || isDigit(c):
		return s.number()
	}
	return s.literal()
}

func (s *scanner) literal() *fault {
	for _, word := range []string{"true", "false", "null"} {
		rest := s.text[s.pos:]
		if len(rest) >= len(word) && string(rest[:len(word)]) == word {
			s.pos += len(word)
			return nil
		}
		if len(rest) < len(word) && word[:len(rest)] == string(rest) {
			return s.cut(word)
		}
	}
	return s.unexpected("a JSON value")
}

func (s *scanner) object(depth int) *fault {
	s.pos++
	keys := keySet{}
	for first := true; ; first = false {
		c, ok := s.next()
		switch {
		case !ok:
			return s.cut("an object")
		case c == '}' && first:
			s.pos++
			return nil
		case c != '"':
			return s.unexpected("a key")
		}
		if f := s.member(depth, &keys); f != nil {
			return f
		}
		if done, f := s.separator('}', "an object"); done || f != nil {
			return f
		}
	}
}

func (s *scanner) member(depth int, keys *keySet) *fault {
	at := s.pos
	raw, f := s.str()
	if f != nil {
		return f
	}
	if key := unquote(raw); !keys.add(key) {
		s.pos = at
		return s.fail(ReasonDuplicate, "duplicate key %s", bounded(key))
	}
	c, ok := s.next()
	switch {
	case !ok:
		return s.cut("an object")
	case c != ':':
		return s.unexpected("a colon")
	}
	s.pos++
	return s.value(depth + 1)
}

func (s *scanner) array(depth int) *fault {
	s.pos++
	if c, ok := s.next(); ok && c == ']' {
		s.pos++
		return nil
	}
	for {
		if _, ok := s.next(); !ok {
			return s.cut("an array")
		}
		if f := s.value(depth + 1); f != nil {
			return f
		}
		if done, f := s.separator(']', "an array"); done || f != nil {
			return f
		}
	}
}

// separator reads a comma, or the end of an object or array.
func (s *scanner) separator(end byte, inside string) (done bool, f *fault) {
	c, ok := s.next()
	switch {
	case !ok:
		return false, s.cut(inside)
	case c == end:
		s.pos++
		return true, nil
	case c != ',':
		return false, s.unexpected("a comma or " + fmt.Sprintf("%q", end))
	}
	s.pos++
	return false, nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// keySet tells whether a key of an object was seen before. Small objects need
// no map.
type keySet struct {
	few  []string
	many map[string]struct{}
}

func (k *keySet) add(key string) bool {
	const small = 8
	if k.many == nil && len(k.few) < small {
		if slices.Contains(k.few, key) {
			return false
		}
		k.few = append(k.few, key)
		return true
	}
	if k.many == nil {
		k.many = make(map[string]struct{}, 2*small)
		for _, seen := range k.few {
			k.many[seen] = struct{}{}
		}
	}
	_, seen := k.many[key]
	k.many[key] = struct{}{}
	return !seen
}

// unquote decodes a string that str accepted.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var key string
	if err := json.Unmarshal(raw, &key); err != nil {
		return string(raw)
	}
	return key
}

func bounded(key string) string {
	const most = 64
	if len(key) > most {
		key = string([]rune(key[:most])) + "…"
	}
	return fmt.Sprintf("%q", key)
}
