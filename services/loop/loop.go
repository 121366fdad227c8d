// Package loop runs the tool loop on the bus: ephemeral runs on wb.loop.<caller>,
// and the turns of sessions, whose jobs it takes from WB_RUN.
//
// A session belongs to the loop that took its job until a revision without an
// owner gives it up. Each transition of its turn is a revision, written before the
// loop acts on it; a loop that finds another owner stops at once.
package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/modelbus"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// Config sets up the loop.
type Config struct {
	// Identity is who the service connects as. Default: "loop".
	Identity string
	// Dispatch bounds queues and waits of tool calls. Default: those of dispatch.Config.
	Dispatch dispatch.Config
	// Hooks decide on tool calls and look at them, in this order; the router's should
	// be the same. Default: none.
	Hooks []hook.Hook
	// Sessions is how many sessions this process works on at once. Default: 64.
	Sessions int
	// Runs is how many ephemeral runs of one depth this process runs at once; the
	// next is BUSY. Default: 64.
	Runs int
}

func (c Config) withDefaults() Config {
	if c.Identity == "" {
		c.Identity = "loop"
	}
	if c.Sessions == 0 {
		c.Sessions = 64
	}
	if c.Runs == 0 {
		c.Runs = 64
	}
	return c
}

func (c Config) validate() error {
	switch {
	case !frames.ValidName(c.Identity):
		return frames.NewError(frames.CodeValidationInput, "loop: Identity: %q is no name", c.Identity)
	case c.Sessions < 0:
		return frames.NewError(frames.CodeValidationInput, "loop: Sessions: %d is negative", c.Sessions)
	case c.Runs < 0:
		return frames.NewError(frames.CodeValidationInput, "loop: Runs: %d is negative", c.Runs)
	}
	if err := hook.Check(c.Hooks); err != nil {
		return frames.AsError(err).With(func(e *frames.Error) { e.Message = "loop: Hooks: " + e.Message })
	}
	return nil
}

// New makes the loop's service.
func New(cfg Config) app.Service {
	cfg = cfg.withDefaults()
	run := func(ctx context.Context, env app.Env, ready func()) error {
		if err := cfg.validate(); err != nil {
			return err
		}
		conn, err := bus.New(env.NATS, env.Identity, bus.WithPrefix(env.Prefix))
		if err != nil {
			return err
		}
		defer conn.Close()
		calls := cfg.Dispatch
		calls.Log, calls.Hooks = env.Log, cfg.Hooks
		d, err := dispatch.Follow(ctx, env.Work, conn, calls)
		if err != nil {
			return err
		}
		defer d.Stop()
		l := &loop{
			cfg: cfg, conn: conn, d: d, log: env.Log, models: modelbus.NewClient(conn), instance: nuid.Next(),
			slots: session.NewSlots(cfg.Sessions), jobs: map[session.Key]*job{}, runs: map[runKey]*run{}, perDepth: map[int]int{},
			kept: &keeping{most: maxKept},
		}
		if err := l.open(ctx, env.Prefix); err != nil {
			return err
		}
		return l.run(ctx, env.Work, ready)
	}
	return app.Service{Name: "loop", Stage: app.StageLoop, Identity: cfg.Identity, Run: run}
}

// loop is one running service.
type loop struct {
	cfg      Config
	conn     *bus.Conn
	d        *dispatch.Following
	log      *slog.Logger
	models   *modelbus.Client
	instance string

	store *session.Store
	queue *session.Jobs
	taken jetstream.Consumer
	slots session.Slots // one for each session that is worked on

	// working counts sessions and runs.
	working sync.WaitGroup

	mu       sync.Mutex
	draining bool
	jobs     map[session.Key]*job
	runs     map[runKey]*run
	perDepth map[int]int
	kept     *keeping // of ephemeral runs
}

// open opens what the mesh keeps in JetStream.
func (l *loop) open(ctx context.Context, prefix string) error {
	js, err := jetstream.New(l.conn.NATS())
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "JetStream: %w", bus.Words(err))
	}
	if l.store, err = session.Open(ctx, js, prefix); err != nil {
		return err
	}
	if l.queue, err = session.OpenJobs(ctx, js, prefix); err != nil {
		return err
	}
	l.taken, err = assets.Consumer(ctx, js, assets.RunStream(prefix), assets.LoopDurable)
	return err
}

// run serves until ctx ends. Then ephemeral runs go on to their end and sessions
// to that of their step, or until work ends.
func (l *loop) run(ctx, work context.Context, ready func()) error {
	requests, controls, err := l.serve(work)
	if err != nil {
		return err
	}
	fetching, stop := context.WithCancel(ctx)
	defer stop()
	var fetch sync.WaitGroup
	fetch.Go(func() { l.fetch(fetching, work) })
	ready()
	select {
	case err = <-l.d.Failed():
	case <-ctx.Done():
	}
	stop()
	err = errors.Join(err, requests.Drain(work))
	fetch.Wait()
	l.drain()
	l.working.Wait()
	l.d.Drain(work)
	return errors.Join(err, l.close(work, controls))
}

// serve takes requests, and what controls those that run.
func (l *loop) serve(work context.Context) (requests *bus.Subscription, controls []*bus.Subscription, err error) {
	for _, c := range []struct {
		subject string
		handle  bus.Handler
	}{
		{l.conn.Ctl("*"), l.control},
		{l.conn.Inst(l.conn.Identity(), l.instance), l.wake},
	} {
		s, err := l.conn.Handle(work, c.subject, "", c.handle, bus.WithLogger(l.log))
		if err != nil {
			return nil, nil, err
		}
		controls = append(controls, s)
	}
	requests, err = l.conn.Handle(work, l.conn.Loop("*"), bus.QueueLoop, l.request, bus.WithLogger(l.log))
	if err != nil {
		return nil, nil, err
	}
	return requests, controls, l.conn.Flush(work)
}

// drain lets sessions end their step; ephemeral runs have nowhere to go on.
func (l *loop) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	for _, j := range l.jobs {
		j.drain()
	}
}

func (l *loop) close(work context.Context, controls []*bus.Subscription) error {
	last := context.WithoutCancel(work)
	var errs []error
	for _, s := range controls {
		errs = append(errs, s.Drain(last))
	}
	return errors.Join(append(errs, l.conn.Flush(last))...)
}

// reply logs an answer that could not be sent; there is nobody else to tell.
func (l *loop) reply(err error, q *bus.Request) {
	if err != nil {
		l.log.Warn("cannot answer", "subject", q.Subject, "error", err)
	}
}
