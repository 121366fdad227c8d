package dispatch_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// BenchmarkHooks is BenchmarkCall with hooks: none, one of another tool, a gate in
// the process, one on the bus that answers at once.
func BenchmarkHooks(b *testing.B) {
	allow := hook.Hook{Name: "policy", Before: func(context.Context, *hook.Call) (hook.Decision, error) { return hook.Proceed(), nil }}
	other := allow
	other.Tools = []string{"other"}
	for name, hooks := range map[string][]hook.Hook{
		"none": nil, "other": {other}, "gate": {allow}, "bus": {hook.Remote("policy", hook.PhaseBefore)},
	} {
		b.Run(name, func(b *testing.B) {
			m, d := benchMesh(b, frames.Declaration{Name: "echo"}, dispatch.Config{Hooks: hooks})
			conn := m("hook")
			ready, ended := make(chan struct{}), make(chan error, 1)
			ctx, stop := context.WithCancel(b.Context())
			go func() { ended <- hook.Serve(ctx, conn, allow, hook.OnReady(func() { close(ready) })) }()
			<-ready
			defer func() {
				stop()
				<-ended
			}()
			var id atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if res := d.Do(b.Context(), call(strconv.FormatInt(id.Add(1), 10))); res.Err != nil {
						b.Error(res.Err)
						return
					}
				}
			})
		})
	}
}
