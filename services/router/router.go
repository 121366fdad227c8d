// Package router is the dispatcher's face on the bus: it answers the calls, the
// lists and the cancels of clients in any language.
package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
)

// Config sets up the router.
type Config struct {
	// Identity is who the router connects as. Default: "router".
	Identity string
	// Dispatch bounds queues and waits. Default: those of dispatch.Config.
	Dispatch dispatch.Config
}

func (c Config) identity() string { return cmp.Or(c.Identity, "router") }

// New makes the router's service.
func New(cfg Config) app.Service {
	run := func(ctx context.Context, env app.Env, ready func()) error {
		conn, err := bus.New(env.NATS, env.Identity, bus.WithPrefix(env.Prefix))
		if err != nil {
			return err
		}
		defer conn.Close()
		cfg.Dispatch.Log = env.Log
		d, err := dispatch.Follow(ctx, env.Work, conn, cfg.Dispatch)
		if err != nil {
			return err
		}
		defer d.Stop()
		r := &router{conn: conn, d: d, log: env.Log, open: map[*openCall]struct{}{}}
		return r.run(ctx, env.Work, ready)
	}
	return app.Service{Name: "router", Stage: app.StageRouter, Identity: cfg.identity(), Run: run}
}

type router struct {
	conn *bus.Conn
	d    *dispatch.Following
	log  *slog.Logger

	mu   sync.Mutex
	open map[*openCall]struct{}
}

// run serves until ctx ends, and then until every call it took is answered or
// work ends.
func (r *router) run(ctx, work context.Context, ready func()) error {
	ticking, stop := context.WithCancel(work)
	var ticks sync.WaitGroup
	ticks.Go(func() { r.tick(ticking) })
	defer ticks.Wait()
	defer stop()

	subs, err := r.serve(work)
	if err != nil {
		return err
	}
	ready()
	select {
	case err = <-r.d.Failed():
	case <-ctx.Done():
	}
	return errors.Join(err, r.drain(work, subs))
}

func (r *router) serve(work context.Context) ([]*bus.Subscription, error) {
	var subs []*bus.Subscription
	for _, s := range []struct {
		subject, queue string
		handle         bus.Handler
	}{
		{r.conn.Call("*", "*"), bus.QueueRouter, r.call},
		{r.conn.List("*"), bus.QueueRouter, r.list},
		{r.conn.Ctl("*"), "", r.control},
	} {
		sub, err := r.conn.Handle(work, s.subject, s.queue, s.handle, bus.WithLogger(r.log))
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	return subs, r.conn.Flush(work)
}

// drain takes no new call, and waits for those that run.
func (r *router) drain(work context.Context, subs []*bus.Subscription) error {
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Drain(work))
	}
	r.d.Drain(work)
	return errors.Join(append(errs, r.conn.Flush(context.WithoutCancel(work)))...)
}
