package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

// contract: P76, P77, P79, B19
// case: WS-L03
func TestOneFollowUpForAllCallsInTheModelsOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["slow"], r.tools["fast"] = after(3*time.Second), after(time.Second)
		r.says("look", `slow {"n":1}`, `fast {"n":2}`)
		r.says("done")
		start := time.Now()
		r.ends(frames.EndCompleted)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v: the calls did not run at once", took)
		}
		r.want(r.noted("META"), `
			ask 2 tools
			live TEXT look
			TOOL_CALL u-1-0 slow
			TOOL_CALL u-1-1 fast
			start u-1-0
			start u-1-1
			TOOL_RESULT u-1-1 fast {"n":2}
			TOOL_RESULT u-1-0 slow {"n":1}
			ask 2 tools
			live TEXT done
			END completed`)
		got := r.model.requests[1].Messages
		if len(got) != 4 || got[1].Calls[0].ModelID != "m0" || got[2].ToolCallID != "u-1-0" || got[3].ToolCallID != "u-1-1" {
			t.Errorf("the follow-up holds %+v", got)
		}
	})
}

// contract: E12, B38
func TestSequentialCallIsABarrier(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		write := after(time.Second)
		write.sequential = true
		r.tools["read"], r.tools["list"], r.tools["write"] = after(2*time.Second), after(3*time.Second), write
		r.says("", "read", "list", "write", "read")
		r.says("done")
		r.ends(frames.EndCompleted)
		r.want(r.noted("META", "TOOL_CALL", "live", "END", "ask"), `
			start u-1-0
			start u-1-1
			TOOL_RESULT u-1-0 read {}
			TOOL_RESULT u-1-1 list {}
			start u-1-2
			TOOL_RESULT u-1-2 write {}
			start u-1-3
			TOOL_RESULT u-1-3 read {}`)
	})
}

// contract: P72, P73, P78, B17, B18
// case: WS-L07, WS-L08
func TestExactlySoManyRounds(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		t.Run("", func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.tools["f"] = after(time.Second)
				r.cfg.Params.MaxIterations = new(n)
				r.cfg.Params.ToolChoice = provider.ToolChoice{Mode: provider.ChoiceRequired}
				r.cfg.Params.SystemPrompt = "be kind"
				for range n + 2 {
					r.says("more", "f")
				}
				end := r.ends(frames.EndLimit)
				if end.Err == nil || end.Err.Code != frames.CodeLimit || !strings.Contains(end.Err.Message, "maxIterations") {
					t.Errorf("ended with %v", end.Err)
				}
				if got := strings.Count(r.noted(), "start "); got != n {
					t.Errorf("%d rounds ran", got)
				}
				r.checkRequests(n)
				r.want(lastLines(r.noted("META"), 3), strings.ReplaceAll(`
					TOOL_RESULT u-#-0 f LIMIT
					ERROR LIMIT `+end.Err.Message+`
					END limit`, "#", string(rune('1'+n))))
			})
		})
	}
}

// checkRequests holds n+1 requests to what goes with each.
func (r *rig) checkRequests(n int) {
	r.t.Helper()
	if len(r.model.requests) != n+1 {
		r.t.Fatalf("%d requests, want %d", len(r.model.requests), n+1)
	}
	for i, req := range r.model.requests {
		system := req.Messages[0].Text
		last := i == n
		if len(req.Tools) == 0 != last || req.ToolChoice.Mode == "" != last {
			r.t.Errorf("request %d: %d tools, tool choice %q", i, len(req.Tools), req.ToolChoice.Mode)
		}
		want := "be kind"
		if last {
			want += "\n\n" + engine.FinalPrompt
		}
		if system != want {
			r.t.Errorf("request %d: system %q, want %q", i, system, want)
		}
		for _, m := range req.Messages[1:] {
			if m.Role == provider.RoleSystem {
				r.t.Errorf("request %d: a system message behind the head", i)
			}
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

func TestLastRequestMayAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.cfg.Params.MaxIterations = new(1)
		r.says("", "f")
		r.says("so it is")
		r.ends(frames.EndCompleted)
	})
}

func TestCallsBeyondTheLimitDoNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.cfg.Params.MaxCalls = new(3)
		r.says("", "f", "f")
		r.says("", "f", "f") // one too many
		end := r.ends(frames.EndLimit)
		if !strings.Contains(end.Err.Message, "maxCalls") || strings.Count(r.noted(), "start ") != 3 {
			t.Errorf("%v\n%s", end.Err, r.noted())
		}
		r.want(lastLines(r.noted("META", "TOOL_CALL", "start", "live"), 4), `
			TOOL_RESULT u-2-1 f LIMIT
			TOOL_RESULT u-2-0 f {}
			ERROR LIMIT `+end.Err.Message+`
			END limit`)
	})
}

func TestCallsUsedUpAsksOnceMore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.cfg.Params.MaxCalls = new(2)
		r.says("", "f", "f")
		r.says("enough")
		r.ends(frames.EndCompleted)
		if last := r.model.requests[1]; len(last.Tools) != 0 || !strings.Contains(last.Messages[0].Text, engine.FinalPrompt) {
			t.Errorf("the last request: %+v", last)
		}
	})
}

func TestTokensUsedUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.cfg.Params.MaxTokens = 20 // each answer takes 10
		r.says("", "f")
		r.says("", "f")
		end := r.ends(frames.EndLimit)
		if !strings.Contains(end.Err.Message, "maxTokens") || strings.Count(r.noted(), "start ") != 1 {
			t.Errorf("%v\n%s", end.Err, r.noted())
		}
	})
}

func TestDurationUsedUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = hanging()
		r.cfg.Params.MaxDuration = 10 * time.Second
		r.cfg.Elapsed = 3 * time.Second
		r.says("", "f")
		start := time.Now()
		end := r.ends(frames.EndLimit)
		if took := time.Since(start); took != 7*time.Second || !strings.Contains(end.Err.Message, "maxDurationMs") {
			t.Errorf("after %v: %v", took, end.Err)
		}
		r.want(lastLines(r.noted("META"), 3), `
			TOOL_RESULT u-1-0 f LIMIT
			ERROR LIMIT `+end.Err.Message+`
			END limit`)
		if res := r.commits[1].Results[0].Result; res.Err.Effect != frames.EffectUnknown {
			t.Errorf("the call may have acted, its effect is %s", res.Err.Effect)
		}
	})
}

// contract: B4, B58
// case: WS-L06, loop-05-cancelled-is-not-done
func TestCancelEndsTheRound(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		f := hanging()
		f.sequential = true
		r.tools["f"] = f
		r.says("", "f", "f", "f")
		runner := engine.New(r.cfg)
		time.AfterFunc(time.Second, runner.Cancel)
		end, err := runner.Run(t.Context())
		if err != nil || end.Reason != frames.EndCancelled || end.Err != nil {
			t.Fatalf("%+v, %v", end, err)
		}
		r.want(r.noted("META", "TOOL_CALL"), `
			ask 1 tools
			start u-1-0
			TOOL_RESULT u-1-1 f CANCELLED
			TOOL_RESULT u-1-2 f CANCELLED
			TOOL_RESULT u-1-0 f CANCELLED
			END cancelled`)
	})
}

func TestCancelGivesTheModelRequestUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.hangs()
		runner := engine.New(r.cfg)
		time.AfterFunc(time.Second, runner.Cancel)
		end, err := runner.Run(t.Context())
		if err != nil || end.Reason != frames.EndCancelled {
			t.Fatalf("%+v, %v", end, err)
		}
	})
}

