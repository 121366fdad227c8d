package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// another runs a registry of another dispatcher until the test's end.
func (r *rig) another(identity string) *registry.Registry {
	r.t.Helper()
	reg := registry.New(r.connect(identity), registry.Config{Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- reg.Run(ctx, func() { close(ready) }) }()
	r.t.Cleanup(func() {
		stop()
		<-done
	})
	<-ready
	return reg
}

func disable(s *registry.Setting) error { s.Disabled = true; return nil }
func enable(s *registry.Setting) error  { s.Disabled = false; return nil }

func (r *rig) change(tool string, f func(*registry.Setting) error) registry.Setting {
	r.t.Helper()
	s, err := r.Change(r.t.Context(), tool, f)
	must(r.t, err)
	synctest.Wait()
	return s
}

// contract: W34
func TestSettingsReachEveryDispatcher(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.announcer("local", "a").declare([]string{"echo"})
		loop := r.another("loop")
		r.change("echo", disable)
		want(t, "the router", r.Get("echo").Callable(), false)
		want(t, "a loop", loop.Get("echo").Callable(), false)
		want(t, "a call's error", r.Unserved("echo").Code, frames.CodeDisabled)
		want(t, "who starts later", r.another("dispatcher").Get("echo").Callable(), false)
		r.change("echo", enable)
		want(t, "the router then", r.Get("echo").Callable(), true)
		want(t, "a loop then", loop.Get("echo").Callable(), true)
	})
}

// What was decided is there when the server and all services start anew.
//
// contract: W34
func TestSettingsSurviveARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.change("echo", disable)
		r.stop()
		must(t, <-r.done)
		r.mesh.Restart(t)
		loop := r.another("loop")
		want(t, "shown", loop.Get("echo").Setting.Disabled, true)
		want(t, "of the tool", loop.Unserved("echo").Code, frames.CodeDisabled)
	})
}

func TestChangesMeanwhileAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const n = 8
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				_, err := r.Change(t.Context(), "echo", func(s *registry.Setting) error { s.At++; return nil })
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		want(t, "changes", r.Setting("echo").At, n)
		no := errors.New("no")
		if _, err := r.Change(t.Context(), "echo", func(*registry.Setting) error { return no }); !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
		want(t, "left as it was", r.Setting("echo").At, n)
	})
}

// A dispatcher whose connection was lost learns what was decided meanwhile.
func TestSettingsAfterAGap(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.line.Cut()
		js := r.mesh.JetStream(t, "router")
		_, err := js.Publish(t.Context(), "$KV.WB_TOOLS.echo", []byte(`{"disabled":true}`))
		must(t, err)
		_, err = js.Publish(t.Context(), "$KV.WB_TOOLS.odd", []byte(`{"disabled":7}`))
		must(t, err)
		r.line.Mend()
		<-time.After(10 * time.Second)
		want(t, "after the gap", r.Setting("echo").Disabled, true)
		want(t, "what cannot be read", r.Setting("odd"), registry.Setting{})
		r.change("odd", disable)
		want(t, "written over", r.Setting("odd").Disabled, true)
	})
}

// A dispatcher that cannot know what is switched off does not start.
func TestMeshWithoutSettings(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		must(t, r.mesh.JetStream(t, "admin").DeleteStream(t.Context(), "KV_WB_TOOLS"))
		reg := registry.New(r.connect("loop"), registry.Config{Log: slog.New(slog.DiscardHandler)})
		err := reg.Run(t.Context(), func() { t.Error("it is ready") })
		want(t, "code", frames.CodeOf(err), frames.CodeUnavailable)
		_, err = r.Change(t.Context(), "echo", disable)
		want(t, "a change", frames.CodeOf(err), frames.CodeUnavailable)
	})
}

// Once a router has seen that a name is contested, who starts later gives it to
// the same identity, whatever the order of the stream is by then.
func TestContestedNameIsNoted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		keeping, stop := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { r.Keep(keeping) })
		defer done.Wait()
		defer stop()
		first, other := r.announcer("local", "a"), r.announcer("other", "b")
		first.declare([]string{"echo"})
		other.declare([]string{"echo"})
		<-time.After(time.Second)
		first.declare([]string{"echo"}) // as each 4 min: it comes last in the stream now
		want(t, "noted", r.Setting("echo").Route, "local")
		want(t, "who starts later", shown(r.another("loop").Get("echo")), "0.0.0: local/a")
		r.change("echo", func(s *registry.Setting) error { s.Route, s.Auto = "other", false; return nil })
		want(t, "swapped", r.shows("echo"), "0.0.0: other/b")
	})
}

// A declaration that is not whole is shown with the reason and the place, which a
// call of the name is told too, until a good one comes.
//
// contract: G41, B47
func TestRefusalIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.announcer("local", "a")
		a.declare([]string{"broken"}, func(d *frames.Declaration) { d.Replay = "maybe" })
		want(t, "no tool", r.shows("broken"), "")
		_, refused := r.Standing("broken")
		if len(refused) != 1 {
			t.Fatalf("refused: %+v", refused)
		}
		why := refused[0].Refused
		want(t, "shown", []string{string(r.State(refused[0])), why.Issues[0].Path}, []string{"refused", "/replay"})
		err := r.Unserved("broken")
		want(t, "a call's error", err.Code, frames.CodeUnavailable)
		want(t, "its place", err.Issues, why.Issues)
		want(t, "its text", err.Message, "Tool broken, declared by local/a, is refused: "+why.Message)
		want(t, "retryable", err.Retryable, false)
		a.declare([]string{"broken"})
		want(t, "mended", r.shows("broken"), "0.0.0: local/a")
	})
}

// A thousand tools of fifty services are known exactly, and none of their schemas
// is compiled before it is used; finding out which are good keeps nothing.
func TestThousandSchemasAreCompiledLazily(t *testing.T) {
	const instances, tools = 50, 1000
	schemas := &schema.Cache{}
	inBubble(t, func(t *testing.T, r *rig) {
		again := registry.New(r.connect("loop"), registry.Config{Schemas: schemas, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		must(t, again.Run(ctx, stop))
		all := again.Tools()
		want(t, "tools", len(all), tools)
		for i, tool := range all {
			n := 0
			_, err := fmt.Sscanf(tool.Name, "tool-%d", &n)
			must(t, err)
			want(t, tool.Name, shown(tool), fmt.Sprintf("0.0.0: local/%d", n*instances/tools))
			if state := again.State(tool); state != registry.Ready && i > 0 {
				t.Errorf("%s is %s", tool.Name, state)
			}
		}
		want(t, "compiled", schemas.Len(), 0)
		_, err := again.Arguments(all[7].Declaration)
		must(t, err)
		want(t, "compiled for a call", schemas.Len(), 1)
	}, func(r *rig) {
		for i := range instances {
			a := r.announcer("local", fmt.Sprint(i))
			var mine []string
			for j := range tools / instances {
				mine = append(mine, fmt.Sprintf("tool-%d", i*tools/instances+j))
			}
			a.declare(mine, func(d *frames.Declaration) {
				d.Schema = fmt.Appendf(nil, `{"type":"object","properties":{"q":{"type":"string","description":%q}}}`, d.Name)
			})
			a.alive(mine...)
		}
	})
}
