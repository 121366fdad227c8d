package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

var copier = frames.Declaration{
	Name:         "echo",
	Schema:       []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
	OutputSchema: []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
}

// back answers a call with its arguments.
func back(q *bus.Request) {
	args, _ := q.First(frames.TypeToolCall).Arguments()
	_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{Result: args}))
}

func numbered(n int) dispatch.Call {
	c := call("1")
	c.Arguments = json.RawMessage(fmt.Sprintf(`{"n": %d}`, n))
	return c
}

// hookedBy gives a dispatcher's configuration whose log the test can do without.
func hookedBy(hooks ...hook.Hook) dispatch.Config {
	return dispatch.Config{Hooks: hooks, Log: slog.New(slog.DiscardHandler)}
}

func gate(name string, decide func(c *hook.Call) hook.Decision) hook.Hook {
	return hook.Hook{Name: name, Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) { return decide(c), nil }}
}

type behind = func(c *hook.Call, res *frames.ToolResult) hook.Outcome

func after(name string, f behind) hook.Hook {
	return hook.Hook{Name: name, After: func(_ context.Context, c *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
		return f(c, res), nil
	}}
}

func onError(name string, f behind) hook.Hook {
	return hook.Hook{Name: name, OnError: func(_ context.Context, c *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
		return f(c, res), nil
	}}
}

