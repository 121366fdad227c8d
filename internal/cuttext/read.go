package cuttext

import (
	"fmt"
	"regexp"
	"strings"
)

// Piece is a part of a text.
type Piece struct {
	Text string
	// From and To are its place in the whole, in bytes.
	From, To int
}

// From gives the piece that begins at an offset, or at the first character behind
// it, and keeps to the limits. It holds a character at least, however small they are.
func (t Text) From(offset, maxBytes, maxLines int) Piece {
	from := t.align(offset)
	to := t.head(from, maxBytes, maxLines)
	if to == from && from < len(t.s) {
		n, _ := t.unit(from)
		to = from + n
	}
	return Piece{t.s[from:to], from, to}
}

// Last gives the piece at the end that keeps to the limits.
func (t Text) Last(maxBytes, maxLines int) Piece {
	from := t.tail(maxBytes, maxLines)
	return Piece{t.s[from:], from, len(t.s)}
}

// Bounds of what Grep shows.
const (
	maxHits    = 100
	maxHitLine = 500
)

// Hits are the lines that match.
type Hits struct {
	// Text has a line for each hit that is shown: its number, the offset of its
	// begin, and of a long line the part around the match.
	Text string
	// Shown of All are in Text.
	Shown, All int
}

// Grep gives the lines that match, at most 100 of them in maxBytes.
func (t Text) Grep(re *regexp.Regexp, maxBytes int) Hits {
	var h Hits
	var b strings.Builder
	full := false
	t.eachLine(func(number, from int, line string) {
		at := re.FindStringIndex(line)
		if at == nil {
			return
		}
		h.All++
		shown := fmt.Sprintf("%d@%d: %s\n", number, from, t.around(from, line, at))
		if full = full || h.Shown == maxHits || b.Len()+len(shown) > maxBytes; full {
			return
		}
		h.Shown++
		b.WriteString(shown)
	})
	h.Text = b.String()
	return h
}

// eachLine gives each line, counted from 1, without what ends it.
func (t Text) eachLine(fn func(number, from int, line string)) {
	number, from := 1, 0
	for i := 0; i < len(t.s); {
		n, border := t.unit(i)
		if border {
			fn(number, from, t.s[from:i])
			number, from = number+1, i+n
		}
		i += n
	}
	if from < len(t.s) {
		fn(number, from, t.s[from:])
	}
}

// around cuts a long line to what stands around a match in it.
func (t Text) around(from int, line string, at []int) string {
	if len(line) <= maxHitLine {
		return line
	}
	part := Text{line, t.json}
	begin := part.align(max(at[0]-maxHitLine/2, 0))
	p := part.From(begin, maxHitLine, 1)
	if p.From > 0 {
		p.Text = fmt.Sprintf("[from byte %d] …%s", from+p.From, p.Text)
	}
	if p.To < len(line) {
		p.Text += "…"
	}
	return p.Text
}
