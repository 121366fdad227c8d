package jsontext

import (
	"strconv"
	"unicode/utf8"
)

func decimal(n int) string { return strconv.Itoa(n) }

// str reads the string literal that begins at s.at.
func (s *scanner) str() (span, *Problem) {
	k := span{start: int32(s.at)}
	ascii := true
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			k.end = int32(s.at)
			if !ascii {
				return k, s.validText(k)
			}
			return k, nil
		case c == '\\':
			k.escaped = true
			if p := s.escape(); p != nil {
				return k, p
			}
		case c < ' ':
			return k, s.fail(Syntax, s.at, "raw control character in a string, written as an escape it is "+EscapeOf(c))
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return k, s.unfinished()
}

func (s *scanner) validText(k span) *Problem {
	text := s.text[k.start:k.end]
	if utf8.Valid(text) {
		return nil
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return s.fail(BadText, int(k.start)+i, "invalid UTF-8 in a string")
		}
		i += n
	}
	return nil
}

// escape reads the escape that begins at s.at and leaves s.at on its last byte.
func (s *scanner) escape() *Problem {
	s.at++
	if s.at == len(s.text) {
		return s.unfinished()
	}
	switch s.text[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		return s.unicode()
	}
	return s.fail(Syntax, s.at-1, "unknown escape in a string: a backslash before "+s.found())
}

func (s *scanner) unicode() *Problem {
	start := s.at - 1
	r, p := s.hex()
	if p != nil || r < 0xd800 || r > 0xdfff {
		return p
	}
	if r >= 0xdc00 {
		return s.fail(BadText, start, "half of a surrogate pair in a string")
	}
	rest := s.text[s.at+1:]
	if len(rest) == 0 || len(rest) == 1 && rest[0] == '\\' {
		s.at = len(s.text)
		return s.unfinished()
	}
	if rest[0] != '\\' || rest[1] != 'u' {
		return s.fail(BadText, start, "half of a surrogate pair in a string")
	}
	s.at += 2
	low, p := s.hex()
	if p == nil && (low < 0xdc00 || low > 0xdfff) {
		p = s.fail(BadText, start, "half of a surrogate pair in a string")
	}
	return p
}

// hex reads the four digits after the u at s.at.
func (s *scanner) hex() (rune, *Problem) {
	var r rune
	for range 4 {
		s.at++
		if s.at == len(s.text) {
			return 0, s.unfinished()
		}
		c := s.text[s.at]
		switch {
		case digit(c):
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.expected(`four hexadecimal digits after \u`)
		}
	}
	return r, nil
}

func (s *scanner) word(w string) *Problem {
	for i := range len(w) {
		if s.at+i == len(s.text) {
			s.at = len(s.text)
			return s.unfinished()
		}
		if s.text[s.at+i] != w[i] {
			return s.expected("a value")
		}
	}
	s.at += len(w)
	return nil
}

// number reads the literal at s.at and holds it to the limits.
func (s *scanner) number() *Problem {
	start, count := s.at, 0
	if s.text[s.at] == '-' {
		s.at++
	}
	first := s.at
	n, p := s.digits(&count)
	if p != nil {
		return p
	}
	if n > 1 && s.text[first] == '0' {
		return s.fail(Syntax, first, "a number begins with a needless 0")
	}
	if s.at < len(s.text) && s.text[s.at] == '.' {
		s.at++
		if _, p := s.digits(&count); p != nil {
			return p
		}
	}
	exponent, p := s.exponent(&count)
	switch {
	case p != nil:
		return p
	case exponent > s.limits.Exponent:
		return s.fail(BigNumber, start, "a number's exponent is beyond the limit of "+decimal(s.limits.Exponent))
	case count > s.limits.Digits:
		return s.fail(BigNumber, start, "a number has more digits than the limit of "+decimal(s.limits.Digits))
	}
	return nil
}

func (s *scanner) digits(count *int) (n int, p *Problem) {
	start := s.at
	for s.at < len(s.text) && digit(s.text[s.at]) {
		s.at++
	}
	n = s.at - start
	*count += n
	switch {
	case n > 0:
		return n, nil
	case s.at == len(s.text):
		return 0, s.unfinished()
	}
	return 0, s.expected("a digit")
}

// exponent gives the magnitude of the literal's exponent, capped.
func (s *scanner) exponent(count *int) (int, *Problem) {
	if s.at == len(s.text) || s.text[s.at]|0x20 != 'e' {
		return 0, nil
	}
	s.at++
	if s.at < len(s.text) && (s.text[s.at] == '+' || s.text[s.at] == '-') {
		s.at++
	}
	start := s.at
	if _, p := s.digits(count); p != nil {
		return 0, p
	}
	value := 0
	for _, c := range s.text[start:s.at] {
		if value = value*10 + int(c-'0'); value > maxText {
			value = maxText + 1
			break
		}
	}
	return value, nil
}

func (s *scanner) unfinished() *Problem {
	return s.fail(Unfinished, len(s.text), "the text ends before its JSON value does")
}

func (s *scanner) expected(what string) *Problem {
	if rest := s.text[s.at:]; !utf8.FullRune(rest) {
		return s.unfinished()
	} else if r, n := utf8.DecodeRune(rest); r == utf8.RuneError && n == 1 {
		return s.fail(BadText, s.at, "invalid UTF-8")
	}
	return s.fail(Syntax, s.at, "expected "+what+", found "+s.found())
}

// found shows what stands at s.at: a bare word whole, else one character.
func (s *scanner) found() string {
	rest := s.text[s.at:]
	n := 0
	for n < len(rest) && n < 16 && letter(rest[n]) {
		n++
	}
	if n > 0 {
		return string(rest[:n])
	}
	r, _ := utf8.DecodeRune(rest)
	return strconv.QuoteRune(r)
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// EscapeOf gives a control character as it is written in a JSON string.
func EscapeOf(c byte) string {
	switch c {
	case '\n':
		return `\n`
	case '\t':
		return `\t`
	case '\r':
		return `\r`
	}
	const hex = "0123456789abcdef"
	return `\u00` + string(hex[c>>4]) + string(hex[c&15])
}
