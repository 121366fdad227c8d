package llm_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/modelbus"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/services/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a provider that plays what the test says.
type fake struct {
	name string
	play func(ctx context.Context, req *provider.Request, yield func(provider.Event, error) bool)
}

func (f fake) Name() string { return f.name }

func (f fake) Stream(ctx context.Context, req *provider.Request) iter.Seq2[provider.Event, error] {
	return func(yield func(provider.Event, error) bool) { f.play(ctx, req, yield) }
}

// rig is a mesh with the service, and the loop's side.
type rig struct {
	t    *testing.T
	mesh *bustest.Mesh
	loop *bus.Conn
	m    *modelbus.Client
}

func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, mesh: bustest.Start(t, bustest.WithoutAssets())}
		r.loop = r.connect("loop")
		r.m = modelbus.NewClient(r.loop)
		test(t, r)
	})
}

func (r *rig) connect(identity string) *bus.Conn {
	r.t.Helper()
	c, err := bus.New(r.mesh.Connect(r.t, identity), identity)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// service is a running one; stop drains it, and kill ends its work as well.
type service struct {
	stop, kill context.CancelFunc
	done       chan struct{}
	err        error
}

// end stops the service, hard where it does not end by itself.
func (s *service) end() {
	s.stop()
	select {
	case <-s.done:
	case <-time.After(time.Second): // virtual time
		s.kill()
		<-s.done
	}
	<-time.After(time.Second) // what the connection drains meanwhile
}

var errHard = errors.New("the soft stop is over")

func (r *rig) serve(cfg llm.Config) *service {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	work, kill := context.WithCancelCause(context.WithoutCancel(r.t.Context()))
	s := &service{stop: stop, kill: func() { kill(errHard) }, done: make(chan struct{})}
	env := app.Env{
		Identity: "llm", Prefix: "wb", NATS: r.mesh.Connect(r.t, "llm"), Work: work,
		Log: slog.New(slog.DiscardHandler),
	}
	ready := make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = llm.New(cfg).Run(ctx, env, func() { close(ready) })
	}()
	select {
	case <-ready:
	case <-s.done:
		r.t.Fatal(s.err)
	}
	r.t.Cleanup(s.end)
	return s
}

// envWithout is an environment for a service that does not come to use it.
func envWithout(r *rig) app.Env {
	return app.Env{Identity: "llm", Prefix: "wb", Work: r.t.Context(), Log: slog.New(slog.DiscardHandler)}
}
