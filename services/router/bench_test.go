package router_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/router"
)

// BenchmarkCall is one call of a client through the router to a tool of the SDK
// that answers at once, over NATS in the process.
func BenchmarkCall(b *testing.B) {
	m := bustest.Start(b)
	quiet := slog.New(slog.DiscardHandler)
	s := tool.NewSet("bench")
	if err := s.AddRaw(frames.Declaration{Name: "echo"}, gives(`{"ok":true}`)); err != nil {
		b.Fatal(err)
	}
	local, me := benchConn(b, m, "local"), benchConn(b, m, "me")
	serveBench(b, func(ctx context.Context, ready func()) error {
		return tool.Serve(ctx, local, s, tool.OnReady(ready), tool.Logger(quiet))
	})
	env := app.Env{Identity: "router", Prefix: "wb", NATS: m.Connect(b, "router"), Log: quiet, Work: context.Background()}
	serveBench(b, func(ctx context.Context, ready func()) error { return router.New(router.Config{}).Run(ctx, env, ready) })
	c := client.New(me)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res, err := c.Call(context.Background(), "echo", json.RawMessage(`{}`))
			if err != nil || res.Err != nil {
				b.Error(err, res)
				return
			}
		}
	})
}

func benchConn(b *testing.B, m *bustest.Mesh, identity string) *bus.Conn {
	b.Helper()
	c, err := bus.New(m.Connect(b, identity), identity)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}

// serveBench runs a service until the benchmark's end, and waits until it is ready.
func serveBench(b *testing.B, run func(ctx context.Context, ready func()) error) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- run(ctx, func() { close(ready) }) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	<-ready
}
