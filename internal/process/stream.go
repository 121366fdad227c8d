package process

import (
	"os"
	"time"
)

// past ends a read or a write of a pipe at once.
var past = time.Unix(1, 0)

// capture reads one output stream of a program.
type capture struct {
	r    *os.File
	keep *keeper
	eof  chan struct{}
}

// newCapture begins to read a new pipe and gives its other end.
func newCapture(limit int, tap func([]byte)) (*capture, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c := &capture{r: r, keep: newKeeper(limit, tap), eof: make(chan struct{})}
	go c.read()
	return c, w, nil
}

func (c *capture) read() {
	defer close(c.eof)
	buf := make([]byte, 32<<10)
	for {
		n, err := c.r.Read(buf)
		_, _ = c.keep.Write(buf[:n]) // a keeper never fails
		if err != nil {
			return
		}
	}
}

// finish ends the reading, whoever still holds the other end. A nil one has nothing.
func (c *capture) finish() Kept {
	if c == nil {
		return Kept{}
	}
	_ = c.r.SetReadDeadline(past)
	<-c.eof
	_ = c.r.Close()
	return c.keep.finish()
}

// feed writes a program's input.
type feed struct {
	w    *os.File
	done chan struct{}
}

// newFeed begins to write into a new pipe and gives its other end; without input
// both are nil, which is an empty input.
func newFeed(input []byte) (*feed, *os.File, error) {
	if len(input) == 0 {
		return nil, nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	f := &feed{w: w, done: make(chan struct{})}
	go f.write(input)
	return f, r, nil
}

// write writes until all is written or nobody reads any more: a program need not
// read its input.
func (f *feed) write(input []byte) {
	defer close(f.done)
	_, _ = f.w.Write(input)
	_ = f.w.Close()
}

// finish ends the writing, whoever still holds the other end.
func (f *feed) finish() {
	if f == nil {
		return
	}
	_ = f.w.SetWriteDeadline(past)
	<-f.done
}
