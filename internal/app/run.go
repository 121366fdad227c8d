package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Run runs the services until ctx ends, a signal comes, a [Service] that is
// OneShot is done, or one fails; then it stops them in stages.
//
// It returns nil when all have drained; the failure of the first service that
// failed, which names it and keeps its code; or, when the work had to be
// cancelled, an error that wraps [ErrHardStop]. [ExitCode] gives the process's
// exit code for each.
func Run(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	r := newRunner(ctx, cfg)
	defer r.close()
	closeAdmin, err := serveAdmin(ctx, cfg, r.health)
	if err != nil {
		return err
	}
	defer closeAdmin()

	go r.watchSignals()
	r.up()
	<-r.stopping.Done()
	r.down()
	return r.result()
}

// Why the services are stopped, or their work is cancelled.
var (
	errSignal   = errors.New("stopped by a signal")
	errFinished = errors.New("the command is done")
	errSecond   = fmt.Errorf("%w: second signal", ErrHardStop)
	errSoftOver = fmt.Errorf("%w: soft stop is over", ErrHardStop)
	errEnded    = errors.New("all services have ended")
)

type runner struct {
	cfg      Config
	services []*service
	health   *health

	stopping context.Context //nolint:containedctx // ends when the soft stop begins
	stop     context.CancelCauseFunc
	work     context.Context //nolint:containedctx // ends when work in hand is given up
	cut      context.CancelCauseFunc

	mu      sync.Mutex
	failure error    // of the first service that failed
	cutOff  []string // services whose work was cancelled
}

func newRunner(ctx context.Context, cfg Config) *runner {
	r := &runner{cfg: cfg, health: newHealth()}
	r.stopping, r.stop = context.WithCancelCause(ctx)
	detached := context.WithoutCancel(ctx)
	r.work, r.cut = context.WithCancelCause(detached)
	for _, def := range cfg.Services {
		r.services = append(r.services, newService(detached, def))
		r.health.set(def.Name, stateStarting)
	}
	return r
}

// close frees the contexts; services that did not return stay cancelled.
func (r *runner) close() {
	r.stop(errEnded)
	r.cut(errEnded)
	for _, s := range r.services {
		s.cancel(errEnded)
	}
}

func (r *runner) watchSignals() {
	for begin := range twice(r.work, r.cfg.Signals) {
		if begin == 0 {
			r.cfg.Log.Info("stopping: a second signal ends the work at once")
			r.stop(errSignal)
			continue
		}
		r.cut(errSecond)
	}
}

// twice counts the first two signals, until ctx ends.
func twice(ctx context.Context, signals <-chan os.Signal) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range 2 {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			if !yield(i) {
				return
			}
		}
	}
}

// up starts the stages, unless a stop comes first.
func (r *runner) up() {
	for stage := StageNATS; stage <= StageEntry; stage++ {
		started := r.inStage(stage)
		for _, s := range started {
			if r.stopping.Err() != nil {
				return
			}
			s.started = true
			go r.runService(s)
		}
		for _, s := range started {
			select {
			case <-s.ready:
			case <-r.stopping.Done():
				return
			}
		}
	}
	if r.stopping.Err() == nil {
		r.cfg.OnReady()
	}
}

func (r *runner) inStage(stage Stage) []*service {
	var out []*service
	for _, s := range r.services {
		if s.Stage == stage {
			out = append(out, s)
		}
	}
	return out
}

// down drains the stages in order within the soft stop; then, or at a second
// signal, it cancels all work and waits for the hard stop.
func (r *runner) down() {
	r.health.drain()
	r.cfg.Log.Info("draining", "cause", context.Cause(r.stopping))
	softStop := time.AfterFunc(r.cfg.SoftStop, func() { r.cut(errSoftOver) })
	defer softStop.Stop()
	for stage := StageEntry; stage >= StageNATS; stage-- {
		if !r.drain(r.inStage(stage)) {
			r.abandon()
			return
		}
	}
}

// drain asks services to end and waits for them; false: the work was cancelled first.
func (r *runner) drain(services []*service) bool {
	var names []string
	for _, s := range services {
		if s.running() {
			names = append(names, s.Name)
		}
		s.cancel(context.Cause(r.stopping))
	}
	if len(names) > 0 {
		r.cfg.OnDrain(names)
	}
	for _, s := range services {
		if !s.started {
			continue
		}
		select {
		case <-s.done:
		case <-r.work.Done():
			return false
		}
	}
	return true
}

// abandon waits for the services to return now that their work is cancelled.
func (r *runner) abandon() {
	hardStop := time.NewTimer(r.cfg.HardStop)
	defer hardStop.Stop()
	for _, s := range r.services {
		s.cancel(context.Cause(r.work))
	}
	for _, s := range r.services {
		if s.started && !s.endsBefore(hardStop.C) {
			break
		}
	}
	r.noteRunning()
}

// noteRunning counts services that did not even return as cut off.
func (r *runner) noteRunning() {
	for _, s := range r.services {
		if s.running() {
			r.cfg.Log.Error("does not return", "service", s.Name, "after", r.cfg.HardStop)
			r.noteCutOff(s.Name)
		}
	}
}

func (r *runner) noteCutOff(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cutOff = append(r.cutOff, name)
}

func (r *runner) result() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failure != nil:
		return r.failure
	case len(r.cutOff) > 0:
		slices.Sort(r.cutOff)
		return frames.NewError(frames.CodeInterrupted, "work of %s was cancelled: %w",
			strings.Join(r.cutOff, ", "), context.Cause(r.work))
	}
	return nil
}
