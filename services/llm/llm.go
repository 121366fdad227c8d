// Package llm puts model providers on the bus: each answers requests on
// wb.llm.<provider>, in the form that package modelbus describes.
package llm

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Config sets up the service.
type Config struct {
	// Identity is who the service connects as. Default: "llm".
	Identity string
	// Providers are what is put on the bus, each under its own name. Required.
	Providers []provider.Provider
	// Prices are of models by provider/model, for those whose provider does not say
	// what a request cost. Default: none, such requests cost 0.
	Prices map[string]provider.Price
	// Concurrency is how many requests run at once, of all providers together.
	// Default: 64.
	Concurrency int
	// QueueLimit is how many more may wait; the next is BUSY. Default: 1000.
	QueueLimit int
}

func (c Config) withDefaults() Config {
	if c.Identity == "" {
		c.Identity = "llm"
	}
	if c.Concurrency == 0 {
		c.Concurrency = 64
	}
	if c.QueueLimit == 0 {
		c.QueueLimit = 1000
	}
	return c
}

func (c Config) validate() error {
	switch {
	case !frames.ValidName(c.Identity):
		return invalid("Identity: %q is no name", c.Identity)
	case len(c.Providers) == 0:
		return invalid("Providers: none given")
	case c.Concurrency < 0:
		return invalid("Concurrency: %d is negative", c.Concurrency)
	case c.QueueLimit < 0:
		return invalid("QueueLimit: %d is negative", c.QueueLimit)
	}
	for _, p := range c.Providers {
		if !frames.ValidName(p.Name()) {
			return invalid("Providers: the name %q cannot stand in a subject", p.Name())
		}
	}
	_, err := provider.NewSet(c.Providers...)
	return err
}

func invalid(format string, args ...any) error {
	return frames.NewError(frames.CodeValidationInput, "llm: "+format, args...)
}

// New makes the service.
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
		a := &adapter{
			cfg: cfg, conn: conn, log: env.Log, instance: nuid.Next(),
			slots: make(chan struct{}, cfg.Concurrency), open: map[string]*request{},
		}
		return a.run(ctx, env.Work, ready)
	}
	return app.Service{Name: "llm", Stage: app.StageTools, Identity: cfg.Identity, Run: run}
}

// adapter is one running service.
type adapter struct {
	cfg      Config
	conn     *bus.Conn
	log      *slog.Logger
	instance string
	slots    chan struct{}

	requests sync.WaitGroup
	mu       sync.Mutex
	open     map[string]*request
}

// run serves until ctx ends, and then until every request it took is answered
// or work ends.
func (a *adapter) run(ctx, work context.Context, ready func()) error {
	subs, err := a.serve(work)
	if err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return a.drain(work, subs)
}

func (a *adapter) serve(work context.Context) ([]*bus.Subscription, error) {
	var subs []*bus.Subscription
	add := func(subject, queue string, h bus.Handler) error {
		s, err := a.conn.Handle(work, subject, queue, h, bus.WithLogger(a.log))
		if err == nil {
			subs = append(subs, s)
		}
		return err
	}
	// The control subject comes last, so that it is drained last.
	for _, p := range a.cfg.Providers {
		if err := add(a.conn.LLM(p.Name()), bus.QueueLLM, func(ctx context.Context, q *bus.Request) { a.take(ctx, q, p) }); err != nil {
			return nil, err
		}
	}
	if err := add(a.conn.Inst(a.conn.Identity(), a.instance), "", a.control); err != nil {
		return nil, err
	}
	return subs, a.conn.Flush(work)
}

func (a *adapter) drain(work context.Context, subs []*bus.Subscription) error {
	var errs []error
	control := len(subs) - 1
	for _, s := range subs[:control] {
		errs = append(errs, s.Drain(work))
	}
	a.requests.Wait() // work ends them
	errs = append(errs, subs[control].Drain(context.WithoutCancel(work)))
	return errors.Join(append(errs, a.conn.Flush(context.WithoutCancel(work)))...)
}
