// Package harness is the role that sessions come in through: it stores their
// input, applies it to their records, publishes what clients see of it, and sees
// to it that a loop works where there is work.
package harness

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Config sets up the harness.
type Config struct {
	// Identity is who it connects as. Default: "harness".
	Identity string

	// Wakeups is how many sessions' input one replica has in hand at once.
	// Default: 64.
	Wakeups int

	// Requests is how many requests of clients it answers at once. Default: 64.
	Requests int
}

func (c Config) withDefaults() Config {
	if c.Identity == "" {
		c.Identity = "harness"
	}
	if c.Wakeups == 0 {
		c.Wakeups = 64
	}
	if c.Requests == 0 {
		c.Requests = 64
	}
	return c
}

func (c Config) validate() error {
	switch {
	case !frames.ValidName(c.Identity):
		return frames.NewError(frames.CodeValidationInput, "harness: Identity: %q is no name", c.Identity)
	case c.Wakeups < 1:
		return frames.NewError(frames.CodeValidationInput, "harness: Wakeups: %d is below 1", c.Wakeups)
	case c.Requests < 1:
		return frames.NewError(frames.CodeValidationInput, "harness: Requests: %d is below 1", c.Requests)
	}
	return nil
}

// New makes the harness's service. Any number of them serve a mesh together.
func New(cfg Config) app.Service {
	cfg = cfg.withDefaults()
	run := func(ctx context.Context, env app.Env, ready func()) error {
		if err := cfg.validate(); err != nil {
			return err
		}
		h, err := open(ctx, cfg, env)
		if err != nil {
			return err
		}
		defer h.conn.Close()
		return h.run(ctx, env.Work, ready)
	}
	return app.Service{Name: "harness", Stage: app.StageHarness, Identity: cfg.Identity, Run: run}
}

type harness struct {
	cfg  Config
	conn *bus.Conn
	js   jetstream.JetStream
	log  *slog.Logger
	// prefix is the mesh's.
	prefix string

	store   *session.Store
	jobs    *session.Jobs
	inbox   jetstream.Stream
	wakeups jetstream.Consumer

	slots session.Slots // one for each wake-up in hand
	// work waits for the goroutines of sessions.
	work    sync.WaitGroup
	mu      sync.Mutex
	running map[session.Key]*sessionWork
}

func open(ctx context.Context, cfg Config, env app.Env) (*harness, error) {
	conn, err := bus.New(env.NATS, env.Identity, bus.WithPrefix(env.Prefix))
	if err != nil {
		return nil, err
	}
	h := &harness{
		cfg: cfg, conn: conn, log: env.Log, prefix: env.Prefix,
		slots: session.NewSlots(cfg.Wakeups), running: map[session.Key]*sessionWork{},
	}
	if err := h.openAssets(ctx, env.Prefix); err != nil {
		conn.Close()
		return nil, err
	}
	return h, nil
}

func (h *harness) openAssets(ctx context.Context, prefix string) (err error) {
	if h.js, err = jetstream.New(h.conn.NATS()); err != nil {
		return frames.NewError(frames.CodeInternal, "cannot use JetStream: %w", err)
	}
	if h.store, err = session.Open(ctx, h.js, prefix); err != nil {
		return err
	}
	if h.jobs, err = session.OpenJobs(ctx, h.js, prefix); err != nil {
		return err
	}
	if h.inbox, err = assets.Stream(ctx, h.js, assets.InStream(prefix)); err != nil {
		return err
	}
	h.wakeups, err = assets.Consumer(ctx, h.js, assets.InStream(prefix), assets.HarnessDurable)
	return err
}

// run serves until ctx ends, and then until what it took is handled or work ends.
func (h *harness) run(ctx, work context.Context, ready func()) error {
	subs, err := h.serve(work)
	if err != nil {
		return err
	}
	expiring, stop := context.WithCancel(ctx)
	defer stop()
	h.work.Go(func() { h.expire(expiring, work) })
	h.work.Go(func() { h.sweep(expiring) })
	ready()
	h.follow(ctx, work)
	stop()
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Drain(work))
	}
	h.work.Wait()
	return errors.Join(append(errs, h.conn.Flush(context.WithoutCancel(work)))...)
}

func (h *harness) serve(work context.Context) ([]*bus.Subscription, error) {
	var subs []*bus.Subscription
	for _, s := range []struct {
		subject string
		handle  bus.Handler
	}{
		{h.conn.In("*", "*"), h.accept},
		{h.conn.Sessions("*"), h.sessions},
	} {
		sub, err := h.conn.Handle(work, s.subject, bus.QueueHarness, s.handle, bus.WithLogger(h.log), bus.WithWorkers(h.cfg.Requests))
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	return subs, h.conn.Flush(work)
}
