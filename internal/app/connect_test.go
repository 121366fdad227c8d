package app_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Each service has a connection of its own identity until it has drained.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := bustest.Start(t, bustest.WithoutAssets(), bustest.WithPrefix("lab"))
		var j journal
		var conns []*nats.Conn
		service := func(name, identity string, stage app.Stage) app.Service {
			return app.Service{Name: name, Stage: stage, Identity: identity, Run: func(ctx context.Context, env app.Env, ready func()) error {
				if env.NATS == nil {
					j.addf("%s has no connection", name)
				} else {
					j.addf("%s is %s of %s: %v", name, env.Identity, env.Prefix, env.NATS.Opts.Name)
					conns = append(conns, env.NATS)
				}
				ready()
				<-ctx.Done()
				if env.NATS != nil && !env.NATS.IsConnected() {
					t.Errorf("%s lost its connection before it drained", name)
				}
				return nil
			}}
		}
		connect := func(_ context.Context, identity string) (*nats.Conn, error) { return m.Connect(t, identity), nil }
		r := begin(t, app.Config{Connect: connect, Prefix: "lab"}, service("harness", "harness", app.StageHarness),
			service("router-1", "router", app.StageRouter), service("console", "", app.StageEntry))
		synctest.Wait()
		r.signal()
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		want(t, "connections", j.take(), []string{"harness is harness of lab: harness",
			"router-1 is router of lab: router", "console has no connection"})
		for _, nc := range conns {
			if !nc.IsClosed() {
				t.Errorf("connection of %s is left open", nc.Opts.Name)
			}
		}
	})
}

func TestConnectFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := app.Service{Name: "router", Stage: app.StageRouter, Identity: "router", Run: func(context.Context, app.Env, func()) error {
			t.Error("the service ran without its connection")
			return nil
		}}
		connect := func(context.Context, string) (*nats.Conn, error) {
			return nil, frames.NewError(frames.CodeUnavailable, "nobody at nats://127.0.0.1:1")
		}
		r := begin(t, app.Config{Connect: connect}, never)
		wantError(t, <-r.result, frames.CodeUnavailable, 4, "router: nobody at")
	})
}

// A stop while a service still connects is no failure.
func TestStopWhileConnecting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connect := func(ctx context.Context, _ string) (*nats.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var j journal
		svc := j.worker("router", app.StageRouter, 0)
		svc.Identity = "router"
		r := begin(t, app.Config{Connect: connect}, svc)
		synctest.Wait()
		r.signal()
		if err := <-r.result; err != nil {
			t.Error(err)
		}
	})
}
