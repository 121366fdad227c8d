// Package dispatch runs tool calls: it finds the tool, checks the call, chooses
// the instance, relays the call there with a reply subject of its own and gives
// back exactly one result, whatever happens. The loop calls it directly, the
// router is its face on the bus.
//
// The dispatcher chooses the replica itself: it keeps a FIFO for each tool and
// counts the slots it uses on each instance, and sends to the least loaded one
// that is free. A call that an instance refuses before the start goes to another
// one and is not counted as an attempt.
package dispatch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Config sets up a Dispatcher.
type Config struct {
	// QueueLimit is how many calls of one tool may wait. Default: 1000.
	QueueLimit int
	// QueueWait is how long a call may wait for a free instance. Default: 30 s.
	QueueWait time.Duration
	// CancelGrace is how long a cancelled call waits for the tool's own last
	// word. Default: 1 s.
	CancelGrace time.Duration
	// Log is where faults go. Default: slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.QueueLimit == 0 {
		c.QueueLimit = 1000
	}
	if c.QueueWait == 0 {
		c.QueueWait = 30 * time.Second
	}
	if c.CancelGrace == 0 {
		c.CancelGrace = time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Times that are not worth a setting.
const (
	// busyPause is how long a call waits after every instance refused it.
	busyPause = 25 * time.Millisecond
	// holdSlot is how long the slot of a call that was given up is held for the
	// tool to end.
	holdSlot = 30 * time.Second
)

// Dispatcher dispatches the calls of one process. It is safe for concurrent use.
type Dispatcher struct {
	conn *bus.Conn
	reg  *registry.Registry
	cfg  Config

	mu    sync.Mutex
	lanes map[string]*lane
	calls map[callKey]*running
	idle  []chan struct{} // closed when the last call ends
}

type callKey struct{ caller, id string }

// New makes a dispatcher on a registry, before the registry runs.
func New(conn *bus.Conn, reg *registry.Registry, cfg Config) *Dispatcher {
	d := &Dispatcher{
		conn: conn, reg: reg, cfg: cfg.withDefaults(),
		lanes: map[string]*lane{}, calls: map[callKey]*running{},
	}
	reg.OnChange(d.changed)
	reg.OnGone(d.gone)
	return d
}

// Registry gives the catalogue that the dispatcher calls by.
func (d *Dispatcher) Registry() *registry.Registry { return d.reg }

// Do prepares and runs a call and waits for its result. An ended ctx cancels
// the call. There is always exactly one result; failures are in it.
func (d *Dispatcher) Do(ctx context.Context, c Call) *frames.ToolResult {
	p, err := d.Prepare(ctx, c)
	if err != nil {
		return &frames.ToolResult{Err: frames.AsError(err)}
	}
	return d.Run(ctx, p)
}

// Run runs a prepared call and waits for its result, like [Dispatcher.Do].
func (d *Dispatcher) Run(ctx context.Context, p *Prepared) *frames.ToolResult {
	out := make(chan *frames.ToolResult, 1)
	cancel := d.Start(ctx, p, func(r *frames.ToolResult) { out <- r })
	select {
	case r := <-out:
		return r
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		return <-out
	}
}

// Start runs a prepared call without waiting: done is called once with the
// result, at once or from the connection's delivery goroutine, and must not
// block. ctx carries trace headers only; cancel ends the call, with CANCELLED
// unless the cause says otherwise.
func (d *Dispatcher) Start(ctx context.Context, p *Prepared, done func(*frames.ToolResult)) (cancel func(cause error)) {
	r := &running{Prepared: p, d: d, done: done, trace: bus.TraceHeader(ctx), queuedAt: time.Now()}
	l, err := d.register(r)
	if err != nil {
		done(&frames.ToolResult{Err: frames.AsError(err)})
		return func(error) {}
	}
	r.lane = l
	l.mu.Lock()
	l.calls[r] = struct{}{}
	l.mu.Unlock()
	d.advance(r)
	return r.cancel
}

// register keeps a call by its id while it runs.
func (d *Dispatcher) register(r *running) (*lane, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := callKey{r.Caller, r.ID}
	if d.calls[key] != nil {
		return nil, frames.NewError(frames.CodeConflict, "call %s is running already", r.ID)
	}
	d.calls[key] = r
	l := d.lanes[r.Tool]
	if l == nil {
		l = newLane(r.Tool)
		d.lanes[r.Tool] = l
	}
	return l, nil
}

// Cancel ends a running call of a caller; false where this process runs none of
// that id.
func (d *Dispatcher) Cancel(caller, id string) bool {
	d.mu.Lock()
	r := d.calls[callKey{caller, id}]
	d.mu.Unlock()
	if r == nil {
		return false
	}
	r.cancel(context.Canceled)
	return true
}

// InFlight gives how many calls have no result yet.
func (d *Dispatcher) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

func (d *Dispatcher) laneOf(tool string) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes[tool]
}

// changed looks at a tool's queue again: there may be a new instance, or none.
func (d *Dispatcher) changed(tool string) {
	if l := d.laneOf(tool); l != nil {
		d.pump(l)
	}
}

// gone ends the calls that ran on an instance that is no more.
func (d *Dispatcher) gone(id registry.Instance) {
	for _, l := range d.allLanes() {
		for _, r := range l.runningOn(id) {
			r.end(failed(frames.NewError(frames.CodeInterrupted,
				"%s died while it ran; it may or may not have acted", r.Tool).With(r.replaySafe)))
		}
	}
}

func (d *Dispatcher) allLanes() []*lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.lanes))
}
