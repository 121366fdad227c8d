package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// told is an observer that keeps what it was told.
type told struct {
	mu   sync.Mutex
	list []string
}

func (o *told) observe(_ context.Context, c *hook.Call, res *frames.ToolResult) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case res == nil:
		o.list = append(o.list, c.ID+" begins")
	case res.Err != nil:
		o.list = append(o.list, c.ID+" "+string(res.Err.Code))
	default:
		o.list = append(o.list, c.ID+" "+string(res.Result))
	}
	return nil
}

func (o *told) events() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.list)
}

// contract: A16, A17, A35
func TestObserversAreToldAndChangeNothing(t *testing.T) {
	o := &told{}
	bad := hook.Hook{Name: "bad", Observe: func(_ context.Context, c *hook.Call, res *frames.ToolResult) error {
		c.Arguments = nil
		if res != nil {
			res.Result, res.Err = nil, frames.Denied("echo", "")
		}
		panic("oh")
	}}
	slow := hook.Hook{Name: "slow", Observe: func(ctx context.Context, _ *hook.Call, _ *frames.ToolResult) error { <-ctx.Done(); return ctx.Err() }}
	inBubble(t, hookedBy(bad, slow, hook.Hook{Name: "good", Observe: o.observe}), func(t *testing.T, w *world) {
		f := w.serve("i", copier, back)
		start := time.Now()
		if res := w.d.Do(t.Context(), numbered(7)); res.Err != nil || numberOf(t, res.Result) != 7 {
			t.Fatalf("got %s %v", res.Result, res.Err)
		}
		wrong := call("2")
		wantCode(t, w.d.Do(t.Context(), wrong), frames.CodeValidationInput)
		if took := time.Since(start); took > time.Second || f.served() != 1 {
			t.Errorf("it took %v, the tool ran %d times", took, f.served())
		}
		w.d.Drain(t.Context())
		if got, want := o.events(), []string{"1 begins", `1 {"n": 7}`, "2 VALIDATION_INPUT"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if got := w.d.HookStats(); got[0].Failed != 3 || got[1].Failed != 3 || got[2].Failed != 0 {
			t.Errorf("counted %+v", got)
		}
	})
}

// Hooks that fail, whatever their phase, are counted and logged by name.
//
// contract: A35, B32
func TestFailuresOfHooksAreCountedAndLogged(t *testing.T) {
	var log bytes.Buffer
	broken := hook.Hook{
		Name: "broken",
		After: func(context.Context, *hook.Call, *frames.ToolResult) (hook.Outcome, error) {
			return hook.Keep(), errors.New("disk full")
		},
	}
	watcher := hook.Hook{Name: "watcher", Observe: func(context.Context, *hook.Call, *frames.ToolResult) error { panic("oh") }}
	closed := gate("closed", func(c *hook.Call) hook.Decision {
		if string(c.Raw) == `{"n": 9}` {
			panic("nine")
		}
		return hook.Proceed()
	})
	cfg := hookedBy(closed, broken, watcher)
	cfg.Log = slog.New(slog.NewJSONHandler(&log, nil))
	inBubble(t, cfg, func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		if res := w.d.Do(t.Context(), numbered(7)); res.Err != nil {
			t.Error(res.Err)
		}
		wantCode(t, w.d.Do(t.Context(), numbered(9)), frames.CodeDenied)
		w.d.Drain(t.Context())
		for i, name := range []string{"closed", "broken", "watcher"} {
			if n := w.d.HookStats()[i].Failed; n == 0 {
				t.Errorf("no failure of %s is counted", name)
			}
			if line := regexp.MustCompile(`"msg":"hook failed"[^\n]*"hook":"` + name + `"[^\n]*"tool":"echo"`); !line.Match(log.Bytes()) {
				t.Errorf("no failure of %s is logged: %s", name, log.String())
			}
		}
	})
}

