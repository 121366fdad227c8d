package tool

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// livePause is how long output is gathered before it is sent.
	livePause = 100 * time.Millisecond
	// liveChunk is the most text of one TEXT frame.
	liveChunk = 8 << 10
	// liveBudget is the most output that one call sends.
	liveBudget = 256 << 10
)

// live sends what a running call puts out, from a goroutine of its own.
type live struct {
	send func(...frames.Frame) error
	opts []frames.Option

	sending sync.Mutex // held while frames go out, so that they keep their order

	mu      sync.Mutex
	chunks  []chunk
	step    *step // newest progress that was not sent
	reached float64
	given   int
	dropped int
	timer   *time.Timer // nil: nothing waits
	closed  bool
}

type chunk struct{ stream, text string }

type step struct {
	progress, total float64
	message         string
}

func (l *live) output(stream, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || text == "" {
		return
	}
	kept := clip(text, liveBudget-l.given)
	l.dropped += len(text) - len(kept)
	l.given += len(kept)
	if kept == "" {
		return
	}
	if n := len(l.chunks); n > 0 && l.chunks[n-1].stream == stream && len(l.chunks[n-1].text)+len(kept) <= liveChunk {
		l.chunks[n-1].text += kept
	} else {
		l.chunks = append(l.chunks, chunk{stream, kept})
	}
	l.wake()
}

func (l *live) progress(progress, total float64, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !finite(progress) || !finite(total) || progress < l.reached {
		return
	}
	l.reached = progress
	l.step = &step{progress, total, message}
	l.wake()
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// wake has the gathered frames sent soon; l.mu is held.
func (l *live) wake() {
	if l.timer == nil {
		l.timer = time.AfterFunc(livePause, l.flush)
	}
}

// flush sends what was gathered. What cannot be sent is lost: live frames may be.
func (l *live) flush() {
	l.sending.Lock()
	defer l.sending.Unlock()
	for _, f := range l.take() {
		_ = l.send(f)
	}
}

func (l *live) take() []frames.Frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	var fs []frames.Frame
	for _, c := range l.chunks {
		for rest := c.text; rest != ""; {
			text := clip(rest, liveChunk)
			rest = rest[len(text):]
			fs = append(fs, frames.Text(text, l.with(frames.WithMeta("stream", c.stream))...))
		}
	}
	if l.step != nil {
		fs = append(fs, frames.Progress(l.step.content(), l.with()...))
	}
	l.chunks, l.step = nil, nil
	return fs
}

func (l *live) with(more ...frames.Option) []frames.Option {
	return append(slices.Clip(l.opts), more...)
}

func (s *step) content() map[string]any {
	c := map[string]any{"progress": s.progress}
	if s.total > 0 {
		c["total"] = s.total
	}
	if s.message != "" {
		c["message"] = clip(s.message, maxText)
	}
	return c
}

// close takes no more, sends the rest, and says how much was dropped.
func (l *live) close() {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	dropped := l.dropped
	l.mu.Unlock()
	l.flush()
	if dropped > 0 {
		_ = l.send(frames.Meta(map[string]any{"droppedOutputBytes": dropped}, l.with()...))
	}
}
