package bus

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// SilenceLimit is how long a reader without a deadline waits for the next
// answer; the holder of an open exchange sends TICK each 5 s.
const SilenceLimit = 15 * time.Second

// ReasonSlowReader is the reason of the NO_RESULT that ends an exchange whose
// answers come faster than they are read.
const ReasonSlowReader = "slow_reader"

// maxBuffered bounds what an exchange holds for a slow reader.
const (
	maxBufferedFrames = 16 << 10
	maxBufferedBytes  = 64 << 20
)

// Exchange is one request and its answers, read frame by frame up to END. One
// goroutine reads it.
type Exchange struct {
	ask    *Ask
	signal chan struct{}

	mu     sync.Mutex
	queue  []frames.Frame
	bytes  int
	err    error
	ended  bool
	seq    uint64
	silent time.Duration
}

// Open sends one request of several frames and gives its exchange, to be closed.
func (c *Conn) Open(ctx context.Context, subject string, enc frames.Encoding, fs ...*frames.Frame) (*Exchange, error) {
	data, err := frames.Encode(enc, fs...)
	if err != nil {
		return nil, err
	}
	x := &Exchange{signal: make(chan struct{}, 1), silent: SilenceLimit}
	if _, has := ctx.Deadline(); has {
		x.silent = 0
	}
	x.ask, err = c.Ask(ctx, subject, data, x.take)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// take buffers the frames of one message.
func (x *Exchange) take(m frames.Message, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil || x.ended {
		return
	}
	if err != nil {
		x.err = err
	}
	for i := range m.Frames {
		x.push(&m.Frames[i])
	}
	select {
	case x.signal <- struct{}{}:
	default:
	}
}

func (x *Exchange) push(f *frames.Frame) {
	if x.err != nil || x.ended {
		return
	}
	if f.Seq != 0 && f.Seq != x.seq+1 {
		x.err = frames.NewError(frames.CodeNoResult, "answer %d is missing, got %d", x.seq+1, f.Seq)
		return
	}
	if f.Seq != 0 {
		x.seq = f.Seq
	}
	x.bytes += len(f.Content) + len(f.Value)
	if len(x.queue) >= maxBufferedFrames || x.bytes > maxBufferedBytes {
		x.err = frames.NewError(frames.CodeNoResult, "answers come faster than they are read").WithReason(ReasonSlowReader)
		return
	}
	x.queue = append(x.queue, *f)
	x.ended = f.Type == frames.TypeEnd
}

// Next gives the next frame, END too, and io.EOF behind END. UNAVAILABLE says
// that nobody listens, NO_RESULT that the answers broke off.
func (x *Exchange) Next(ctx context.Context) (frames.Frame, error) {
	var silence <-chan time.Time
	if x.silent > 0 {
		t := time.NewTimer(x.silent)
		defer t.Stop()
		silence = t.C
	}
	for {
		if f, ok, err := x.pop(); ok || err != nil {
			return f, err
		}
		select {
		case <-x.signal:
		case <-ctx.Done():
			return frames.Frame{}, frames.AsError(context.Cause(ctx))
		case <-silence:
			return frames.Frame{}, x.silence()
		}
	}
}

// silence is the error of an exchange that nothing was heard of.
func (x *Exchange) silence() error {
	if x.ask.c.nc.IsConnected() {
		return frames.NewError(frames.CodeNoResult, "no answer for %v", x.silent)
	}
	return frames.NewError(frames.CodeNoResult,
		"no answer for %v: the connection to the mesh is lost, and whether it was done is not known", x.silent)
}

func (x *Exchange) pop() (frames.Frame, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.queue) > 0 {
		f := x.queue[0]
		x.queue = x.queue[1:]
		x.bytes -= len(f.Content) + len(f.Value)
		return f, true, nil
	}
	if x.err == nil && x.ended {
		return frames.Frame{}, false, io.EOF
	}
	return frames.Frame{}, false, x.err
}

// All ranges over the frames up to and with END; an error is the last pair.
func (x *Exchange) All(ctx context.Context) iter.Seq2[frames.Frame, error] {
	return func(yield func(frames.Frame, error) bool) {
		for {
			f, err := x.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the exchange for its reader; nothing is sent.
func (x *Exchange) Close() { x.ask.Stop() }

// Request opens an exchange, reads it to END and gives all frames before it. An
// ERROR frame becomes the error, beside the frames that were read.
func (c *Conn) Request(ctx context.Context, subject string, fs ...*frames.Frame) ([]frames.Frame, error) {
	x, err := c.Open(ctx, subject, frames.Msgpack, fs...)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	var got []frames.Frame
	for f, err := range x.All(ctx) {
		if err != nil {
			return got, err
		}
		switch f.Type {
		case frames.TypeEnd:
			return got, nil
		case frames.TypeError:
			return got, f.Err()
		case frames.TypeTick:
		default:
			got = append(got, f)
		}
	}
	return got, frames.NewError(frames.CodeNoResult, "the answer broke off")
}
