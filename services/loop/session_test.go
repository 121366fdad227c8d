package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/loop"
)

// counted is a tool of a test that counts its runs.
func (r *rig) counted(s *tool.Set, decl frames.Declaration, run handler) *atomic.Int32 {
	var n atomic.Int32
	decl.Schema = anything
	r.add(s, decl, func(ctx context.Context, args json.RawMessage) (any, error) {
		n.Add(1)
		return run(ctx, args)
	})
	return &n
}

// contract: E2, P47, P74, P79
// case: WS-L03
func TestTurnOfASession(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "slow", Schema: anything}, func(ctx context.Context, args json.RawMessage) (any, error) {
				tool.Output(ctx, "stdout", "half way")
				return after(12*time.Second)(ctx, args)
			})
			r.add(s, frames.Declaration{Name: "fast", Schema: anything}, after(time.Second))
		})
		r.loop(loop.Config{})
		r.play = script(answer("let me look", `slow {"n":1}`, `fast {"n":2}`), answer("two things"))
		h := r.session("s1", "systemPrompt", "be kind")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		r.want(h.turn(), `
			TEXT go
			META thinking 1
			META applied
			TEXT let me look
			TOOL_CALL slow
			TOOL_CALL fast
			META usage
			META executing 1
			TOOL_RESULT fast {"n":2}
			TOOL_RESULT slow {"n":1}
			META thinking 1
			TEXT two things
			META usage
			META idle 1
			META applied`) // the last is of the revision that gives the session up
		r.want(briefs(h.live()), `
			TEXT let
			TEXT me
			TEXT look
			TEXT slow half way
			TICK
			TICK
			TEXT two
			TEXT things`)
		h.check()
		s := h.head().State
		if s.Reason != frames.EndCompleted || s.Usage.Calls != 2 || s.Usage.Requests != 2 || s.Usage.TotalTokens != 20 {
			t.Errorf("ended %q, used %+v", s.Reason, s.Usage)
		}
		asked := r.asked()
		if m := asked[1].Messages; len(m) != 5 || m[3].Text != `{"n":1}` || m[4].Text != `{"n":2}` {
			t.Errorf("the follow-up holds %+v", m)
		}
		if got := asked[0].Messages[0].Text; strings.Count(got, "be kind") != 1 {
			t.Errorf("the system message: %q", got)
		}
	})
}

// The ids of a session's calls are made of its uid, its entry and their place.
func TestIdsAndIntentOfCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything, Replay: frames.ReplaySafe}, func(context.Context, json.RawMessage) (any, error) {
				<-release
				return nil, nil
			})
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "f {}", "nosuch {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		head := h.head()
		if p := head.State.Pending; len(p) != 1 || p[0].ID != head.State.UID+"-4-0" || p[0].Identity != "local" || p[0].Replay != frames.ReplaySafe {
			t.Errorf("pending %+v at entry %d", p, head.N)
		}
		close(release)
		h.await("META idle 1", 1)
		h.check()
	})
}

func TestQueuedTextsAndLaterTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything}, after(time.Second))
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "f {}"), answer("done"))
		h := r.session("s1")
		h.say("one")
		h.await("META executing 1", 1)
		h.say("two") // waits for the turn to end, and begins the next
		h.await("META idle 2", 1)
		h.settled()
		h.say("three") // a job of its own
		h.await("META idle 3", 1)
		h.settled()
		h.check()
		if s := h.head().State; s.CurrentTurn != 3 || s.Epoch != 5 {
			t.Errorf("turn %d, epoch %d: a turn and a take add one", s.CurrentTurn, s.Epoch)
		}
		last := r.asked()[5].Messages
		if n := len(last); n != 1+3*4-1 {
			t.Errorf("the last request holds %d messages", n)
		}
	})
}

// contract: B4, B58
// case: WS-L06, loop-05-cancelled-is-not-done
func TestCancelOfATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var runs *atomic.Int32
		r.tools(func(s *tool.Set) {
			runs = r.counted(s, frames.Declaration{Name: "f", ExecutionMode: frames.Sequential}, after(25*time.Second))
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "f {}", "f {}", "f {}"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		synctest.Wait()
		start := time.Now()
		h.input(frames.NewFrame(frames.TypeCancel, nil))
		h.await("META idle 1", 1)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("ended after %v", took)
		}
		h.settled()
		got := h.turn()
		if n := strings.Count(strings.Join(got, "\n"), "TOOL_RESULT f CANCELLED"); n != 3 {
			t.Errorf("%d calls are cancelled:\n%s", n, strings.Join(got, "\n"))
		}
		if runs.Load() != 1 || len(r.asked()) != 1 || h.head().State.Reason != frames.EndCancelled {
			t.Errorf("%d calls ran, %d requests, ended %q", runs.Load(), len(r.asked()), h.head().State.Reason)
		}
		h.check()
	})
}

