package dispatch_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// BenchmarkCall is one call of the dispatcher to an instance that answers at
// once, over NATS in the process: the loop's way.
func BenchmarkCall(b *testing.B) {
	for name, decl := range map[string]frames.Declaration{
		"plain":   {Name: "echo"},
		"schemas": {Name: "echo", Schema: []byte(schema), OutputSchema: []byte(schema)},
	} {
		b.Run(name, func(b *testing.B) {
			d := benchDispatcher(b, decl)
			var id atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c := call(strconv.FormatInt(id.Add(1), 10))
					c.Arguments = []byte(`{"path":"README.md","limit":10}`)
					if res := d.Do(b.Context(), c); res.Err != nil {
						b.Error(res.Err)
						return
					}
				}
			})
		})
	}
}

const schema = `{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}`

func benchDispatcher(b *testing.B, decl frames.Declaration) *dispatch.Following {
	b.Helper()
	_, d := benchMesh(b, decl, dispatch.Config{})
	return d
}

// benchMesh gives a dispatcher on a mesh where one tool is served, and what
// connects to it.
func benchMesh(b *testing.B, decl frames.Declaration, cfg dispatch.Config) (func(identity string) *bus.Conn, *dispatch.Following) {
	b.Helper()
	m := bustest.Start(b)
	connect := func(identity string) *bus.Conn {
		c, err := bus.New(m.Connect(b, identity), identity)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(c.Close)
		return c
	}
	d, err := dispatch.Follow(b.Context(), context.Background(), connect("router"), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(d.Stop)
	local := connect("local")
	if _, err := local.Handle(b.Context(), local.InstTool("local", "a", "echo"), "", func(_ context.Context, q *bus.Request) {
		args, _ := q.Frames[0].Arguments()
		_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{Result: args}))
	}); err != nil {
		b.Fatal(err)
	}
	if err := decl.Check(); err != nil {
		b.Fatal(err)
	}
	f := frames.Description(&decl)
	if err := local.Publish(b.Context(), local.AnnounceTool("local", "a", "echo"), frames.Msgpack, &f); err != nil {
		b.Fatal(err)
	}
	if err := local.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	for !d.Ready("echo") {
		runtime.Gosched() // it is on its way
	}
	return connect, d
}
