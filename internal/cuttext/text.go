package cuttext

import (
	"encoding/json"
	"unicode/utf8"
)

// Text is a text that is cut and read in parts.
type Text struct {
	s    string
	json bool
}

// New takes a text; one that is a JSON value is read as JSON.
func New(s string) Text { return Text{s, looksJSON(s) && json.Valid([]byte(s))} }

func looksJSON(s string) bool { return s != "" && (s[0] == '{' || s[0] == '[' || s[0] == '"') }

// String gives the whole text.
func (t Text) String() string { return t.s }

// Len gives the text's bytes.
func (t Text) Len() int { return len(t.s) }

// Lines counts the text's lines.
func (t Text) Lines() int { return t.lines(0, len(t.s)) }

// unit gives the length of the character at i, and whether it ends a line. A bad
// byte is a character of its own.
func (t Text) unit(i int) (n int, border bool) {
	switch c := t.s[i]; {
	case c == '\n':
		return 1, true
	case c == '\\' && t.json:
		return t.escape(i)
	case c < utf8.RuneSelf:
		return 1, false
	}
	_, n = utf8.DecodeRuneInString(t.s[i:])
	return n, false
}

// escape is unit for an escape of a valid JSON text. Both halves of a surrogate
// pair are one character.
func (t Text) escape(i int) (n int, border bool) {
	const short, long = len(`\n`), len(`\u0000`)
	if t.s[i+1] != 'u' {
		return short, t.s[i+1] == 'n'
	}
	if t.surrogate(i, "89abAB") && t.surrogate(i+long, "cdefCDEF") {
		return 2 * long, false
	}
	return long, false
}

// surrogate reports whether at i stands \ud and one of the digits.
func (t Text) surrogate(i int, digits string) bool {
	if len(t.s) < i+6 || t.s[i] != '\\' || t.s[i+1] != 'u' || t.s[i+2]|0x20 != 'd' {
		return false
	}
	for k := range len(digits) {
		if t.s[i+3] == digits[k] {
			return true
		}
	}
	return false
}

// lines counts the lines from one place to another.
func (t Text) lines(from, to int) int {
	count, open := 0, false
	for i := from; i < to; {
		n, border := t.unit(i)
		i += n
		if open = !border; border {
			count++
		}
	}
	if open {
		count++
	}
	return count
}

// align gives the first place at or behind i that is between characters.
func (t Text) align(i int) int {
	at := 0
	if !t.json { // a rune's start can be seen
		for at = min(max(i, 0), len(t.s)); at < len(t.s) && !utf8.RuneStart(t.s[at]); at++ {
			continue
		}
		return at
	}
	for at < i && at < len(t.s) {
		n, _ := t.unit(at)
		at += n
	}
	return at
}

// head gives the end of the longest piece from a place that keeps to the limits:
// at the end of a line where that leaves out at most half of it.
func (t Text) head(from, maxBytes, maxLines int) (end int) {
	line, count := from, 0
	for end = from; end < len(t.s) && count < maxLines; {
		n, border := t.unit(end)
		if end+n-from > maxBytes {
			break
		}
		end += n
		if border {
			line = end
			count++
		}
	}
	if end < len(t.s) && line-from > (end-from)/2 {
		return line
	}
	return end
}

// tail is head from the end: it gives the begin of the piece.
func (t Text) tail(maxBytes, maxLines int) (begin int) {
	begin = t.tailExact(maxBytes, t.Lines()-maxLines)
	if begin == len(t.s) || t.beginsLine(begin) {
		return begin
	}
	for i := begin; i < len(t.s) && len(t.s)-i > (len(t.s)-begin)/2; {
		n, border := t.unit(i)
		if i += n; border {
			return i
		}
	}
	return begin
}

// tailExact gives the first place between characters that has so many lines
// before it and at most maxBytes behind it.
func (t Text) tailExact(maxBytes, skip int) int {
	i := 0
	for passed := 0; i < len(t.s) && (passed < skip || len(t.s)-i > maxBytes); {
		n, border := t.unit(i)
		i += n
		if border {
			passed++
		}
	}
	return i
}

// beginsLine reports whether a line ends before i. An escape that only looks like
// a line feed, a backslash before an n, makes it true where it is not: then a cut
// falls between characters.
func (t Text) beginsLine(i int) bool {
	switch {
	case i == 0 || t.s[i-1] == '\n':
		return true
	case !t.json || i < 2:
		return false
	}
	return t.s[i-2:i] == `\n`
}