// contract: P50, P51, A27, A32
// case: loop-15-validation-error-loops-back
func TestFailedCallsGoBackToTheModel(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = fakeTool{run: func(call) *frames.ToolResult {
			return &frames.ToolResult{Err: frames.NewError(frames.CodeExecution, "no luck")}
		}}
		r.says("", "nosuch", `f {"a":`, "f", "bad.name")
		r.says("done")
		r.ends(frames.EndCompleted)
		r.want(r.noted("META", "ask", "live"), `
			TOOL_CALL u-1-0 nosuch
			TOOL_CALL u-1-1 f
			TOOL_CALL u-1-2 f
			TOOL_CALL u-1-3 bad_name
			TOOL_RESULT u-1-0 nosuch NOT_FOUND
			TOOL_RESULT u-1-1 f VALIDATION_INPUT arguments_incomplete
			TOOL_RESULT u-1-3 bad_name NOT_FOUND
			start u-1-2
			TOOL_RESULT u-1-2 f EXECUTION
			END completed`)
		results := r.model.requests[1].Messages[2:]
		if len(results) != 4 || !results[0].IsError || results[2].Text != "no luck" || !strings.Contains(results[3].Text, `"bad.name"`) {
			t.Errorf("the model sees %+v", results)
		}
	})
}

// case: WS-R01
func TestCallsOfACutOffTurnDoNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.stops(provider.StopLength, "", `f {"whole":"by luck"}`)
		r.says("sorry")
		r.ends(frames.EndCompleted)
		r.want(r.noted("META", "live", "TOOL_CALL"), `
			ask 1 tools
			TOOL_RESULT u-1-0 f VALIDATION_INPUT arguments_truncated
			ask 1 tools
			END completed`)
	})
}

// case: WS-L02
func TestIdsOfTheModelMayRepeat(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.model.turns = append(r.model.turns, func(_ context.Context, yield func(provider.Event, error) bool) {
			yield(provider.NewToolCall("a", "f", `{"n":1}`, provider.StopToolCalls), nil)
			yield(provider.NewToolCall("a", "f", `{"n":2}`, provider.StopToolCalls), nil)
			yield(provider.Stop{Reason: provider.StopToolCalls}, nil)
		})
		r.says("done")
		r.ends(frames.EndCompleted)
		got := r.model.requests[1].Messages[1:]
		if got[0].Calls[0].ID == got[0].Calls[1].ID || got[1].Text != `{"n":1}` || got[2].Text != `{"n":2}` {
			t.Errorf("the follow-up holds %+v", got)
		}
	})
}

func TestCutOffAnswers(t *testing.T) {
	for reason, want := range map[provider.StopReason]string{
		provider.StopLength: frames.EndLimit, provider.StopContentFilter: frames.EndError, provider.StopError: frames.EndError,
	} {
		t.Run(string(reason), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.stops(reason, "half an ans")
				if end := r.ends(want); end.Err == nil {
					t.Error("no error says why")
				}
			})
		})
	}
}

func TestModelThatFails(t *testing.T) {
	for code, want := range map[frames.Code]string{
		frames.CodeUnavailable: frames.EndError, frames.CodeDenied: frames.EndError, frames.CodeLimit: frames.EndLimit,
	} {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.model.turns = append(r.model.turns, func(_ context.Context, yield func(provider.Event, error) bool) {
					yield(nil, frames.NewError(code, "no"))
				})
				if end := r.ends(want); end.Err.Code != code {
					t.Errorf("ended with %v", end.Err)
				}
			})
		})
	}
}

// contract: E9, B37
func TestTerminate(t *testing.T) {
	says := func(terminate string) fakeTool {
		return fakeTool{run: func(call) *frames.ToolResult { return &frames.ToolResult{Terminate: terminate} }}
	}
	for name, test := range map[string]struct {
		calls []string
		asks  int
	}{
		"all": {[]string{"round", "round"}, 1}, "one": {[]string{"round", "go"}, 2}, "now": {[]string{"go", "now"}, 1},
		"refused": {[]string{"round", "nosuch"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.tools["round"], r.tools["now"], r.tools["go"] = says(frames.TerminateRound), says(frames.TerminateNow), says("")
				r.says("", test.calls...)
				r.says("done")
				r.ends(frames.EndCompleted)
				if len(r.model.requests) != test.asks {
					t.Errorf("%d requests, want %d", len(r.model.requests), test.asks)
				}
			})
		})
	}
}

