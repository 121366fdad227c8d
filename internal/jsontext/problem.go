package jsontext

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind says which rule a text breaks.
type Kind uint8

// The kinds of problems.
const (
	// Syntax: not JSON.
	Syntax Kind = iota + 1
	// Empty: nothing but white space.
	Empty
	// Unfinished: the text ends before its value does; all before is sound.
	Unfinished
	// Trailing: something follows the value.
	Trailing
	// TooDeep: nested beyond Limits.Depth.
	TooDeep
	// TooMany: more values than Limits.Nodes.
	TooMany
	// TooLong: the text is 2 GiB or longer.
	TooLong
	// BigNumber: a literal beyond Limits.Digits or Limits.Exponent.
	BigNumber
	// DuplicateKey: an object has the same key twice, however it is escaped.
	DuplicateKey
	// BadText: invalid UTF-8, or an escape that is half of a surrogate pair.
	BadText
)

var kindNames = [...]string{
	Syntax: "syntax", Empty: "empty", Unfinished: "unfinished", Trailing: "trailing",
	TooDeep: "too_deep", TooMany: "too_many", TooLong: "too_long", BigNumber: "big_number",
	DuplicateKey: "duplicate_key", BadText: "bad_text",
}

// String gives the kind's stable word, usable as the reason of an error.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// Problem is the first thing that is wrong with a text.
type Problem struct {
	Kind Kind
	// Offset is the byte where the problem begins.
	Offset int
	// Path is the JSON Pointer of the value or key being read; empty is the
	// root. At most [MaxPath] bytes; a longer one is cut and ends in "…".
	Path string
	// Reason is one line for people and models, without offset and path.
	Reason string
}

// String gives reason, offset and path in one line.
func (p *Problem) String() string {
	at := ""
	if p.Path != "" {
		at = ", in " + p.Path
	}
	return fmt.Sprintf("%s (at byte %d%s)", p.Reason, p.Offset, at)
}

// nearSpan is how much text [Near] shows on each side of the offset.
const nearSpan = 24

// Near gives the text around offset for a message: one line of at most 60
// bytes or so, cut on rune borders, control characters and bytes that are no
// UTF-8 replaced.
func Near(text []byte, offset int) string {
	offset = max(0, min(offset, len(text)))
	from, to := max(0, offset-nearSpan), min(len(text), offset+nearSpan)
	for from > 0 && from < offset && !utf8.RuneStart(text[from]) {
		from++
	}
	for to < len(text) && to > offset && !utf8.RuneStart(text[to]) {
		to--
	}
	return ellipsis(from > 0) + plain(string(text[from:to])) + ellipsis(to < len(text))
}

func ellipsis(cut bool) string {
	if cut {
		return "…"
	}
	return ""
}

func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
