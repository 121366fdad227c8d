package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// againLimit is how long a call waits for its first run to end.
	againLimit = 30 * time.Second
	// againPause comes between two attempts at it.
	againPause = 250 * time.Millisecond
	// endTimeout is how long a tool may take to say that it heard a CANCEL.
	endTimeout = 2 * time.Second
)

// again runs a safe call a second time under its id. The first run's dispatcher
// is gone, and with it the way for its result: where a tool still works on it,
// that run is ended first.
type again struct {
	t        *tools
	p        *dispatch.Prepared
	done     func(*frames.ToolResult)
	deadline time.Time

	mu     sync.Mutex
	cancel func(error)
	cause  error // of a cancel
}

func (t *tools) startAgain(ctx context.Context, p *dispatch.Prepared, done func(*frames.ToolResult)) (cancel func(error)) {
	a := &again{t: t, p: p, done: done, deadline: time.Now().Add(againLimit)}
	a.start(ctx)
	return a.stop
}

func (a *again) start(ctx context.Context) {
	if ctx.Err() != nil {
		a.done(&frames.ToolResult{Err: frames.Interrupted(a.p.Tool, "")}) // nobody's any more
		return
	}
	if cause := a.stopped(); cause != nil {
		a.done(&frames.ToolResult{Err: stopError(a.p.Tool, cause)})
		return
	}
	cancel := a.t.d.Start(ctx, a.p, func(r *frames.ToolResult) { a.finished(ctx, r) })
	a.mu.Lock()
	a.cancel = cancel
	cause := a.cause
	a.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
}

func stopError(tool string, cause error) *frames.Error {
	if e, ok := errors.AsType[*frames.Error](cause); ok {
		return e
	}
	return frames.Cancelled(tool)
}

func (a *again) stopped() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

func (a *again) stop(cause error) {
	a.mu.Lock()
	a.cause = cause
	cancel := a.cancel
	a.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// finished passes the result on, unless it says that the first run still goes on.
func (a *again) finished(ctx context.Context, r *frames.ToolResult) {
	switch {
	case r.Err == nil || r.Err.Code != frames.CodeConflict || r.Err.Effect != frames.EffectNone:
		a.done(r)
	case time.Now().After(a.deadline):
		a.done(&frames.ToolResult{Err: frames.Interrupted(a.p.Tool, "")})
	default:
		go a.afterTheFirst(ctx)
	}
}

// afterTheFirst ends the first run and starts the call. A CANCEL that was
// answered cannot meet the second run.
func (a *again) afterTheFirst(ctx context.Context) {
	if !a.t.d.Cancel(a.p.Caller, a.p.ID) { // by a job of this process that lost the session
		f := frames.Cancel(a.p.ID, a.p.Tool, frames.WithMeta("caller", a.p.Caller))
		limited, cancel := context.WithTimeout(ctx, endTimeout)
		_, _ = a.t.conn.Request(limited, a.t.conn.CtlTool(a.p.Tool), &f) // the next attempt shows what came of it
		cancel()
	}
	_ = pause.For(ctx, againPause) // start sees an end
	a.start(ctx)
}
