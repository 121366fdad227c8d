package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// DefaultMaxEvent is how many bytes one event may have by default: the lines
// of one event together.
const DefaultMaxEvent = 8 << 20

// ErrTooLarge is in the chain of the error for an event over the limit.
var ErrTooLarge = errors.New("event over the limit")

// Event is one event; Data and Name are empty if the stream gave none.
type Event struct {
	// Name is the event field.
	Name string
	// Data is the data lines joined by a line feed. It is valid until the next
	// call of Next.
	Data []byte
	// Unfinished marks an event that the stream ended in, without the blank
	// line that closes it: its last line may be cut.
	Unfinished bool
}

// Reader reads events. It is not safe for concurrent use.
type Reader struct {
	in   *bufio.Reader
	max  int
	line []byte
	size int // bytes of the lines of the event at hand
	data []byte
	name string

	begun  bool // a byte was read: no byte order mark any more
	any    bool // the event at hand has a data line
	skipLF bool // the last line ended in CR: a LF that follows belongs to it
	ended  error
}

// NewReader reads from r; an event of more than maxEvent bytes is an error.
// maxEvent 0 means [DefaultMaxEvent].
func NewReader(r io.Reader, maxEvent int) *Reader {
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
	return &Reader{in: bufio.NewReader(r), max: maxEvent}
}

// Next gives the next event that has data. At the end of the stream it gives
// an unfinished event, if there is one, then io.EOF; any other error is the
// stream's or [ErrTooLarge], and stays.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for r.ended == nil {
		line, err := r.readLine()
		if err != nil {
			r.ended = err
			return r.last()
		}
		if len(line) > 0 {
			r.field(line)
			continue
		}
		if r.any {
			return Event{Name: r.name, Data: r.data}, nil
		}
		r.reset()
	}
	return Event{}, r.ended
}

func (r *Reader) reset() {
	r.data, r.name, r.any, r.size = r.data[:0], "", false, 0
}

// last gives what the stream ended in.
func (r *Reader) last() (Event, error) {
	if !errors.Is(r.ended, io.EOF) {
		return Event{}, r.ended
	}
	r.field(r.withoutMark())
	if !r.any {
		return Event{}, r.ended
	}
	return Event{Name: r.name, Data: r.data, Unfinished: true}, nil
}

// field takes one line of an event.
func (r *Reader) field(line []byte) {
	key, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(key) {
	case "data":
		if r.any {
			r.data = append(r.data, '\n')
		}
		r.data, r.any = append(r.data, value...), true
	case "event":
		r.name = string(value)
	}
}

// readLine reads up to CR, LF or CR LF, without it. It never waits for the LF
// after a CR: a server may send that with its next event only.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		if c == '\n' && r.skipLF {
			r.skipLF = false
			continue
		}
		r.skipLF = false
		if c == '\n' || c == '\r' {
			r.skipLF = c == '\r'
			return r.withoutMark(), nil
		}
		if r.size++; r.size > r.max {
			return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, r.max)
		}
		r.line = append(r.line, c)
	}
}

// withoutMark cuts the byte order mark off the first line of the stream.
func (r *Reader) withoutMark() []byte {
	if r.begun {
		return r.line
	}
	r.begun = true
	return bytes.TrimPrefix(r.line, []byte("\xef\xbb\xbf"))
}