func TestObserverThatFallsBehindMissesEvents(t *testing.T) {
	inBubble(t, hookedBy(hook.Hook{Name: "slow", Timeout: time.Minute, Observe: func(ctx context.Context, _ *hook.Call, _ *frames.ToolResult) error {
		<-ctx.Done()
		return nil
	}}), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		for i := range 600 {
			c := numbered(7)
			c.ID = fmt.Sprint(i)
			if res := w.d.Do(t.Context(), c); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
		if got := w.d.HookStats()[0].Dropped; got != 1200-1024-1 {
			t.Errorf("dropped %d", got)
		}
	})
}

// Calls whose gates decide are bounded as those that run are, and found by their id.
func TestCallsBeforeTheirStartAreBounded(t *testing.T) {
	cfg := hookedBy(hook.Hook{Name: "slow", Before: func(ctx context.Context, _ *hook.Call) (hook.Decision, error) {
		select {
		case <-time.After(time.Second): // virtual time
		case <-ctx.Done():
		}
		return hook.Proceed(), nil
	}})
	cfg.MaxBytes = 20
	inBubble(t, cfg, func(t *testing.T, w *world) {
		w.serve("i", copier, func(q *bus.Request) {
			<-time.After(time.Second)
			back(q)
		})
		out := make(chan *frames.ToolResult, 1)
		go func() { out <- w.d.Do(t.Context(), numbered(1_000_000)) }()
		synctest.Wait()
		other := numbered(1_000_000)
		other.ID = "2"
		wantCode(t, w.d.Do(t.Context(), other), frames.CodeBusy)
		<-time.After(1500 * time.Millisecond) // it runs
		start := time.Now()
		wantCode(t, w.d.Do(t.Context(), numbered(1)), frames.CodeConflict)
		if took := time.Since(start); took != 0 {
			t.Errorf("its gates ran for %v", took)
		}
		if res := <-out; res.Err != nil {
			t.Error(res.Err)
		}
		if res := w.d.Do(t.Context(), numbered(1_000_000)); res.Err != nil {
			t.Errorf("what was held is not given back: %v", res.Err)
		}
	})
}

// contract: S14
func TestConfirmationComesAfterTheGates(t *testing.T) {
	decl := copier
	decl.Annotations.RequiresConfirmation = true
	var seen bool
	policy := gate("policy", func(c *hook.Call) hook.Decision {
		seen = c.Annotations.RequiresConfirmation
		if strings.Contains(string(c.Raw), "9") {
			return hook.Skip(map[string]int{"n": 9})
		}
		return hook.Proceed()
	})
	inBubble(t, hookedBy(policy), func(t *testing.T, w *world) {
		w.serve("i", decl, back)
		res := w.d.Do(t.Context(), numbered(7))
		wantCode(t, res, frames.CodeDenied)
		if res.Err.Reason != "approval_required" || res.Err.Hook != "" || !seen {
			t.Errorf("got %+v, the gate saw it %v", res.Err, seen)
		}
		if res := w.d.Do(t.Context(), numbered(9)); res.Err != nil {
			t.Errorf("a call that is skipped needs no confirmation: %v", res.Err)
		}
	})
}

// A hook for other tools sees nothing.
func TestHookOfOtherTools(t *testing.T) {
	deny := gate("policy", func(*hook.Call) hook.Decision { return hook.Deny("no") })
	deny.Tools = []string{"run_*", "write?file"}
	inBubble(t, hookedBy(deny), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		if res := w.d.Do(t.Context(), numbered(7)); res.Err != nil {
			t.Error(res.Err)
		}
		for _, tool := range []string{"run_x", "write_file"} {
			w.serve("i", frames.Declaration{Name: tool}, back)
			c := call("1")
			c.Tool = tool
			wantCode(t, w.d.Do(t.Context(), c), frames.CodeDenied)
		}
	})
}

