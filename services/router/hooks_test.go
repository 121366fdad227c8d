package router_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
	"github.com/weavebus/weavebus/services/router"
)

// hooked runs a test with a router whose calls of echo pass hooks.
func hooked(t *testing.T, hooks []hook.Hook, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve("a", set(t, frames.Declaration{Name: "echo", Schema: json.RawMessage(`{"type":"object"}`)}, gives(`{"ran":true}`)))
		w.router = w.route(router.Config{Hooks: hooks})
		test(w)
	})
}

// slowly waits until ctx ends or the time is over.
func slowly(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d): // virtual time
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// What hooks did stands in the frame that the client gets.
//
// contract: W28, W32, W31, B32
func TestHooksOverTheBus(t *testing.T) {
	policy := hook.Hook{Name: "policy", Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) {
		switch string(c.Raw) {
		case `{"n":1}`:
			return hook.Deny("not one"), nil
		case `{"n":2}`:
			return hook.Mutate(map[string]int{"n": 22}), nil
		case `{"n":3}`:
			return hook.Skip(map[string]int{"n": 33}), nil
		}
		return hook.Proceed(), nil
	}}
	hooked(t, []hook.Hook{policy}, func(w *world) {
		x := w.call("echo", `{"n":1}`)
		f, res := x.result()
		want(t, "code", res.Err.Code, frames.CodeDenied)
		want(t, "hook", res.Err.Hook, "policy")
		if !strings.Contains(x.raw[0], `"hook":"policy"`) || f.Metadata.Get("skippedBy") != nil {
			t.Errorf("answer %s", x.raw[0])
		}
		x = w.call("echo", `{"n":2}`)
		_, res = x.result()
		want(t, "result", string(res.Result), `{"ran":true}`)
		if !strings.Contains(x.raw[0], `"metadata":{"mutatedBy":["policy"]}`) {
			t.Errorf("answer %s", x.raw[0])
		}
		x = w.call("echo", `{"n":3}`)
		_, res = x.result()
		want(t, "result", string(res.Result), `{"n":33}`)
		want(t, "attempts", res.Attempts, 0)
		want(t, "instance", res.Instance, "")
		if !strings.Contains(x.raw[0], `"metadata":{"skippedBy":"policy"}`) {
			t.Errorf("answer %s", x.raw[0])
		}
		x = w.call("echo", `{"n":4}`)
		x.result()
		if strings.Contains(x.raw[0], "metadata") {
			t.Errorf("answer %s", x.raw[0])
		}
	})
}

// A client that waits for a gate hears that the call goes on, and may cancel it.
func TestTickAndCancelWhileAGateDecides(t *testing.T) {
	policy := hook.Hook{Name: "policy", Timeout: time.Minute, Before: func(ctx context.Context, _ *hook.Call) (hook.Decision, error) {
		return hook.Proceed(), slowly(ctx, 50*time.Second)
	}}
	hooked(t, []hook.Hook{policy}, func(w *world) {
		x := w.call("echo", `{}`)
		all := x.read()
		ticks := 0
		for i := range all {
			if all[i].Type == frames.TypeTick {
				ticks++
			}
		}
		if ticks < 9 {
			t.Errorf("%d ticks in 50 s", ticks)
		}
		x = w.call("echo", `{}`, `"toolCallId":"c-1"`)
		synctest.Wait()
		ack := w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","content":{"toolCallId":"c-1","name":"echo"}}`).read()
		if id, _ := ack[0].Content.Lookup("cancelling").Text(); id != "c-1" {
			t.Errorf("acknowledged: %v", ack)
		}
		err := x.failure(frames.CodeCancelled)
		want(t, "effect", err.Effect, frames.EffectNone)
	})
}

// A router that stops lets hooks decide; one that is stopped hard does not wait.
func TestDrainWhileAGateDecides(t *testing.T) {
	policy := hook.Hook{Name: "policy", Timeout: time.Minute, Before: func(ctx context.Context, _ *hook.Call) (hook.Decision, error) {
		return hook.Proceed(), slowly(ctx, 20*time.Second)
	}}
	hooked(t, []hook.Hook{policy}, func(w *world) {
		x := w.call("echo", `{}`)
		synctest.Wait()
		if took := w.router.stop(); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("drained after %v", took)
		}
		_, res := x.result()
		want(t, "result", string(res.Result), `{"ran":true}`)
	})
	hooked(t, []hook.Hook{policy}, func(w *world) {
		x := w.call("echo", `{}`)
		synctest.Wait()
		w.router.cancel()
		w.router.cut()
		start := time.Now()
		_, res := x.result()
		want(t, "effect", res.Err.Effect, frames.EffectNone)
		<-w.router.done // what was cut off is no clean drain
		w.router.once.Do(func() {})
		if took := time.Since(start); took > time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}

func TestConfigOfHooks(t *testing.T) {
	err := router.New(router.Config{Hooks: []hook.Hook{{Name: "a"}}}).Run(t.Context(), emptyEnv(), nil)
	if frames.CodeOf(err) != frames.CodeValidationInput || !strings.Contains(err.Error(), "Hooks: hook a") {
		t.Errorf("got %v", err)
	}
}
