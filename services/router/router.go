// Package router is the dispatcher's face on the bus: it answers the calls, the
// lists and the cancels of clients in any language.
package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// callWorkers is how many calls are read and checked at once; calls that run
// take none of them.
const callWorkers = 1024

// Config sets up the router.
type Config struct {
	// Identity is who the router connects as. Default: "router".
	Identity string
	// Dispatch bounds queues and waits. Default: those of dispatch.Config.
	Dispatch dispatch.Config
	// StreamLimit is how long the arguments of one call may come in pieces.
	// Default: 10 minutes.
	StreamLimit time.Duration
	// Hooks decide on tool calls and look at them, in this order; the loop's should
	// be the same. Default: none.
	Hooks []hook.Hook
}

func (c Config) identity() string { return cmp.Or(c.Identity, "router") }

func (c Config) validate() error {
	if !frames.ValidName(c.identity()) {
		return frames.NewError(frames.CodeValidationInput, "router: Identity %q: want letters, digits, _ and -", c.Identity)
	}
	if c.StreamLimit < 0 {
		return frames.NewError(frames.CodeValidationInput, "router: StreamLimit: %v, want 0 for the default or more", c.StreamLimit)
	}
	if err := hook.Check(c.Hooks); err != nil {
		return frames.AsError(err).With(func(e *frames.Error) { e.Message = "router: Hooks: " + e.Message })
	}
	if err := c.Dispatch.Validate(); err != nil {
		return frames.AsError(err).With(func(e *frames.Error) { e.Message = "router: Dispatch." + e.Message })
	}
	return nil
}

// New makes the router's service.
func New(cfg Config) app.Service {
	run := func(ctx context.Context, env app.Env, ready func()) error {
		cfg := cfg
		if err := cfg.validate(); err != nil {
			return err
		}
		conn, err := bus.New(env.NATS, env.Identity, bus.WithPrefix(env.Prefix))
		if err != nil {
			return err
		}
		defer conn.Close()
		cfg.Dispatch.Log, cfg.Dispatch.Hooks = env.Log, cfg.Hooks
		d, err := dispatch.Follow(ctx, env.Work, conn, cfg.Dispatch)
		if err != nil {
			return err
		}
		defer d.Stop()
		r := &router{
			conn: conn, d: d, log: env.Log, over: env.Work.Done(), open: map[*openCall]struct{}{},
			streams: newStreams(nuid.Next(), argstream.Limits{Bytes: conn.InlineLimit(), Age: cfg.StreamLimit}),
		}
		return r.run(ctx, env.Work, ready)
	}
	return app.Service{Name: "router", Stage: app.StageRouter, Identity: cfg.identity(), Run: run}
}

type router struct {
	conn *bus.Conn
	d    *dispatch.Following
	log  *slog.Logger

	over <-chan struct{} // the end of the work context

	// looking counts names that are looked for, resending answers that are sent
	// again: both go on behind the back of the subscriptions.
	looking, resending sync.WaitGroup

	streams *streams

	mu   sync.Mutex
	open map[*openCall]struct{}
}

// run serves until ctx ends, and then until every call it took is answered or
// work ends.
func (r *router) run(ctx, work context.Context, ready func()) error {
	ticking, stop := context.WithCancel(work)
	var ticks sync.WaitGroup
	ticks.Go(func() { r.tick(ticking) })
	ticks.Go(func() { r.d.Registry().Keep(ticking) })
	defer ticks.Wait()
	defer stop()

	entries, err := r.serve(work,
		entry{r.conn.Call("*", "*"), bus.QueueRouter, r.call, []bus.HandleOption{bus.WithWorkers(callWorkers)}},
		entry{r.conn.List("*"), bus.QueueRouter, r.list, nil},
		entry{r.conn.Admin("*", "*"), bus.QueueRouter, r.admin, []bus.HandleOption{bus.WithWorkers(adminWorkers)}},
		entry{r.conn.Sink("*", r.streams.id), "", r.sink, nil})
	if err != nil {
		return err
	}
	controls, err := r.serve(work, entry{r.conn.Ctl("*"), "", r.control, nil})
	if err != nil {
		return err
	}
	if err := r.conn.Flush(work); err != nil {
		return err
	}
	ready()
	select {
	case err = <-r.d.Failed():
	case <-ctx.Done():
	}
	return errors.Join(err, r.drain(work, entries, controls))
}

// entry is a subject with who answers it.
type entry struct {
	subject, queue string
	handle         bus.Handler
	opts           []bus.HandleOption
}

func (r *router) serve(work context.Context, entries ...entry) ([]*bus.Subscription, error) {
	var subs []*bus.Subscription
	for _, e := range entries {
		sub, err := r.conn.Handle(work, e.subject, e.queue, e.handle, append(e.opts, bus.WithLogger(r.log))...)
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// drain takes no new call and waits for those that run, which can be cancelled
// until then.
func (r *router) drain(work context.Context, entries, controls []*bus.Subscription) error {
	errs := []error{drainAll(work, entries)}
	r.looking.Wait()
	r.d.Drain(work)
	r.resending.Wait()
	errs = append(errs, drainAll(work, controls))
	return errors.Join(append(errs, r.conn.Flush(context.WithoutCancel(work)))...)
}

func drainAll(ctx context.Context, subs []*bus.Subscription) error {
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Drain(ctx))
	}
	return errors.Join(errs...)
}
