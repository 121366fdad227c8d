package dispatch

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// What may wait for one observer.
const (
	maxEvents     = 1024
	maxEventBytes = 64 << 20
)

// event is what an observer is told.
type event struct {
	call  *hook.Call
	res   *frames.ToolResult // nil: the call begins
	trace nats.Header
}

func (e event) size() int {
	n := len(e.call.Arguments) + len(e.call.Raw)
	if e.res != nil {
		n += sizeOf(e.res)
	}
	return n
}

// events wait for one observer. A goroutine tells them while there are some.
type events struct {
	mu      sync.Mutex
	idle    *sync.Cond // told when busy ends
	queue   []event
	bytes   int
	busy    bool
	stopped bool
	cancel  context.CancelFunc // of the goroutine
}

// tell tells an observer of an event, later; one that falls behind misses some.
func (g *guarded) tell(e event) {
	q := &g.events
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped || len(q.queue) >= maxEvents || q.bytes+e.size() > maxEventBytes {
		g.dropped.Add(1)
		g.warn("observer falls behind: an event is dropped", "tool", e.call.Tool, "call_id", e.call.ID)
		return
	}
	q.queue = append(q.queue, e)
	q.bytes += e.size()
	if q.busy {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	q.busy, q.cancel = true, cancel
	go g.telling(ctx)
}

// telling tells what waits, one after the other.
func (g *guarded) telling(ctx context.Context) {
	for e, ok := g.events.next(); ok; e, ok = g.events.next() {
		if e.res != nil {
			shown := *e.res
			e.res = &shown
		}
		ctx := bus.WithTrace(ctx, e.trace)
		_, err := run(ctx, g, hook.PhaseObserve, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, g.Observe(ctx, e.call, e.res)
		})
		if err != nil {
			g.fault(hook.PhaseObserve, e.call, err)
		}
	}
}

// next gives the next event; false ends the goroutine.
func (q *events) next() (event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || q.stopped {
		q.busy, q.queue, q.bytes = false, nil, 0
		q.cancel()
		q.idle.Broadcast()
		return event{}, false
	}
	e := q.queue[0]
	q.queue = q.queue[1:]
	q.bytes -= e.size()
	return e, true
}

// settle waits until all was told, or ctx ends.
func (q *events) settle(ctx context.Context) {
	defer context.AfterFunc(ctx, q.wake)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy && ctx.Err() == nil {
		q.idle.Wait()
	}
}

func (q *events) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle.Broadcast()
}

// stop tells nothing more and waits for what is being told.
func (q *events) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for q.busy {
		q.cancel()
		q.idle.Wait()
	}
}