func TestToolOutputAndTicksAreShown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = fakeTool{run: func(c call) *frames.ToolResult {
			out, tick := frames.Text("half", frames.WithMeta("stream", "stdout")), frames.Tick()
			out.Seq = 7
			c.live(&out)
			c.live(&tick)
			<-time.After(12 * time.Second) // virtual time
			return &frames.ToolResult{}
		}}
		var streams []string
		live := r.cfg.Live
		r.cfg.Live = func(f frames.Frame) {
			live(f)
			if f.Type == frames.TypeText {
				streams = append(streams, f.StreamID)
			}
			if f.Seq != 0 {
				t.Errorf("shows %s with the tool's seq", f.Type)
			}
		}
		r.says("look", "f")
		r.says("done")
		r.ends(frames.EndCompleted)
		r.want(r.noted("META", "ask", "TOOL", "start"), `
			live TEXT look
			live TEXT u-1-0 f half
			live TICK
			live TICK
			live TEXT done
			END completed`)
		r.want(strings.Join(streams, " "), "s0 s0 s1")
	})
}

func TestDrainFinishesTheRound(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(2 * time.Second)
		r.says("", "f", "f")
		runner := engine.New(r.cfg)
		time.AfterFunc(time.Second, runner.Drain)
		if end, err := runner.Run(t.Context()); !errors.Is(err, engine.ErrDrained) {
			t.Fatalf("%+v, %v", end, err)
		}
		if got := r.noted(); strings.Count(got, "TOOL_RESULT") != 2 || strings.Count(got, "ask") != 1 {
			t.Errorf("happened:\n%s", got)
		}
	})
}

// Calls of an answer that comes during a drain would be left to nobody: it is not kept.
func TestDrainWhileTheModelAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		runner := engine.New(r.cfg)
		r.says("", "f")
		first := r.model.turns[0]
		r.model.turns[0] = func(ctx context.Context, yield func(provider.Event, error) bool) {
			runner.Drain()
			first(ctx, yield)
		}
		if _, err := runner.Run(t.Context()); !errors.Is(err, engine.ErrDrained) {
			t.Fatal(err)
		}
		if len(r.commits) != 0 {
			t.Errorf("kept %+v", r.commits[0])
		}
	})
}

func TestHardStopKeepsAndShowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(2 * time.Second)
		r.says("", "f")
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("lease lost")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if _, err := engine.New(r.cfg).Run(ctx); !errors.Is(err, gone) {
			t.Fatal(err)
		}
		before := r.noted()
		<-time.After(10 * time.Second) // virtual time
		if got := r.noted(); got != before || strings.Contains(got, "TOOL_RESULT") {
			t.Errorf("happened after the stop:\n%s", got)
		}
	})
}

func TestNothingStartsWhereTheRunMayNotAct(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.says("", "f")
		gone := errors.New("lease lost")
		r.cfg.MayAct = func(context.Context) error { return gone }
		if _, err := r.run(); !errors.Is(err, gone) || strings.Contains(r.noted(), "start") {
			t.Fatalf("%v\n%s", err, r.noted())
		}
	})
}

func TestJournalThatFailsEndsTheRunAsItStands(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.says("", "f")
		lost := errors.New("lost")
		r.refuse = func(*engine.Commit) error { return lost }
		if _, err := r.run(); !errors.Is(err, lost) || strings.Contains(r.noted(), "start") {
			t.Fatalf("%v\n%s", err, r.noted())
		}
	})
}

func TestTooLargeForTheJournal(t *testing.T) {
	full := frames.NewError(frames.CodeTooLarge, "the limit is 8")
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(time.Second)
		r.says("", "f")
		r.says("too much")
		r.refuse = func(c *engine.Commit) error {
			big := len(c.Results) > 0 && c.Results[0].Result.Err == nil
			if big || c.Answer != nil && c.Answer.Message.Text != "" {
				return full
			}
			return nil
		}
		if end := r.ends(frames.EndError); end.Err.Code != frames.CodeTooLarge {
			t.Errorf("ended with %v", end.Err)
		}
		r.want(r.noted("META", "live", "TOOL_CALL", "ask"), `
			start u-1-0
			TOOL_RESULT u-1-0 f TOO_LARGE
			ERROR TOO_LARGE the limit is 8
			END error`)
	})
}
