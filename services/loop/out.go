package loop

import (
	"context"
	"sync"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// out publishes a session's live frames, numbered within each epoch. It is safe
// for concurrent use.
type out struct {
	conn    *bus.Conn
	subject string

	mu       sync.Mutex
	epoch    uint64
	encoding frames.Encoding
	seq      uint64
	closed   bool
}

// begin makes epoch that of the frames that follow.
func (o *out) begin(epoch uint64, enc frames.Encoding) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if epoch != o.epoch {
		o.epoch, o.seq = epoch, 0
	}
	o.encoding = enc
}

// live publishes a frame; one that is lost is replaced by the durable frame.
func (o *out) live(f frames.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	f.Epoch, f.Seq = o.epoch, o.seq+1
	if o.conn.Publish(context.Background(), o.subject, o.encoding, &f) == nil {
		o.seq++
	}
}

// close ends it: what is not this loop's any more gets no frames from it.
func (o *out) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}
