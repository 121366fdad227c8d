package hook

import (
	"context"
	"log/slog"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// serveWorkers is how many requests one service answers at once.
	serveWorkers = 256
	// drainLimit bounds the wait for the requests that are being answered.
	drainLimit = 10 * time.Second
)

type serving struct {
	ready func()
	log   *slog.Logger
}

// ServeOption sets how a hook is served.
type ServeOption func(*serving) error

// OnReady is called once, when requests can come. Default: nothing.
func OnReady(ready func()) ServeOption {
	return func(s *serving) error { s.ready = ready; return nil }
}

// Logger gets what happens. Default: slog.Default().
func Logger(l *slog.Logger) ServeOption {
	return func(s *serving) error { s.log = l; return nil }
}

// Serve answers on wb.hook.<name> for a hook and blocks until ctx ends; several
// processes that serve one name share the requests. It answers what it is asked:
// which phases and which tools, the configuration of the router and the loop says.
// A phase for which the hook has no function is kept, or at a gate denied. The
// error is DENIED where the identity has not the role hook.
func Serve(ctx context.Context, conn *bus.Conn, h Hook, opts ...ServeOption) error {
	cfg := serving{ready: func() {}, log: slog.Default()}
	for _, set := range opts {
		if err := set(&cfg); err != nil {
			return err
		}
	}
	if err := h.Validate(); err != nil {
		return err
	}
	s := server{h: h, log: cfg.log.With("hook", h.Name)}
	work := context.WithoutCancel(ctx)
	sub, err := conn.Handle(work, conn.Hook(h.Name), bus.QueueHook, s.answer, bus.WithWorkers(serveWorkers), bus.WithLogger(s.log))
	if err != nil {
		return err
	}
	defer s.drain(work, sub)
	switch err := conn.Flush(ctx); {
	case frames.CodeOf(err) == frames.CodeDenied:
		return frames.NewError(frames.CodeDenied,
			"identity %s may not serve hooks with this key: connect as one that has the role hook, with its key: %w", conn.Identity(), err)
	case err != nil:
		return err
	}
	cfg.ready()
	<-ctx.Done()
	return nil
}

type server struct {
	h   Hook
	log *slog.Logger
}

func (s *server) drain(work context.Context, sub *bus.Subscription) {
	ctx, cancel := context.WithTimeout(work, drainLimit)
	defer cancel()
	if err := sub.Drain(ctx); err != nil {
		s.log.Warn("the hook did not drain", "error", err)
	}
}

// answer answers one request. A function that panics is answered INTERNAL by the
// bus.
func (s *server) answer(ctx context.Context, q *bus.Request) {
	a, err := askedOf(&q.Message)
	if err == nil && a.result == nil && (a.phase == PhaseAfter || a.phase == PhaseError) {
		err = frames.NewError(frames.CodeBadFrame, "phase %s without a TOOL_RESULT", a.phase)
	}
	var fs []frames.Frame
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, s.h.Limit())
		defer cancel()
		fs, err = s.run(ctx, a)
	}
	if err != nil {
		err = q.Fail(err)
	} else {
		err = q.End(frames.EndCompleted, fs...)
	}
	if err != nil {
		s.log.Warn("cannot answer", "error", err)
	}
}

func (s *server) run(ctx context.Context, a *asked) ([]frames.Frame, error) {
	switch a.phase {
	case PhaseBefore:
		if s.h.Before == nil {
			return nil, frames.NewError(frames.CodeConflict, "it is no gate: it has no function for the phase before")
		}
		d, err := s.h.Before(ctx, a.call)
		if err != nil {
			return nil, err
		}
		return d.frames(a.call)
	case PhaseAfter:
		return a.replaced(ctx, s.h.After)
	case PhaseError:
		return a.replaced(ctx, s.h.OnError)
	case PhaseObserve:
		if s.h.Observe == nil {
			return nil, nil
		}
		return nil, s.h.Observe(ctx, a.call, a.result)
	}
	return nil, frames.NewError(frames.CodeBadFrame, "phase %.64q, want before, after, error or observe", a.phase)
}

func (a *asked) replaced(ctx context.Context, f func(context.Context, *Call, *frames.ToolResult) (Outcome, error)) ([]frames.Frame, error) {
	if f == nil {
		return Keep().frames(a.call)
	}
	o, err := f(ctx, a.call, a.result)
	if err != nil {
		return nil, err
	}
	return o.frames(a.call)
}
