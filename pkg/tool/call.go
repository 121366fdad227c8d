package tool

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// tickPause is how often a running call says that it runs, tickLeast how often
	// at most where its tool may be silent for a short time only.
	tickPause = 5 * time.Second
	tickLeast = 50 * time.Millisecond
	// grace is how long a handler whose context ended may take to return.
	grace = 3 * time.Second
	// sendPause and sendLimit: an outcome is sent again while there is no connection.
	sendPause = 250 * time.Millisecond
	sendLimit = 30 * time.Second
)

// call is one running call.
type call struct {
	info     Info
	tool     *declared
	instance string
	req      *bus.Request
	live     *live
	opts     []frames.Option // what each frame of the call carries
	log      *slog.Logger
	limit    time.Duration
	started  time.Time
	inline   int
	ahead    bool          // it may wait a moment for a slot
	slot     chan struct{} // closed when it has one; nil where it needs not wait
	older    *call         // an attempt before that still runs
	// stop ends the call's context, with the reason.
	stop context.CancelCauseFunc
	// service is closed when the whole service ends, ready or not.
	service <-chan struct{}

	mu      sync.Mutex // held while the outcome is sent
	settled bool
}

// run runs the call to its end; it returns when the handler has returned, which
// it tells first, and the outcome was sent.
func (c *call) run(ctx context.Context, args json.RawMessage, returned func()) {
	ctx = context.WithValue(ctx, callKey{}, c)
	ctx, cancel := context.WithDeadlineCause(ctx, c.info.Deadline, frames.Timeout(c.info.Tool, c.limit).WithReplay(c.tool.decl.ReplaySafe()))
	defer cancel()
	defer c.keepAlive()()
	defer c.watch(ctx)()
	var res *frames.ToolResult
	lost := error(panicked(c.info.Tool)) // where the handler panics, or ends its goroutine
	err := lost
	defer func() {
		if p := recover(); err == lost { //nolint:errorlint // still the one from above: nothing was returned
			c.log.Error("tool panicked", "panic", p, "stack", string(debug.Stack()))
		}
		returned()
		c.settle(c.outcome(ctx, res, err))
	}()
	res, err = c.invoke(ctx, args)
}

// invoke validates the arguments and runs the handler.
func (c *call) invoke(ctx context.Context, args json.RawMessage) (*frames.ToolResult, error) {
	if err := c.tool.in.Validate(args); err != nil {
		return nil, err
	}
	return c.tool.run(ctx, &Call{Info: c.info, Arguments: args})
}

// keepAlive sends TICK until stop is called.
func (c *call) keepAlive() (stop func()) {
	var (
		mu      sync.Mutex
		stopped bool
		t       *time.Timer
	)
	mu.Lock()
	defer mu.Unlock()
	pause := tickPause
	if idle := c.tool.decl.IdleTimeout(); idle > 0 {
		pause = min(pause, max(idle/3, tickLeast))
	}
	t = time.AfterFunc(pause, func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			_ = c.req.Send(frames.Tick(c.opts...)) // the next one may get through
			t.Reset(pause)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		t.Stop()
	}
}

// watch answers for a handler that does not return although its context ended,
// until stop is called.
func (c *call) watch(ctx context.Context) (stop func()) {
	returned := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-returned:
		case <-t.C:
			c.settle(c.outcome(ctx, nil, stopError(ctx, &c.tool.decl)))
		}
	})
	return func() {
		unhook()
		close(returned)
	}
}

// settle sends the one outcome; a later one is dropped.
func (c *call) settle(res *frames.ToolResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled {
		c.log.Info("late outcome dropped")
		return
	}
	c.settled = true
	c.live.close()
	err := c.send(res)
	if frames.CodeOf(err) == frames.CodeTooLarge {
		res = c.stamped(&frames.ToolResult{Err: tooLarge(frames.AsError(err))})
		err = c.send(res)
	}
	if err != nil {
		c.log.Error("outcome lost", "error", err)
		return
	}
	c.logOutcome(res)
}

// send answers the call, again and again while there is no connection.
func (c *call) send(res *frames.ToolResult) error {
	reason := endReason(res.Err)
	limit := time.NewTimer(sendLimit)
	defer limit.Stop()
	for {
		err := c.req.End(reason, frames.Result(res, c.opts...))
		if frames.CodeOf(err) != frames.CodeUnavailable {
			return err
		}
		select {
		case <-time.After(sendPause):
		case <-limit.C:
			return err
		case <-c.service:
			return err
		}
	}
}

func endReason(err *frames.Error) string {
	switch {
	case err == nil:
		return frames.EndCompleted
	case err.Code == frames.CodeCancelled:
		return frames.EndCancelled
	}
	return frames.EndError
}

func (c *call) logOutcome(res *frames.ToolResult) {
	if res.Err == nil {
		c.log.Info("call ended", "duration", res.Duration)
		return
	}
	c.log.Info("call failed", "duration", res.Duration, "code", res.Err.Code, "reason", res.Err.Reason)
}
