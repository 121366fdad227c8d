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
	"sync/atomic"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
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
	// DefaultTimeout is the time-out of tools that declare none. Default: 30 s; at
	// most 1 h.
	DefaultTimeout time.Duration
	// MaxBytes is how many bytes of arguments all calls together may hold.
	// Default: 256 MiB.
	MaxBytes int
	// Hooks decide on calls and look at them, in this order. Default: none.
	Hooks []hook.Hook
	// Log is where faults go. Default: slog.Default().
	Log *slog.Logger
}

// Validate names the first field that cannot be.
func (c Config) Validate() error {
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"QueueLimit", int64(c.QueueLimit)}, {"QueueWait", int64(c.QueueWait)},
		{"CancelGrace", int64(c.CancelGrace)}, {"MaxBytes", int64(c.MaxBytes)},
		{"DefaultTimeout", int64(c.DefaultTimeout)},
	} {
		if f.v < 0 {
			return frames.NewError(frames.CodeValidationInput, "%s: %d, want 0 for the default or more", f.name, f.v)
		}
	}
	if c.DefaultTimeout > frames.MaxTimeout {
		return frames.NewError(frames.CodeValidationInput, "DefaultTimeout: %v, want at most %v", c.DefaultTimeout, frames.MaxTimeout)
	}
	return hook.Check(c.Hooks)
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
	if c.DefaultTimeout == 0 {
		c.DefaultTimeout = frames.DefaultTimeout
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Times that are not worth a setting.
const (
	// busyPause is how long an instance is left alone after it refused a call.
	busyPause = 25 * time.Millisecond
	// aheadPause is how long no call is sent ahead after one was refused.
	aheadPause = time.Second
	// holdSlot is how long the slot of a call that was given up is held for the
	// tool to end.
	holdSlot = 30 * time.Second
	// goneGrace is how long what is under way from an instance that is gone may
	// take: a last result, or the word that nobody took the call.
	goneGrace = 500 * time.Millisecond
)

// Dispatcher dispatches the calls of one process. It is safe for concurrent use.
type Dispatcher struct {
	conn  *bus.Conn
	reg   *registry.Registry
	cfg   Config
	hooks *hooks

	stats struct{ late, retries atomic.Uint64 }

	mu     sync.Mutex
	lanes  map[laneKey]*lane
	calls  map[callKey]*running
	bytes  int             // of the calls' arguments
	untold int             // calls whose caller was not told the result yet
	idle   []chan struct{} // closed when the last one was
	closed bool            // takes no more calls
}

type callKey struct{ caller, id string }

// New makes a dispatcher on a registry, before the registry runs.
func New(conn *bus.Conn, reg *registry.Registry, cfg Config) *Dispatcher {
	d := &Dispatcher{
		conn: conn, reg: reg, cfg: cfg.withDefaults(),
		lanes: map[laneKey]*lane{}, calls: map[callKey]*running{},
	}
	d.hooks = newHooks(conn, d.cfg)
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
		return failed(err)
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
// result, at once or from another goroutine such as the connection's, and must
// not block. ctx carries trace headers only; cancel ends the call, with CANCELLED
// unless the cause says otherwise.
func (d *Dispatcher) Start(ctx context.Context, p *Prepared, done func(*frames.ToolResult)) (cancel func(cause error)) {
	now := time.Now()
	r := &running{Prepared: p, d: d, done: done, trace: bus.TraceHeader(ctx), lock: p.lockOf(), opened: now, queuedAt: now}
	if err := d.register(r); err != nil {
		done(failed(err))
		return func(error) {}
	}
	if r.answered() {
		return r.cancel
	}
	d.advance(r)
	return r.cancel
}

// register keeps a call by its id while it runs, and puts it into its lane.
func (d *Dispatcher) register(r *running) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := callKey{r.Caller, r.ID}
	switch {
	case d.closed:
		return frames.NewError(frames.CodeUnavailable, "the dispatcher has stopped")
	case d.calls[key] != nil:
		return runsAlready(r.ID)
	case d.bytes+len(r.Arguments) > d.cfg.MaxBytes:
		return frames.Busy(r.Tool, d.cfg.QueueWait/10).WithReason("busy")
	}
	d.calls[key] = r
	d.bytes += len(r.Arguments)
	d.untold++
	r.lane = d.laneOf(r.Prepared)
	r.lane.mu.Lock()
	defer r.lane.mu.Unlock()
	r.lane.open++
	return nil
}

// laneOf gives the lane of a call's tool, under the dispatcher's lock. A call that
// has its answer waits in none.
func (d *Dispatcher) laneOf(p *Prepared) *lane {
	at := laneKey{p.Tool, p.Depth}
	if p.Answered() {
		return newLane(at)
	}
	l := d.lanes[at]
	if l == nil {
		l = newLane(at)
		d.lanes[at] = l
	}
	return l
}

func runsAlready(id string) *frames.Error {
	return frames.NewError(frames.CodeConflict, "call %s is running already", id)
}

// forget takes a call that has its result out of the index: its caller, told
// the result, finds it so.
func (d *Dispatcher) forget(r *running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, callKey{r.Caller, r.ID})
	d.bytes -= len(r.Arguments)
}

// told counts a call whose caller was told the result.
func (d *Dispatcher) told() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.untold--; d.untold > 0 {
		return
	}
	for _, c := range d.idle {
		close(c)
	}
	d.idle = nil
}

// Cancel ends a running call of a caller; false where this process runs none of
// that id.
func (d *Dispatcher) Cancel(caller, id string) bool {
	d.mu.Lock()
	r := d.calls[callKey{caller, id}]
	d.mu.Unlock()
	if r == nil {
		return d.hooks.cancel(caller, id)
	}
	r.cancel(context.Canceled)
	return true
}

// Stats counts what happened to calls since the start.
type Stats struct {
	// LateResults came behind the one that counts, or after their call was
	// answered.
	LateResults uint64
	// Retries are attempts beyond the first.
	Retries uint64
}

// Stats gives the counts so far.
func (d *Dispatcher) Stats() Stats {
	return Stats{d.stats.late.Load(), d.stats.retries.Load()}
}

// InFlight gives how many callers were not told their result yet.
func (d *Dispatcher) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.untold
}

// changed looks at a tool's queues again: there may be a new instance, or none.
// The lanes of a tool that is forgotten go with it.
func (d *Dispatcher) changed(tool string) {
	for depth := range MaxDepth + 1 {
		if l := d.stillUsed(laneKey{tool, depth}); l != nil {
			d.pump(l)
		}
	}
}

// stillUsed gives a lane, and forgets it where it is empty and its tool forgotten.
func (d *Dispatcher) stillUsed(at laneKey) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lanes[at]
	if l != nil && d.reg.Get(at.tool) == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.empty() {
			delete(d.lanes, at)
		}
	}
	return l
}

// gone looks after the calls that run on an instance that is no more. Those of a
// service without instances are left to their time-outs: it may have stopped to
// listen, to finish what it has.
func (d *Dispatcher) gone(id registry.Instance, dead bool) {
	if !id.Announced() {
		return
	}
	for _, l := range d.allLanes() {
		for _, a := range l.on(id) {
			a.orphaned(dead)
		}
	}
}

func (d *Dispatcher) allLanes() []*lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.lanes))
}
