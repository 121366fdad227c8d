package argstream

import (
	"unicode/utf16"
	"unicode/utf8"
)

// str reads a string with its quotes. Every byte must be text: valid UTF-8, no
// raw control character, and \u escapes of surrogates in pairs only.
func (s *scanner) str() ([]byte, *fault) {
	start := s.pos
	s.pos++
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.text[start:s.pos], nil
		case c == '\\':
			if f := s.escape(); f != nil {
				return nil, f
			}
		case c < 0x20:
			return nil, s.fail(ReasonInvalid, "raw control character 0x%02x in a string", c)
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.text[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.notText()
			}
			s.pos += size
		}
	}
	return nil, s.cut("a string")
}

func (s *scanner) escape() *fault {
	if s.pos+1 == len(s.text) {
		return s.cut("a string")
	}
	switch c := s.text[s.pos+1]; c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
		return s.unicode()
	default:
		return s.fail(ReasonInvalid, "escape %q does not exist", s.text[s.pos:s.pos+2])
	}
}

// unicode reads \uXXXX, or a surrogate pair of two of them.
func (s *scanner) unicode() *fault {
	start := s.pos
	high, f := s.hex()
	if f != nil || !utf16.IsSurrogate(high) {
		return f
	}
	if rest := s.text[s.pos:]; len(rest) == 0 || len(rest) == 1 && rest[0] == '\\' {
		return s.cut("a string")
	}
	if s.text[s.pos] == '\\' && s.text[s.pos+1] == 'u' {
		low, f := s.hex()
		if f != nil {
			return f
		}
		if utf16.DecodeRune(high, low) != utf8.RuneError {
			return nil
		}
	}
	s.pos = start
	return s.fail(ReasonUTF8, "lone surrogate escape \\u%04x", high)
}

// hex reads the six bytes of \uXXXX.
func (s *scanner) hex() (rune, *fault) {
	var r rune
	for i := s.pos + 2; i < s.pos+6; i++ {
		if i >= len(s.text) {
			return 0, s.cut("a string")
		}
		digit, ok := hexDigit(s.text[i])
		if !ok {
			return 0, s.fail(ReasonInvalid, "escape \\u needs four hexadecimal digits")
		}
		r = r<<4 | digit
	}
	s.pos += 6
	return r, nil
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case isDigit(c):
		return rune(c - '0'), true
	case 'a' <= c && c <= 'f':
		return rune(c - 'a' + 10), true
	case 'A' <= c && c <= 'F':
		return rune(c - 'A' + 10), true
	}
	return 0, false
}

// number reads a literal by the grammar of JSON and holds it to the limits.
func (s *scanner) number() *fault {
	start := s.pos
	s.accept('-')
	whole := s.digits()
	if whole == 0 {
		return s.numberEnds("a digit")
	}
	if whole > 1 && s.text[s.pos-whole] == '0' {
		s.pos = start
		return s.fail(ReasonInvalid, "a number with a leading zero")
	}
	if s.accept('.') && s.digits() == 0 {
		return s.numberEnds("a digit")
	}
	if s.accept('e') || s.accept('E') {
		if f := s.exponent(start); f != nil {
			return f
		}
	}
	if s.pos-start > MaxDigits {
		s.pos = start
		return s.fail(ReasonLimit, "a number of more than %d digits", MaxDigits)
	}
	return nil
}

func (s *scanner) exponent(start int) *fault {
	if !s.accept('+') {
		s.accept('-')
	}
	size := s.digits()
	if size == 0 {
		return s.numberEnds("a digit")
	}
	value := 0
	for _, c := range s.text[s.pos-size : s.pos] {
		if value = value*10 + int(c-'0'); value > MaxExponent {
			s.pos = start
			return s.fail(ReasonLimit, "a number with an exponent over %d", MaxExponent)
		}
	}
	return nil
}

func (s *scanner) numberEnds(want string) *fault {
	if s.pos == len(s.text) {
		return s.cut("a number")
	}
	return s.unexpected(want)
}

func (s *scanner) accept(c byte) bool {
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.text) && isDigit(s.text[s.pos]) {
		s.pos++
	}
	return s.pos - start
}
