package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a JSON string, or a number taken as its literal; any other value is
// as if it were absent. Servers differ in what they make an id or a code.
type text []byte

// UnmarshalJSON never fails.
func (t *text) UnmarshalJSON(raw []byte) error {
	*t = nil
	switch c := raw[0]; {
	case c == '"':
		*t = unquote(raw)
	case c == '-', '0' <= c && c <= '9':
		*t = bytes.Clone(raw)
	}
	return nil
}

// String gives valid UTF-8.
func (t text) String() string { return strings.ToValidUTF8(string(t), "\uFFFD") }

// count is a whole number, also when written as a string or with a fraction of
// zero; known is false for anything else.
type count struct {
	value int64
	known bool
}

// UnmarshalJSON never fails.
func (c *count) UnmarshalJSON(raw []byte) error {
	*c = count{}
	literal := strings.Trim(string(raw), `"`)
	if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
		*c = count{n, true}
	} else if f, err := strconv.ParseFloat(literal, 64); err == nil && f == float64(int64(f)) {
		*c = count{int64(f), true}
	}
	return nil
}

// dollars is an amount of money as servers write it; anything else is none.
type dollars struct{ micros int64 }

// UnmarshalJSON never fails.
func (d *dollars) UnmarshalJSON(raw []byte) error {
	d.micros = 0
	if f, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64); err == nil && f > 0 && f < 1e6 {
		d.micros = int64(math.Round(f * 1e6))
	}
	return nil
}

// unquoted gives the text of a JSON string as valid UTF-8.
func unquoted(raw []byte) string { return strings.ToValidUTF8(string(unquote(raw)), "\uFFFD") }

// unquote gives the bytes of a JSON string that a decoder accepted. Unlike a
// decoder it changes nothing: bytes that are no UTF-8 stay as they are, and a
// surrogate escape becomes the three bytes that UTF-8 would give it, because
// the rest of the character may be in the next string.
func unquote(raw []byte) []byte {
	raw = raw[1 : len(raw)-1]
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 {
			return append(out, raw...)
		}
		out = append(out, raw[:at]...)
		out, raw = unescape(out, raw[at+1:])
	}
	return out
}

var escapes = [...]string{'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", '"': `"`, '\\': `\`, '/': "/"}

// unescape takes what follows a backslash.
func unescape(out, raw []byte) ([]byte, []byte) {
	if raw[0] != 'u' {
		return append(out, escapes[raw[0]]...), raw[1:]
	}
	n, _ := strconv.ParseUint(string(raw[1:5]), 16, 16) // the decoder saw four digits
	return appendUnit(out, rune(n)), raw[5:]
}

// appendUnit appends a rune or a surrogate.
func appendUnit(out []byte, r rune) []byte {
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r)
	}
	return append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
}

// surrogateAt reads a surrogate of appendUnit.
func surrogateAt(b []byte) (rune, bool) {
	if len(b) < 3 || b[0] != 0xED || b[1]&0xE0 != 0xA0 || b[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | rune(b[1]&0x3F)<<6 | rune(b[2]&0x3F), true
}

// joinPairs makes characters of surrogates that stand beside each other. It
// writes over b and gives what is left of it.
func joinPairs(b []byte) []byte {
	if bytes.IndexByte(b, 0xED) < 0 {
		return b
	}
	out := b[:0]
	for i := 0; i < len(b); {
		if high, ok := surrogateAt(b[i:]); ok {
			if low, ok := surrogateAt(b[i+3:]); ok {
				if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
					out, i = utf8.AppendRune(out, r), i+6
					continue
				}
			}
		}
		out, i = append(out, b[i]), i+1
	}
	return out
}

// pieces joins text that comes in pieces cut anywhere. The zero value is ready.
type pieces struct{ held []byte }

// add gives the text that is whole by now; what may go on is held back.
func (p *pieces) add(piece []byte) string {
	all := joinPairs(append(p.held, piece...))
	whole := len(all) - unfinished(all)
	out := strings.ToValidUTF8(string(all[:whole]), "\uFFFD")
	p.held = bytes.Clone(all[whole:])
	return out
}

// rest gives what was held back when nothing more comes.
func (p *pieces) rest() string {
	out := strings.ToValidUTF8(string(p.held), "\uFFFD")
	p.held = nil
	return out
}

// unfinished counts the bytes at the end that may be the beginning of a
// character: part of one, or the first of two surrogates.
func unfinished(b []byte) int {
	if n := len(b); n >= 3 {
		if high, ok := surrogateAt(b[n-3:]); ok && high < 0xDC00 {
			return 3
		}
	}
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// trim gives a JSON value without the space around it; null is as absent.
func trim(raw json.RawMessage) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return nil
	}
	return raw
}
