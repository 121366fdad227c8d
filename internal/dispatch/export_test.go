package dispatch

import (
	"context"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Held is what a dispatcher holds, for tests.
type Held struct{ Lanes, Calls, Slots, Queued, Bytes int }

// Held counts what the dispatcher holds.
func (d *Dispatcher) Held() Held {
	h := Held{Calls: d.InFlight()}
	for _, l := range d.allLanes() {
		l.mu.Lock()
		h.Lanes++
		h.Queued += len(l.queue)
		h.Calls = max(h.Calls, l.open)
		for _, n := range l.loads {
			h.Slots += n.slots
		}
		l.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h.Bytes = d.bytes
	return h
}

// CancelBeforeTheQueue is Start with a cancel that comes in its middle.
func (d *Dispatcher) CancelBeforeTheQueue(p *Prepared, done func(*frames.ToolResult)) {
	r := d.begin(p, done)
	r.cancel(context.Canceled)
	d.advance(r)
}

// CancelBeforeItIsSent is Start with a cancel between the choice of the instance
// and the publish.
func (d *Dispatcher) CancelBeforeItIsSent(p *Prepared, done func(*frames.ToolResult)) {
	r := d.begin(p, done)
	r.lane.mu.Lock()
	a := d.place(r, d.reg.Get(r.Tool))
	r.lane.mu.Unlock()
	r.cancel(context.Canceled)
	d.send(a)
}

func (d *Dispatcher) begin(p *Prepared, done func(*frames.ToolResult)) *running {
	r := &running{Prepared: p, d: d, done: done, opened: time.Now(), queuedAt: time.Now()}
	if err := d.register(r); err != nil {
		panic(err)
	}
	return r
}

// Hooked reports whether a hook sees the call.
func (d *Dispatcher) Hooked(c Call) bool { return d.hooks.of(&c) != nil }
