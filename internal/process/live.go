package process

import (
	"sync"
	"time"
)

const (
	// livePending bounds the live output that waits for a slow reader.
	livePending = 64 << 10
	// livePause is the least time between two deliveries while a command runs.
	livePause = 100 * time.Millisecond
)

// Names of the output streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Chunk is a piece of a running command's output.
type Chunk struct {
	// Stream is [Stdout] or [Stderr].
	Stream string
	// Text is valid UTF-8 and cuts no rune.
	Text string
	// Dropped counts the bytes of this stream that were left out directly before
	// Text, because the reader of the chunks was slow.
	Dropped int64
}

// live hands output to a callback on a goroutine of its own: a callback that
// takes its time loses chunks, it never holds up the command.
type live struct {
	call    func(Chunk)
	wake    chan struct{}
	closing chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	pending []Chunk
	size    int
	dropped map[string]int64
}

// newLive begins to deliver to call; nil when there is nobody to deliver to.
func newLive(call func(Chunk)) *live {
	if call == nil {
		return nil
	}
	l := &live{
		call: call, wake: make(chan struct{}, 1),
		closing: make(chan struct{}), done: make(chan struct{}),
		dropped: map[string]int64{},
	}
	go l.run()
	return l
}

// tap gives the function that takes the text of a stream.
func (l *live) tap(stream string) func([]byte) {
	if l == nil {
		return nil
	}
	return func(text []byte) { l.offer(stream, text) }
}

// offer takes text for delivery, or drops it. It never waits.
func (l *live) offer(stream string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+len(text) > livePending {
		l.dropped[stream] += int64(len(text))
		return
	}
	l.size += len(text)
	l.append(stream, string(text))
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// append joins text to the last chunk when nothing lies between them.
func (l *live) append(stream, text string) {
	dropped := l.dropped[stream]
	delete(l.dropped, stream)
	if n := len(l.pending); n > 0 && dropped == 0 && l.pending[n-1].Stream == stream {
		l.pending[n-1].Text += text
		return
	}
	l.pending = append(l.pending, Chunk{Stream: stream, Text: text, Dropped: dropped})
}

// close delivers the rest and returns after the last call.
func (l *live) close() {
	if l == nil {
		return
	}
	close(l.closing)
	<-l.done
}

func (l *live) run() {
	defer close(l.done)
	for {
		select {
		case <-l.wake:
			l.deliver()
		case <-l.closing:
			l.deliver()
			l.deliverDropped()
			return
		}
		select {
		case <-time.After(livePause):
		case <-l.closing:
		}
	}
}

func (l *live) deliver() {
	l.mu.Lock()
	chunks := l.pending
	l.pending, l.size = nil, 0
	l.mu.Unlock()
	for _, c := range chunks {
		l.call(c)
	}
}

// deliverDropped says what was dropped at the very end.
func (l *live) deliverDropped() {
	for _, stream := range []string{Stdout, Stderr} {
		if n := l.dropped[stream]; n > 0 {
			l.call(Chunk{Stream: stream, Dropped: n})
		}
	}
}
