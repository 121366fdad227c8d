package loop_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/loop"
)

// chain decides by what stands in the arguments, and mends what is not found.
func chain() []hook.Hook {
	return []hook.Hook{
		{Name: "policy", Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) {
			switch string(c.Raw) {
			case `{"n":1}`:
				return hook.Deny("not one"), nil
			case `{"n":2}`:
				return hook.Mutate(json.RawMessage(`{"n":22}`)), nil
			case `{"n":3}`:
				return hook.Skip(json.RawMessage(`{"n":33}`)), nil
			}
			return hook.Proceed(), nil
		}},
		{Name: "mend", OnError: func(_ context.Context, _ *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
			if res.Err.Code == frames.CodeNotFound {
				return hook.Replace(json.RawMessage(`{"n":44}`)), nil
			}
			return hook.Keep(), nil
		}},
	}
}

// contract: W28, W32, W30, P74
func TestHooksDecideOnAModelsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var runs *atomic.Int32
		r.tools(func(s *tool.Set) { runs = r.counted(s, frames.Declaration{Name: "f"}, after(time.Second)) })
		var mu sync.Mutex
		told := map[string]int{}
		hooks := append(chain(), hook.Hook{Name: "count", Observe: func(_ context.Context, c *hook.Call, res *frames.ToolResult) error {
			mu.Lock()
			defer mu.Unlock()
			if res != nil {
				told[string(c.Raw)]++
			}
			return nil
		}})
		r.loop(loop.Config{Hooks: hooks})
		r.play = script(answer("", `f {"n":1}`, `f {"n":2}`, `f {"n":3}`, `nosuch {}`), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		got := strings.Join(h.turn(), "\n")
		for _, want := range []string{"TOOL_RESULT f DENIED", `TOOL_RESULT f {"n":22}`, `TOOL_RESULT f {"n":33}`, `TOOL_RESULT nosuch {"n":44}`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("the tool ran %d times", runs.Load())
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := map[string]int{`{"n":1}`: 1, `{"n":2}`: 1, `{"n":3}`: 1, `{}`: 1}; !maps.Equal(told, want) {
			t.Errorf("the observer was told of results %v, want %v", told, want)
		}
		if m := r.asked()[1].Messages; !strings.Contains(m[len(m)-4].Text, "not one") {
			t.Errorf("the model reads %q", m[len(m)-4].Text)
		}
		h.check()
	})
}

// A model's call is stopped while its gate has not decided: in a session and in a
// run.
func TestStopEndsTheGatesOfACall(t *testing.T) {
	slow := hook.Hook{Name: "slow", Timeout: time.Minute, Before: func(ctx context.Context, _ *hook.Call) (hook.Decision, error) {
		<-ctx.Done()
		return hook.Proceed(), nil
	}}
	inBubble(t, func(t *testing.T, r *rig) {
		var runs *atomic.Int32
		r.tools(func(s *tool.Set) { runs = r.counted(s, frames.Declaration{Name: "f"}, after(time.Second)) })
		r.loop(loop.Config{Hooks: []hook.Hook{slow}})
		r.play = script(answer("", "f {}", "f {}"), answer("", "f {}"))
		h := r.session("s1")
		h.say("go")
		h.await("META thinking 1", 2)
		synctest.Wait()
		start := time.Now()
		h.input(frames.NewFrame(frames.TypeCancel, nil))
		h.await("META idle 1", 1)
		h.settled()

		u := r.start(frames.Msgpack, "mine")
		u.next()
		synctest.Wait()
		if got := r.abort("me", "mine"); got != "mine" {
			t.Errorf("acknowledged %q", got)
		}
		if got := u.all(); got[len(got)-1] != "END cancelled" {
			t.Errorf("got %q", got)
		}
		if took := time.Since(start); took > 10*time.Second || runs.Load() != 0 {
			t.Errorf("ended after %v, the tool ran %d times", took, runs.Load())
		}
	})
}

func TestConfigOfHooks(t *testing.T) {
	err := loop.New(loop.Config{Hooks: []hook.Hook{{Name: "a"}}}).Run(t.Context(), app.Env{}, nil)
	if frames.CodeOf(err) != frames.CodeValidationInput || !strings.Contains(err.Error(), "Hooks: hook a") {
		t.Errorf("got %v", err)
	}
}
