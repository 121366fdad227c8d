package cuttext

import (
	"strings"
)

// Retain says which part of a text is kept.
type Retain string

// What may be kept. Everything else is Head.
const (
	Head Retain = "head"
	Tail Retain = "tail"
	Both Retain = "both"
)

// Limits bound a text, with the mark that stands for what is left out.
type Limits struct {
	Bytes, Lines int
	Retain       Retain
}

// Cut says what was kept of a text.
type Cut struct {
	// Text is what was kept, with the mark.
	Text string
	// Bytes and Lines are those kept, the others those of the whole.
	Bytes, Lines, TotalBytes, TotalLines int
	// Resume is where the part begins that was left out.
	Resume int
}

// Mark gives the line that stands for what is left out: how much that is, not how
// much was kept. It is called with a Cut without Text, the first time with one that
// leaves out everything, since no line may be longer than that one's.
type Mark func(c Cut) string

// Cut keeps a text to the limits; ok is false where it keeps to them as it is.
func (t Text) Cut(l Limits, mark Mark) (c Cut, ok bool) {
	total := t.Lines()
	if len(t.s) <= l.Bytes && total <= l.Lines {
		return Cut{}, false
	}
	most := Cut{TotalBytes: len(t.s), TotalLines: total, Resume: len(t.s)}
	room := len(mark(most)) + len("\n\n")
	if room > l.Bytes/2 || l.Lines < 2 {
		mark, room = func(Cut) string { return "" }, 0 // no room for words
	}
	return t.cut(l, l.Bytes-room, max(l.Lines-min(room, 1), 1), total, mark), true
}

// cut keeps so many bytes and lines beside the mark.
func (t Text) cut(l Limits, maxBytes, maxLines, total int, mark Mark) Cut {
	headEnd, tailBegin := 0, len(t.s)
	switch l.Retain {
	case Tail:
		tailBegin = t.tail(maxBytes, maxLines)
	case Both:
		headEnd = t.head(0, maxBytes/2, maxLines/2)
		tailBegin = max(t.tail(maxBytes-maxBytes/2, maxLines-maxLines/2), headEnd)
	default:
		headEnd = t.head(0, maxBytes, maxLines)
	}
	c := Cut{
		Bytes: headEnd + len(t.s) - tailBegin, Lines: t.lines(0, headEnd) + t.lines(tailBegin, len(t.s)),
		TotalBytes: len(t.s), TotalLines: total, Resume: headEnd,
	}
	c.Text = joined(t.s[:headEnd], mark(c), t.s[tailBegin:])
	return c
}

// joined puts each of the parts on lines of its own.
func joined(parts ...string) string {
	var b strings.Builder
	last := ""
	for _, p := range parts {
		if p == "" {
			continue
		}
		if last != "" && !strings.HasSuffix(last, "\n") && parts[1] != "" {
			b.WriteByte('\n')
		}
		b.WriteString(p)
		last = p
	}
	return b.String()
}
