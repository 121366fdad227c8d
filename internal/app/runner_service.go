package app

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// service is a Service with its life in one run.
type service struct {
	Service
	ctx     context.Context //nolint:containedctx // the service's own, which its stage ends
	cancel  context.CancelCauseFunc
	ready   chan struct{}
	done    chan struct{}
	started bool // by the runner's own goroutine only
}

func newService(ctx context.Context, def Service) *service {
	s := &service{Service: def, ready: make(chan struct{}), done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

func (s *service) running() bool {
	if !s.started {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// endsBefore waits for the service's end; false: the timer came first.
func (s *service) endsBefore(timer <-chan time.Time) bool {
	select {
	case <-s.done:
		return true
	case <-timer:
		return false
	}
}

// runService runs one service to its end and judges it.
func (r *runner) runService(s *service) {
	defer close(s.done)
	defer r.health.set(s.Name, stateEnded)
	log := r.cfg.Log.With("service", s.Name)
	err := r.connectAndRun(s)
	switch {
	case r.work.Err() != nil:
		log.Warn("ended after its work was cancelled", "error", err)
		r.noteCutOff(s.Name)
	case err == nil && s.ctx.Err() != nil:
		log.Debug("drained")
	case err == nil && s.OneShot:
		r.stop(errFinished)
	case err == nil:
		r.fail(s, frames.NewError(frames.CodeInternal, "ended by itself"))
	default:
		r.fail(s, err)
	}
}

// fail keeps the first failure and takes all services down.
func (r *runner) fail(s *service, err error) {
	failed := frames.AsError(err)
	r.cfg.Log.Error("failed", "service", s.Name, "error", err)
	r.mu.Lock()
	if r.failure == nil {
		r.failure = failed.With(func(e *frames.Error) { e.Message = s.Name + ": " + e.Message })
	}
	err = r.failure
	r.mu.Unlock()
	r.stop(err)
}

func (r *runner) connectAndRun(s *service) (err error) {
	env := Env{
		Identity: s.Identity,
		Prefix:   r.cfg.Prefix,
		Log:      r.cfg.Log.With("service", s.Name),
		Work:     r.work,
	}
	if s.Identity != "" {
		env.NATS, err = r.cfg.Connect(s.ctx, s.Identity)
		switch {
		case err != nil && s.ctx.Err() != nil:
			return nil // given up before it began
		case err != nil:
			return err
		}
		defer env.NATS.Close()
	}
	return r.runCaught(s, env)
}

// runCaught makes a panic of Run an error.
func (r *runner) runCaught(s *service, env Env) (err error) {
	defer func() {
		if v := recover(); v != nil {
			env.Log.Error("panic", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = frames.NewError(frames.CodeInternal, "panic: %v", v)
		}
	}()
	return s.Run(s.ctx, env, sync.OnceFunc(func() {
		r.health.set(s.Name, stateReady)
		close(s.ready)
	}))
}
