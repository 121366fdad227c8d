package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errOverLimit is in the chain of the error for a response over its limit.
var errOverLimit = errors.New("response over the limit")

// boundedBody reads a response: it fails after limit bytes, and the watch
// runs while it waits.
type boundedBody struct {
	in          io.Reader
	left, limit int64
	watch       *watch
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return b.probe()
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	b.watch.start()
	n, err := b.in.Read(p)
	b.watch.pause()
	b.left -= int64(n)
	return n, err
}

// probe tells the end of a response of just the limit from one that goes on.
func (b *boundedBody) probe() (int, error) {
	var one [1]byte
	n, err := io.ReadFull(b.in, one[:])
	if n == 0 {
		return 0, err
	}
	return 0, fmt.Errorf("%w of %d bytes", errOverLimit, b.limit)
}

// watch ends a request when the server is silent for too long. It runs only
// while we wait for the server: a slow reader of the events is not its fault.
type watch struct {
	idle   time.Duration
	timer  *time.Timer // nil watches nothing
	cancel context.CancelCauseFunc
}

// newWatch gives a watch that runs, and the context that it ends with
// errSilent. A negative idle time watches nothing.
func newWatch(parent context.Context, idle time.Duration) (*watch, context.Context) {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watch{idle: idle, cancel: cancel}
	if idle > 0 {
		w.timer = time.AfterFunc(idle, func() { cancel(errSilent) })
	}
	return w, ctx
}

func (w *watch) start() {
	if w.timer != nil {
		w.timer.Reset(w.idle)
	}
}

func (w *watch) pause() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// stop ends the context too.
func (w *watch) stop() {
	w.pause()
	w.cancel(nil)
}
