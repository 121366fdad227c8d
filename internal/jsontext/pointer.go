package jsontext

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxPath is the longest path a [Problem] has, in bytes.
const MaxPath = 1024

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer gives the JSON Pointer (RFC 6901) of the tokens; none is the root, "".
func Pointer(tokens ...string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		_, _ = escaper.WriteString(&b, t)
	}
	return b.String()
}

// Clip cuts s to at most limit bytes, on a rune border; what was cut ends in "…".
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := max(0, limit-len("…"))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Unquote decodes a JSON string literal, quotes included. For a raw that is no
// literal it gives "".
func Unquote(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// path is the pointer of the value that the scanner reads.
func (s *scanner) path() string {
	var b strings.Builder
	for _, l := range s.levels[:s.depth] {
		switch {
		case !l.object:
			b.WriteString("/" + strconv.Itoa(int(l.index)))
		case l.key.end > 0:
			b.WriteString(Pointer(s.keyText(l.key)))
		}
		if b.Len() > MaxPath {
			break
		}
	}
	return Clip(b.String(), MaxPath)
}

// keyText decodes a key; a huge one only as far as a path shows it.
func (s *scanner) keyText(k span) string {
	raw := s.text[k.start:k.end]
	if len(raw) > 6*MaxPath {
		return strings.ToValidUTF8(string(raw[1:6*MaxPath]), "\uFFFD")
	}
	return Unquote(raw)
}