func numberOf(t *testing.T, text json.RawMessage) int {
	t.Helper()
	var v struct {
		N int `json:"n"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v.N
}

func metadata(res *frames.ToolResult, key string) string {
	text, _ := res.Metadata.Get(key).JSON()
	return string(text)
}

// contract: W28, S15, B35, A16
func TestGatesRunInOrderAndSeeWhatWillRun(t *testing.T) {
	var raw, read []string
	add := func(name string, n int) hook.Hook {
		return gate(name, func(c *hook.Call) hook.Decision {
			raw, read = append(raw, string(c.Raw)), append(read, string(c.Arguments))
			var in struct {
				N int `json:"n"`
			}
			if err := c.Decode(&in); err != nil {
				t.Error(err)
			}
			return hook.Mutate(map[string]int{"n": 10*in.N + n})
		})
	}
	inBubble(t, hookedBy(add("a", 1), add("b", 2)), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		res := w.d.Do(t.Context(), numbered(7))
		if res.Err != nil || numberOf(t, res.Result) != 712 {
			t.Fatalf("got %s %v, want 712", res.Result, res.Err)
		}
		if want := []string{`{"n": 7}`, `{"n": 7}`}; !slices.Equal(raw, want) {
			t.Errorf("raw %q, want %q", raw, want)
		}
		if want := []string{`{"n": 7}`, `{"n":71}`}; !slices.Equal(read, want) {
			t.Errorf("read %q, want %q", read, want)
		}
		if got := metadata(res, "mutatedBy"); got != `["a","b"]` {
			t.Errorf("mutatedBy %s", got)
		}
	})
}

// contract: B30, W31, B32
func TestChangedArgumentsAreValidatedAgain(t *testing.T) {
	for name, args := range map[string]any{
		"of a wrong type": map[string]string{"n": "seven"},
		"missing":         map[string]int{},
		"no object":       7,
		"no JSON":         json.RawMessage(`{"n":`),
		"without form":    make(chan int),
		"a key twice":     json.RawMessage(`{"n":1,"n":2}`),
		"too large":       map[string]any{"n": 1, "pad": strings.Repeat("x", 5<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			second := gate("second", func(*hook.Call) hook.Decision {
				t.Error("the next gate ran")
				return hook.Proceed()
			})
			inBubble(t, hookedBy(gate("first", func(*hook.Call) hook.Decision { return hook.Mutate(args) }), second), func(t *testing.T, w *world) {
				f := w.serve("i", copier, back)
				res := w.d.Do(t.Context(), numbered(7))
				wantCode(t, res, frames.CodeDenied)
				if !strings.Contains(res.Err.Message, `hook "first" failed`) || res.Err.Hook != "first" || res.Err.Reason != "hook_failed" {
					t.Errorf("got %+v", res.Err)
				}
				if strings.Contains(res.Err.LLMMessage, "Fix") || res.Err.Retryable || res.Err.Effect != frames.EffectNone {
					t.Errorf("the model is blamed: %+v", res.Err)
				}
				if f.served() != 0 {
					t.Error("the tool ran")
				}
			})
		})
	}
}

// contract: S16, W31, B32
func TestGateDenies(t *testing.T) {
	inBubble(t, hookedBy(gate("policy", func(*hook.Call) hook.Decision { return hook.Deny("not on a Sunday") })), func(t *testing.T, w *world) {
		f := w.serve("i", copier, back)
		res := w.d.Do(t.Context(), numbered(7))
		wantCode(t, res, frames.CodeDenied)
		if got, want := res.Err.Message, `Tool "echo" denied by hook "policy": not on a Sunday`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if !strings.Contains(res.Err.LLMMessage, "not on a Sunday") || res.Err.Hook != "policy" || res.Err.Reason != "denied_by_hook" {
			t.Errorf("got %+v", res.Err)
		}
		if res.Err.Retryable || res.Err.Effect != frames.EffectNone || f.served() != 0 {
			t.Errorf("retryable %v, effect %s, the tool ran %d times", res.Err.Retryable, res.Err.Effect, f.served())
		}
		if got := w.d.HookStats()[0]; got.Denied != 1 || got.Failed != 0 {
			t.Errorf("counted %+v", got)
		}
	})
}

// contract: A35, S19
func TestFailingGateFailsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		before func(ctx context.Context, c *hook.Call) (hook.Decision, error)
		want   string
	}{
		"error": {func(context.Context, *hook.Call) (hook.Decision, error) {
			return hook.Proceed(), errors.New("disk full")
		}, "disk full"},
		"panic":   {func(context.Context, *hook.Call) (hook.Decision, error) { panic("secret") }, "panicked"},
		"no word": {func(context.Context, *hook.Call) (hook.Decision, error) { return hook.Decision{}, nil }, "decided nothing"},
		"slow": {func(ctx context.Context, _ *hook.Call) (hook.Decision, error) {
			<-ctx.Done()
			return hook.Proceed(), ctx.Err()
		}, "longer than 2s"},
		"stuck": {func(context.Context, *hook.Call) (hook.Decision, error) {
			<-time.After(3 * time.Second)
			return hook.Proceed(), nil
		}, "longer than 2s"},
		"bad skip": {func(context.Context, *hook.Call) (hook.Decision, error) { return hook.Skip("seven"), nil }, "cannot be"},
		"no form":  {func(context.Context, *hook.Call) (hook.Decision, error) { return hook.Skip(func() {}), nil }, "cannot be"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hookedBy(hook.Hook{Name: "policy", Timeout: 2 * time.Second, Before: c.before}), func(t *testing.T, w *world) {
				f := w.serve("i", copier, back)
				start := time.Now()
				res := w.d.Do(t.Context(), numbered(7))
				wantCode(t, res, frames.CodeDenied)
				if !strings.Contains(res.Err.Message, `hook "policy" failed`) || !strings.Contains(res.Err.Message, c.want) {
					t.Errorf("got %q, want %q in it", res.Err.Message, c.want)
				}
				if strings.Contains(fmt.Sprint(res.Err.Message, res.Err.LLMMessage), "secret") {
					t.Errorf("it tells secrets: %q", res.Err.Message)
				}
				if took := time.Since(start); took > 2*time.Second || f.served() != 0 {
					t.Errorf("it took %v, the tool ran %d times", took, f.served())
				}
				if got := w.d.HookStats()[0]; got.Failed != 1 {
					t.Errorf("counted %+v", got)
				}
				<-time.After(2 * time.Second) // the stuck one returns
			})
		})
	}
}

// contract: W32, B33, S19
func TestGateSkipsTheTool(t *testing.T) {
	var seen []string
	note := func(name string) hook.Hook {
		return after(name, func(_ *hook.Call, res *frames.ToolResult) hook.Outcome {
			seen = append(seen, fmt.Sprintf("%s %s %d", name, res.Result, res.Attempts))
			return hook.Keep()
		})
	}
	cache := note("cache")
	cache.Before = func(_ context.Context, c *hook.Call) (hook.Decision, error) {
		return hook.Skip(&frames.ToolResult{Result: json.RawMessage(`{"n":1}`), Attempts: 3, Instance: "x", Duration: time.Hour}), nil
	}
	inBubble(t, hookedBy(note("outer"), cache, note("inner")), func(t *testing.T, w *world) {
		f := w.serve("i", copier, back)
		res := w.d.Do(t.Context(), numbered(7))
		if res.Err != nil || numberOf(t, res.Result) != 1 || res.Attempts != 0 || res.Instance != "" || res.Duration != 0 {
			t.Fatalf("got %+v", res)
		}
		if got := metadata(res, "skippedBy"); got != `"cache"` {
			t.Errorf("skippedBy %s", got)
		}
		if want := []string{`outer {"n":1} 0`}; !slices.Equal(seen, want) {
			t.Errorf("seen by %q, want %q", seen, want)
		}
		if f.served() != 0 {
			t.Error("the tool ran")
		}
		synctest.Wait() // what is told is counted after it was told
		if held := w.d.Held(); held.Calls != 0 || held.Bytes != 0 {
			t.Errorf("it holds %+v", held)
		}
	})
}

// contract: W29, B31, A17
func TestAfterHooksRunInReverseOrder(t *testing.T) {
	add := func(name string, n int) hook.Hook {
		return after(name, func(_ *hook.Call, res *frames.ToolResult) hook.Outcome {
			return hook.Replace(map[string]int{"n": 10*numberOf(t, res.Result) + n})
		})
	}
	inBubble(t, hookedBy(add("a", 1), add("b", 2)), func(t *testing.T, w *world) {
		f := w.serve("i", copier, back)
		res := w.d.Do(t.Context(), numbered(7))
		if res.Err != nil || numberOf(t, res.Result) != 721 || res.Attempts != 1 || res.Instance != "i" {
			t.Fatalf("got %s %+v, want 721", res.Result, res)
		}
		if got := metadata(res, "replacedBy"); got != `["b","a"]` || f.served() != 1 {
			t.Errorf("replacedBy %s, the tool ran %d times", got, f.served())
		}
	})
}

// contract: W29, B31, A35
func TestFailingAfterHookKeepsTheResult(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context) (hook.Outcome, error){
		"error":   func(context.Context) (hook.Outcome, error) { return hook.Keep(), errors.New("disk full") },
		"panic":   func(context.Context) (hook.Outcome, error) { panic("oh") },
		"slow":    func(ctx context.Context) (hook.Outcome, error) { <-ctx.Done(); return hook.Replace(1), nil },
		"misfit":  func(context.Context) (hook.Outcome, error) { return hook.Replace("seven"), nil },
		"no form": func(context.Context) (hook.Outcome, error) { return hook.Replace(make(chan int)), nil },
		"large":   func(context.Context) (hook.Outcome, error) { return hook.Replace(strings.Repeat("x", 5<<20)), nil },
		"nil":     func(context.Context) (hook.Outcome, error) { return hook.Outcome{}, errors.New("no") },
	} {
		t.Run(name, func(t *testing.T) {
			bad := hook.Hook{Name: "bad", After: func(ctx context.Context, _ *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
				res.Result = json.RawMessage(`"changed in place"`)
				return f(ctx)
			}}
			other := 0
			first := after("first", func(*hook.Call, *frames.ToolResult) hook.Outcome { other++; return hook.Keep() })
			inBubble(t, hookedBy(first, bad), func(t *testing.T, w *world) {
				f := w.serve("i", copier, back)
				res := w.d.Do(t.Context(), numbered(7))
				if res.Err != nil || numberOf(t, res.Result) != 7 || len(res.Metadata) != 0 {
					t.Fatalf("got %s %+v", res.Result, res)
				}
				if f.served() != 1 || other != 1 || w.d.HookStats()[1].Failed != 1 {
					t.Errorf("the tool ran %d times, the next hook %d, counted %+v", f.served(), other, w.d.HookStats())
				}
			})
		})
	}
}

func TestAfterHookMayKeepAResultBack(t *testing.T) {
	deny := after("secrets", func(*hook.Call, *frames.ToolResult) hook.Outcome {
		return hook.Replace(&frames.ToolResult{Err: frames.Denied("echo", "its result holds a key")})
	})
	mend := onError("mend", func(*hook.Call, *frames.ToolResult) hook.Outcome { return hook.Replace(map[string]int{"n": 0}) })
	inBubble(t, hookedBy(mend, deny), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		res := w.d.Do(t.Context(), numbered(7))
		wantCode(t, res, frames.CodeDenied)
		if res.Err.Effect != frames.EffectDone || res.Err.Hook != "secrets" || res.Result != nil {
			t.Errorf("got %+v", res.Err)
		}
	})
}

// contract: S17, W30
func TestErrorHooksSeeEveryFailure(t *testing.T) {
	ms := int64(300)
	short := copier
	short.TimeoutMs = &ms
	confirm := copier
	confirm.Annotations.RequiresConfirmation = true
	answer := func(res *frames.ToolResult) func(q *bus.Request) {
		return func(q *bus.Request) { _ = q.End(frames.EndCompleted, frames.Result(res)) }
	}
	deny := gate("policy", func(*hook.Call) hook.Decision { return hook.Deny("no") })
	broken := gate("policy", func(*hook.Call) hook.Decision { panic("oh") })
	allow := gate("policy", func(*hook.Call) hook.Decision { return hook.Proceed() })
	for _, c := range []struct {
		name     string
		decl     frames.Declaration
		gate     hook.Hook
		args     string
		tool     func(q *bus.Request)
		code     frames.Code
		attempts int
	}{
		{"not found", frames.Declaration{Name: "other"}, allow, `{"n":1}`, back, frames.CodeNotFound, 0},
		{"validation", copier, allow, `{"n":"x"}`, back, frames.CodeValidationInput, 0},
		{"not JSON", copier, allow, `{"n":`, back, frames.CodeValidationInput, 0},
		{"denied", copier, deny, `{"n":1}`, back, frames.CodeDenied, 0},
		{"hook failure", copier, broken, `{"n":1}`, back, frames.CodeDenied, 0},
		{"confirmation", confirm, allow, `{"n":1}`, back, frames.CodeDenied, 0},
		{"execution", copier, allow, `{"n":1}`, answer(&frames.ToolResult{Err: frames.NewError(frames.CodeExecution, "oh")}), frames.CodeExecution, 1},
		{"output", copier, allow, `{"n":1}`, answer(&frames.ToolResult{Result: []byte(`{}`)}), frames.CodeValidationOutput, 1},
		{"timeout", short, allow, `{"n":1}`, func(*bus.Request) {}, frames.CodeTimeout, 1},
		{"no result", copier, allow, `{"n":1}`, func(q *bus.Request) { _ = q.End(frames.EndCompleted) }, frames.CodeNoResult, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []string
			watch := onError("watch", func(call *hook.Call, res *frames.ToolResult) hook.Outcome {
				seen = append(seen, fmt.Sprintf("%s %d %s %s", res.Err.Code, res.Attempts, call.Tool, call.Raw))
				return hook.Keep()
			})
			mend := onError("mend", func(*hook.Call, *frames.ToolResult) hook.Outcome { return hook.Replace(map[string]int{"n": 42}) })
			never := onError("never", func(*hook.Call, *frames.ToolResult) hook.Outcome {
				t.Error("a second hook recovered it")
				return hook.Keep()
			})
			inBubble(t, hookedBy(c.gate, watch, mend, never), func(t *testing.T, w *world) {
				w.serve("i", c.decl, c.tool)
				q := call("1")
				q.Arguments = json.RawMessage(c.args)
				res := w.d.Do(t.Context(), q)
				if res.Err != nil || numberOf(t, res.Result) != 42 || metadata(res, "recoveredBy") != `"mend"` {
					t.Errorf("got %s %+v", res.Result, res.Err)
				}
				if want := []string{fmt.Sprintf("%s %d echo %s", c.code, c.attempts, c.args)}; !slices.Equal(seen, want) {
					t.Errorf("seen %q, want %q", seen, want)
				}
				if held := w.d.Held(); held.Bytes != 0 || held.Queued != 0 {
					t.Errorf("it holds %+v", held)
				}
			})
		})
	}
}

// contract: S18, W30, A35
func TestRecoveredResultIsChecked(t *testing.T) {
	tries := map[string]hook.Hook{
		"misfit":  onError("a", func(*hook.Call, *frames.ToolResult) hook.Outcome { return hook.Replace("seven") }),
		"failure": onError("a", func(_ *hook.Call, res *frames.ToolResult) hook.Outcome { return hook.Replace(res) }),
		"panic":   onError("a", func(*hook.Call, *frames.ToolResult) hook.Outcome { panic("oh") }),
	}
	for name, bad := range tries {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hookedBy(bad), func(t *testing.T, w *world) {
				f := w.serve("i", copier, func(q *bus.Request) {
					_ = q.End(frames.EndCompleted, frames.FailedResult(frames.NewError(frames.CodeExecution, "oh")))
				})
				res := w.d.Do(t.Context(), numbered(7))
				wantCode(t, res, frames.CodeExecution)
				if f.served() != 1 || w.d.HookStats()[0].Failed != 1 {
					t.Errorf("the tool ran %d times, counted %+v", f.served(), w.d.HookStats())
				}
			})
		})
	}
}

func TestRecoveredResultPassesAfterHooks(t *testing.T) {
	mend := onError("mend", func(*hook.Call, *frames.ToolResult) hook.Outcome { return hook.Replace(map[string]int{"n": 4}) })
	double := after("double", func(_ *hook.Call, res *frames.ToolResult) hook.Outcome {
		return hook.Replace(map[string]int{"n": 2 * numberOf(t, res.Result)})
	})
	inBubble(t, hookedBy(double, mend), func(t *testing.T, w *world) {
		for id, tool := range map[string]string{"1": "echo", "2": "nosuch"} { // it fails while it runs, and before
			if tool == "echo" {
				w.serve("i", copier, func(q *bus.Request) { _ = q.End(frames.EndCompleted) })
			}
			c := numbered(7)
			c.ID, c.Tool = id, tool
			if res := w.d.Do(t.Context(), c); res.Err != nil || numberOf(t, res.Result) != 8 {
				t.Errorf("%s: got %s %v", tool, res.Result, res.Err)
			}
		}
		if held := w.d.Held(); held.Lanes > 1 {
			t.Errorf("a tool that does not exist has a lane: %+v", held)
		}
	})
}

// Error hooks see a failure after the last attempt, once.
//
// contract: S17, W30
func TestErrorHookComesAfterTheLastAttempt(t *testing.T) {
	var seen []string
	watch := onError("watch", func(_ *hook.Call, res *frames.ToolResult) hook.Outcome {
		seen = append(seen, fmt.Sprintf("%s %d", res.Err.Code, res.Attempts))
		return hook.Replace(map[string]int{"n": 1})
	})
	retried := copier
	retried.Retries, retried.Replay = 2, frames.ReplaySafe
	inBubble(t, hookedBy(watch), func(t *testing.T, w *world) {
		f := w.serve("i", retried, func(q *bus.Request) {
			err := frames.NewError(frames.CodeExecution, "oh").With(func(e *frames.Error) { e.Retryable = true })
			_ = q.End(frames.EndError, frames.FailedResult(err))
		})
		res := w.d.Do(t.Context(), numbered(7))
		if res.Err != nil || res.Attempts != 3 || f.served() != 3 {
			t.Errorf("got %s %v after %d attempts, the tool ran %d times", res.Result, res.Err, res.Attempts, f.served())
		}
		if want := []string{"EXECUTION 3"}; !slices.Equal(seen, want) {
			t.Errorf("seen %q, want %q", seen, want)
		}
	})
}