func TestCancelWhileTheModelSpeaks(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		r.play = func(context.Context, int, *provider.Request) ([]provider.Event, error) {
			<-time.After(time.Minute) // virtual time
			return answer("too late"), nil
		}
		h := r.session("s1")
		h.say("go")
		h.await("META applied", 1)
		h.input(frames.NewFrame(frames.TypeCancel, nil))
		h.await("META idle 1", 1)
		h.settled()
		<-time.After(2 * time.Minute) // the adapter of this test ends
		if got := strings.Join(briefs(h.durable()), "\n"); strings.Contains(got, "too late") {
			t.Errorf("the answer of a cancelled turn counts:\n%s", got)
		}
	})
}

// contract: A30, A31
func TestCloseWaitsForTheTurn(t *testing.T) {
	for name, test := range map[string]struct {
		frame  frames.Frame
		reason string
		status session.Status
		behind string // the call
	}{
		"end":   {frames.End(frames.EndCompleted), frames.EndCompleted, session.Done, "TOOL_RESULT f {}\nTEXT done"},
		"abort": {frames.Abort(), frames.EndCancelled, session.Cancelled, "TOOL_RESULT f CANCELLED"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.tools(func(s *tool.Set) {
					r.add(s, frames.Declaration{Name: "f", Schema: anything}, after(3*time.Second))
				})
				r.loop(loop.Config{})
				r.play = script(answer("", "f {}"), answer("done"))
				h := r.session("s1")
				h.say("go")
				h.await("META executing 1", 1)
				h.input(test.frame)
				h.await("END "+test.reason, 1)
				h.settled()
				if s := h.head().State; s.Status != test.status {
					t.Errorf("the session is %s", s.Status)
				}
				got := strings.Join(slices.DeleteFunc(h.turn(), func(line string) bool { return strings.HasPrefix(line, "META") }), "\n")
				if want := "TEXT go\nTOOL_CALL f\n" + test.behind + "\nEND " + test.reason; got != want {
					t.Errorf("got:\n%s\n\nwant:\n%s", got, want)
				}
				h.check()
			})
		})
	}
}

func TestModelErrorEndsTheTurnNotTheSession(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		r.play = func(_ context.Context, n int, _ *provider.Request) ([]provider.Event, error) {
			if n == 1 {
				return nil, frames.NewError(frames.CodeDenied, "no key")
			}
			return answer("better"), nil
		}
		h := r.session("s1")
		h.say("one")
		h.await("META idle 1", 1)
		h.settled()
		r.want(h.turn(), "TEXT one\nMETA thinking 1\nMETA applied\nERROR DENIED\nMETA idle 1\nMETA applied")
		h.say("two")
		h.await("META idle 2", 1)
		h.settled()
		h.check()
	})
}

func TestModelThatIsNotThereEndsTheTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		h := r.session("s1", "model", "nosuch/m")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		r.want(h.turn(), "TEXT go\nMETA thinking 1\nMETA applied\nERROR NOT_FOUND\nMETA idle 1\nMETA applied")
	})
}

// contract: B17, P71
// case: WS-L07, WS-L08
func TestLimitsOfATurn(t *testing.T) {
	for name, test := range map[string]struct {
		pairs []any
		runs  int32
		last  string // of the call that met the limit
	}{
		"rounds": {[]any{"maxIterations", 2}, 2, "LIMIT"},
		"none":   {[]any{"maxIterations", 0}, 0, "LIMIT"},
		"calls":  {[]any{"maxCalls", 3}, 3, "LIMIT"},
		"tokens": {[]any{"maxTokens", 25}, 2, "LIMIT"},       // an answer takes 10
		"time":   {[]any{"maxDurationMs", 4500}, 5, "LIMIT"}, // why it was cancelled
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var runs *atomic.Int32
				r.tools(func(s *tool.Set) {
					runs = r.counted(s, frames.Declaration{Name: "f"}, after(time.Second))
				})
				r.loop(loop.Config{})
				r.play = func(_ context.Context, n int, _ *provider.Request) ([]provider.Event, error) {
					return answer("", fmt.Sprintf(`f {"n":%d}`, n)), nil
				}
				h := r.session("s1", test.pairs...)
				h.say("go")
				h.await("META idle 1", 1)
				h.settled()
				if s := h.head().State; s.Reason != frames.EndLimit || runs.Load() != test.runs {
					t.Errorf("ended %q after %d calls, want limit after %d", s.Reason, runs.Load(), test.runs)
				}
				got := h.turn()
				if tail := strings.Join(got[len(got)-4:len(got)-1], "\n"); tail != "TOOL_RESULT f "+test.last+"\nERROR LIMIT\nMETA idle 1" {
					t.Errorf("ends with:\n%s", tail)
				}
				runs.Store(0)
				h.say("again") // limits are those of a turn
				h.await("META idle 2", 1)
				if runs.Load() != test.runs {
					t.Errorf("%d calls in the second turn", runs.Load())
				}
				h.check()
			})
		})
	}
}

