package client_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
	"github.com/weavebus/weavebus/services/loop"
)

func (w *world) loopWith(hooks ...hook.Hook) *process {
	w.t.Helper()
	return w.serve(loop.New(loop.Config{Hooks: hooks}))
}

// onQ is a gate that decides by the argument q.
func onQ(decisions map[string]hook.Decision) hook.Hook {
	return hook.Hook{Name: "policy", Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) {
		var in struct {
			Q string `json:"q"`
		}
		if err := c.Decode(&in); err != nil {
			return hook.Decision{}, err
		}
		if d, ok := decisions[in.Q]; ok {
			return d, nil
		}
		return hook.Proceed(), nil
	}}
}

// events are what an observer was told.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) observe(_ context.Context, c *hook.Call, res *frames.ToolResult) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	what := "begins"
	if res != nil && res.Err != nil {
		what = string(res.Err.Code)
	} else if res != nil {
		what = string(res.Result)
	}
	e.all = append(e.all, c.Identity+" "+string(c.Arguments)+" "+what)
	return nil
}

// Gates decide on the calls of a client's own tools before they are handed over: what
// a gate changed is validated, and one that fails denies.
func TestGatesOfOwnTools(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		var told events
		w.loopWith(hook.Hook{Name: "audit", Observe: told.observe}, onQ(map[string]hook.Decision{
			"deny": hook.Deny("not this"), "mutate": hook.Mutate(json.RawMessage(`{"q":"other"}`)),
			"skip": hook.Skip("known"), "bad": hook.Mutate(json.RawMessage(`{"q":1}`)), "nothing": {},
		}))
		w.play = rounds(says("", `ask {"q":"deny"}`, `ask {"q":"mutate"}`, `ask {"q":"skip"}`, `ask {"q":"bad"}`,
			`ask {"q":"nothing"}`, `ask {"q":"as it is"}`), says("well"))
		c := w.session(w.Client, "fake/m")
		set, runs := doing(t, "ask", after(time.Second))
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		lines := strings.Split(c.until("idle", 2), "\n")
		got := map[string]int{}
		for _, line := range lines {
			if strings.HasPrefix(line, "result ") {
				got[line]++
			}
		}
		want := map[string]int{
			"result ask DENIED denied_by_hook": 1, `result ask {"q":"other"}`: 1, `result ask "known"`: 1,
			"result ask DENIED hook_failed": 2, `result ask {"q":"as it is"}`: 1,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs in the client", n)
		}
		synctest.Wait()
		told.mu.Lock()
		defer told.mu.Unlock()
		heard := map[string]int{}
		for _, e := range told.all {
			heard[e]++
		}
		if d := cmp.Diff(map[string]int{
			`me {"q":"deny"} DENIED`: 1, `me {"q":"bad"} DENIED`: 1, `me {"q":"nothing"} DENIED`: 1,
			`me {"q":"skip"} begins`: 1, `me {"q":"skip"} "known"`: 1,
			`me {"q":"other"} begins`: 1, `me {"q":"as it is"} begins`: 1,
		}, heard); d != "" {
			t.Error(d)
		}
	})
}

// A hook for errors answers a call of an own tool that was refused.
func TestErrorHooksOfOwnTools(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loopWith(hook.Hook{Name: "mend", OnError: func(_ context.Context, _ *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
			if res.Err.Code != frames.CodeValidationInput {
				return hook.Keep(), nil
			}
			return hook.Replace("mended"), nil
		}})
		w.play = rounds(says("", `ask {"q":1}`), says("well"))
		c := w.session(w.Client, "fake/m")
		set, runs := doing(t, "ask", after(time.Second))
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		if got := c.until("idle", 2); !strings.Contains(got, `result ask "mended"`) || runs.Load() != 0 {
			t.Errorf("%d runs:\n%s", runs.Load(), got)
		}
	})
}

// What a client may be doing already is not decided about again by the loop that
// takes over: a gate that denies would say that nothing happened.
func TestGatesAndOwnCallsOfALoopThatDied(t *testing.T) {
	for name, c := range map[string]struct {
		opts []func(*frames.Declaration)
		want string
	}{
		"unsafe": {nil, `result ask {"q":"1"}`},
		"safe":   {[]func(*frames.Declaration){safe}, "result ask DENIED denied_by_hook"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.harness()
				l := w.loop()
				w.counting("look", 20*time.Second)
				w.play = rounds(says("", `ask {"q":"1"}`, "look"), says("well"))
				s := w.session(w.Client, "fake/m")
				set, runs := doing(t, "ask", after(2*time.Minute), append(c.opts, lasting(10*time.Minute))...)
				w.must(s.s.ServeTools(t.Context(), set))
				s.send(frames.Text("go"))
				s.until("executing", 1)
				<-time.After(time.Second) // virtual time: both run
				l.crash()
				w.loopWith(onQ(map[string]hook.Decision{"1": hook.Deny("no more")}))
				if got := s.until("idle", 2); !strings.Contains(got, c.want) || runs.Load() != 1 {
					t.Errorf("%d runs:\n%s", runs.Load(), got)
				}
			})
		})
	}
}
