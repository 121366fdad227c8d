package dispatch

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

const (
	// hookRuns is how many runs of one hook there may be at once, those counted
	// that have outlived their time.
	hookRuns = 1024
	// hookLogPause is the least time between two lines of the log about one hook.
	hookLogPause = time.Second
)

// guarded is a hook that can neither hold a call up for longer than its time nor
// end the process.
type guarded struct {
	hook.Hook
	log    *slog.Logger
	slots  chan struct{}
	events events

	denied, failed, dropped atomic.Uint64

	mu     sync.Mutex
	logged time.Time
	silent int // failures since that were not logged
}

func guard(h hook.Hook, log *slog.Logger) *guarded {
	g := &guarded{Hook: h, log: log.With("hook", h.Name), slots: make(chan struct{}, hookRuns)}
	g.events.idle = sync.NewCond(&g.events.mu)
	return g
}

type ran[T any] struct {
	v   T
	err error
}

// run runs a function of a hook: every run of every phase passes here. It returns
// when the function does, its time is over, or ctx ends.
func run[T any](ctx context.Context, g *guarded, phase hook.Phase, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.Limit(), frames.NewError(frames.CodeTimeout, "it took longer than %v", g.Limit()))
	defer cancel()
	var r ran[T]
	if ctx.Err() != nil {
		return r.v, context.Cause(ctx)
	}
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return r.v, context.Cause(ctx)
	}
	done := make(chan ran[T], 1)
	go func() {
		defer func() { <-g.slots }()
		done <- safely(ctx, g, phase, f)
	}()
	select {
	case r = <-done:
	case <-ctx.Done():
		return r.v, context.Cause(ctx)
	}
	if r.err != nil && ctx.Err() != nil {
		r.err = context.Cause(ctx)
	}
	return r.v, r.err
}

func safely[T any](ctx context.Context, g *guarded, phase hook.Phase, f func(context.Context) (T, error)) (r ran[T]) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("hook panicked", "phase", phase, "panic", p, "stack", string(debug.Stack()))
			r.err = frames.NewError(frames.CodeInternal, "it panicked")
		}
	}()
	r.v, r.err = f(ctx)
	return r
}

// fault counts and logs a run without an outcome.
func (g *guarded) fault(phase hook.Phase, c *hook.Call, err error) {
	g.failed.Add(1)
	g.warn("hook failed", "phase", phase, "tool", c.Tool, "call_id", c.ID, "error", frames.AsError(err).Error())
}

// warn logs, once in a while; the failures between are counted in the next line.
func (g *guarded) warn(msg string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.logged) < hookLogPause {
		g.silent++
		return
	}
	if g.silent > 0 {
		args = append(args, "not_logged", g.silent)
	}
	g.logged, g.silent = time.Now(), 0
	g.log.Warn(msg, args...)
}