// A user turn has 50 rounds where nothing else is said, and the next turn again.
//
// contract: P72
func TestRoundsOfATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var runs *atomic.Int32
		r.tools(func(s *tool.Set) { runs = r.counted(s, frames.Declaration{Name: "f"}, after(0)) })
		r.loop(loop.Config{})
		r.play = func(_ context.Context, n int, _ *provider.Request) ([]provider.Event, error) {
			return answer("", fmt.Sprintf(`f {"n":%d}`, n)), nil
		}
		h := r.session("s1")
		for turn := range int32(2) {
			h.say("go")
			h.await(fmt.Sprint("META idle ", turn+1), 1)
			h.settled()
			if s := h.head().State; s.Reason != frames.EndLimit || runs.Load() != 50*(turn+1) {
				t.Errorf("turn %d ended %q after %d calls in all", turn+1, s.Reason, runs.Load())
			}
		}
		if last := r.asked()[50]; len(last.Tools) != 0 {
			t.Error("the last request of a turn has tools")
		}
	})
}

func TestToolsOfASession(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		infos := make(chan tool.Info, 1)
		r.tools(func(s *tool.Set) {
			for _, name := range []string{"read_file", "write_file", "run"} {
				r.add(s, frames.Declaration{Name: name, Schema: anything, Keys: []string{"w"}}, func(ctx context.Context, _ json.RawMessage) (any, error) {
					infos <- tool.CallInfo(ctx)
					return nil, nil
				})
			}
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "read_file {}", "run {}"), answer("done"))
		h := r.session("s1", "tools", []any{"*_file"})
		h.say("go")
		h.await("META idle 1", 1)
		if got := r.asked()[0].Tools; len(got) != 2 || got[0].Name != "read_file" || got[1].Name != "write_file" {
			t.Errorf("offered %+v", got)
		}
		if got := strings.Join(h.turn(), "\n"); !strings.Contains(got, "TOOL_RESULT run NOT_FOUND") {
			t.Errorf("a tool that is not offered ran:\n%s", got)
		}
		if got := <-infos; got.Caller != "me" || got.SessionID != "s1" || got.Workspace != "w" {
			t.Errorf("the call is %+v", got)
		}
	})
}

// Tools, tool choice and system prompt stand on every request, whatever the order in
// which a client sent them.
//
// contract: P68, P69, B16, A29, P64
func TestEveryRequestIsAsCompleteAsTheFirst(t *testing.T) {
	earlier := []any{map[string]any{"role": "user", "content": "before"}, map[string]any{"role": "assistant", "content": "yes"}}
	sets := map[string][]any{
		"messages first": {"messages", earlier, "systemPrompt", "be kind", "toolChoice", "required", "temperature", 0.5},
		"messages last":  {"temperature", 0.5, "toolChoice", "required", "systemPrompt", "be kind", "messages", earlier},
	}
	for name, pairs := range sets {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.tools(func(s *tool.Set) {
					r.add(s, frames.Declaration{Name: "f", Schema: anything}, after(0))
					r.add(s, frames.Declaration{Name: "g", Schema: anything}, after(0))
				})
				r.loop(loop.Config{})
				r.play = script(answer("", `f {"n":1}`, `g {"n":1}`), answer("", `g {"n":2}`), answer("done"))
				h := r.session("s1", pairs...)
				h.say("go")
				h.await("META idle 1", 1)
				asked := r.asked()
				if len(asked) != 3 {
					t.Fatalf("%d requests", len(asked))
				}
				for i, req := range asked {
					if len(req.Tools) != 2 || req.ToolChoice.Mode != provider.ChoiceRequired || string(req.Settings["temperature"]) != "0.5" {
						t.Errorf("request %d: %d tools, choice %q, settings %s", i+1, len(req.Tools), req.ToolChoice.Mode, req.Settings)
					}
					if m := req.Messages; strings.Count(m[0].Text, "be kind") != 1 || m[1].Text != "before" || m[3].Text != "go" {
						t.Errorf("request %d holds %+v", i+1, m)
					}
				}
				if m := asked[1].Messages; len(m) != 7 || m[5].Text != `{"n":1}` || m[6].Text != `{"n":1}` {
					t.Errorf("the follow-up holds %+v", m)
				}
			})
		})
	}
}

func TestParamThatNoLoopTakesEndsTheTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		h := r.session("s1")
		// A session's input is held to what loops take; a record of another version may hold more.
		_, err := h.store.Update(t.Context(), h.key, func(s *session.State) ([]session.Change, error) {
			s.Params["temperature"] = json.RawMessage(`"hot"`)
			return nil, nil
		})
		r.must(err)
		h.say("go")
		h.await("META idle 1", 1)
		if got := h.turn(); !strings.Contains(strings.Join(got, "\n"), "ERROR VALIDATION_INPUT") {
			t.Errorf("got %q", got)
		}
	})
}
