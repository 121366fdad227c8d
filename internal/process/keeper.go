package process

import (
	"fmt"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/validtext"
)

// keeper keeps the beginning and the end of an output stream of any length, as
// valid UTF-8, in memory of a few times its limit. It is an io.Writer for one
// goroutine and never fails.
type keeper struct {
	headCap, tailCap int
	tap              func(text []byte) // gets the decoded text too; may be nil

	dec      validtext.Decoder
	buf      []byte
	head     []byte
	headFull bool
	tail     []byte
	total    int64 // bytes that came in
	length   int64 // bytes of their text
}

// Kept is what was kept of an output stream.
type Kept struct {
	// Text is valid UTF-8; of a long stream the beginning and the end, and between
	// them a line that says how much was left out.
	Text string
	// Total counts the bytes that came in, Omitted those of the text that were
	// left out of the middle, Invalid those that were not UTF-8: each shows as U+FFFD.
	Total, Omitted, Invalid int64
}

func newKeeper(limit int, tap func([]byte)) *keeper {
	if tap == nil {
		tap = func([]byte) {}
	}
	return &keeper{headCap: limit / 2, tailCap: limit - limit/2, tap: tap}
}

// Write takes the next bytes of the stream.
func (k *keeper) Write(p []byte) (int, error) {
	k.total += int64(len(p))
	k.buf = k.dec.Decode(k.buf[:0], p)
	k.keep(k.buf)
	return len(p), nil
}

// finish ends the stream and gives what was kept. A cut text says in its middle
// how much is missing.
func (k *keeper) finish() Kept {
	k.keep(k.dec.Flush(nil))
	tail := k.tail[max(0, len(k.tail)-k.tailCap):]
	lost := k.length > int64(len(k.head)+len(tail))
	for lost && len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	res := Kept{Total: k.total, Invalid: k.dec.Invalid, Omitted: k.length - int64(len(k.head)+len(tail))}
	middle := ""
	if res.Omitted > 0 {
		middle = fmt.Sprintf("\n[… %d bytes left out …]\n", res.Omitted)
	}
	res.Text = string(k.head) + middle + string(tail)
	return res
}

func (k *keeper) keep(text []byte) {
	if len(text) == 0 {
		return
	}
	k.tap(text)
	k.length += int64(len(text))
	if !k.headFull {
		n := validtext.Cut(text, k.headCap-len(k.head))
		k.head = append(k.head, text[:n]...)
		text, k.headFull = text[n:], n < len(text)
	}
	k.tail = append(k.tail, text...)
	if len(k.tail) > 2*k.tailCap {
		n := copy(k.tail, k.tail[len(k.tail)-k.tailCap:])
		k.tail = k.tail[:n]
	}
}