func TestCancelEndsAHook(t *testing.T) {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		h      hook.Hook
		tool   func(q *bus.Request)
		code   frames.Code
		effect frames.Effect
		ran    int
	}{
		"gate": {hook.Hook{Before: func(ctx context.Context, _ *hook.Call) (hook.Decision, error) { return hook.Proceed(), wait(ctx) }},
			back, frames.CodeCancelled, frames.EffectNone, 0},
		"after": {hook.Hook{After: func(ctx context.Context, _ *hook.Call, _ *frames.ToolResult) (hook.Outcome, error) {
			return hook.Keep(), wait(ctx)
		}},
			back, frames.CodeCancelled, frames.EffectDone, 1},
		"error": {hook.Hook{OnError: func(ctx context.Context, _ *hook.Call, _ *frames.ToolResult) (hook.Outcome, error) {
			return hook.Keep(), wait(ctx)
		}},
			func(q *bus.Request) { _ = q.End(frames.EndCompleted) }, frames.CodeNoResult, frames.EffectUnknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.h.Name, c.h.Timeout = "slow", time.Minute
			inBubble(t, hookedBy(c.h), func(t *testing.T, w *world) {
				f := w.serve("i", copier, c.tool)
				start := time.Now()
				out := make(chan *frames.ToolResult, 1)
				go func() { out <- w.d.Do(t.Context(), numbered(7)) }()
				synctest.Wait()
				if name == "gate" {
					wantCode(t, w.d.Do(t.Context(), numbered(7)), frames.CodeConflict)
				}
				if w.d.Cancel("you", "1") || !w.d.Cancel("me", "1") {
					t.Error("it is not the caller's to cancel")
				}
				res := <-out
				wantCode(t, res, c.code)
				if res.Err.Effect != c.effect || time.Since(start) > time.Second || f.served() != c.ran {
					t.Errorf("got %+v after %v, the tool ran %d times", res.Err, time.Since(start), f.served())
				}
				if got := w.d.HookStats()[0]; got.Failed != 0 {
					t.Errorf("a hook that was ended counts as failed: %+v", got)
				}
				synctest.Wait()
				if w.d.Cancel("me", "1") || w.d.Held().Calls != 0 {
					t.Error("the call is still held")
				}
			})
		})
	}
}

// A dispatcher that is told to stop hard waits for no hook.
func TestHardStopEndsHooks(t *testing.T) {
	slow := hook.Hook{Name: "slow", Timeout: time.Minute, After: func(ctx context.Context, _ *hook.Call, _ *frames.ToolResult) (hook.Outcome, error) {
		<-ctx.Done()
		return hook.Keep(), nil
	}}
	inBubble(t, hookedBy(slow), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		out := make(chan *frames.ToolResult, 1)
		go func() { out <- w.d.Do(t.Context(), numbered(7)) }()
		synctest.Wait()
		start := time.Now()
		w.d.Drain(within(t, 2*time.Second))
		res := <-out
		wantCode(t, res, frames.CodeInterrupted)
		if took := time.Since(start); took != 2*time.Second || res.Err.Effect != frames.EffectDone {
			t.Errorf("drained after %v: %+v", took, res.Err)
		}
	})
}

// A tool cannot say that a hook did what it did itself.
func TestToolSpeaksForNoHook(t *testing.T) {
	inBubble(t, hookedBy(), func(t *testing.T, w *world) {
		w.serve("i", copier, func(q *bus.Request) {
			err := frames.NewError(frames.CodeExecution, "oh").With(func(e *frames.Error) { e.Hook = "policy" })
			_ = q.End(frames.EndError, frames.FailedResult(err, frames.WithMeta("skippedBy", "cache")))
		})
		res := w.d.Do(t.Context(), numbered(7))
		wantCode(t, res, frames.CodeExecution)
		if res.Err.Hook != "" || res.Metadata != nil {
			t.Errorf("got %+v, metadata %v", res.Err, res.Metadata)
		}
	})
}

func TestConfigNamesTheHook(t *testing.T) {
	h := gate("a", nil)
	for name, cfg := range map[string]dispatch.Config{
		"twice": hookedBy(h, h), "no name": hookedBy(hook.Hook{Before: h.Before}), "no function": hookedBy(hook.Hook{Name: "a"}),
		"pattern": hookedBy(hook.Hook{Name: "a", Before: h.Before, Tools: []string{"a.b"}}),
		"timeout": hookedBy(hook.Hook{Name: "a", Before: h.Before, Timeout: time.Hour}),
		"phase":   hookedBy(hook.Remote("a", "during")), "no phase": hookedBy(hook.Remote("a")),
	} {
		if err := cfg.Validate(); frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}
