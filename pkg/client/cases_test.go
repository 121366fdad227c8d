package client_test

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

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
)

// sameIDs gives a model's answer whose calls all have one id.
func sameIDs(calls ...string) []provider.Event {
	out := says("", calls...)
	for i, e := range out {
		if c, ok := e.(provider.ToolCall); ok {
			c.ID = "call_1"
			out[i] = c
		}
	}
	return out
}

// echoes serves tools that give back their arguments after a time, and counts the runs.
func (w *world) echoes(d time.Duration, names ...string) *atomic.Int32 {
	w.t.Helper()
	var n atomic.Int32
	w.meshTools(func(s *tool.Set) {
		for _, name := range names {
			decl := frames.Declaration{Name: name}
			if strings.HasPrefix(name, "safe") {
				decl.Replay = frames.ReplaySafe
			}
			w.must(s.AddRaw(decl, func(ctx context.Context, c *tool.Call) (*frames.ToolResult, error) {
				n.Add(1)
				_, err := after(d)(ctx, nil)
				return &frames.ToolResult{Result: c.Arguments}, err
			}))
		}
	})
	return &n
}

// legal holds a conversation to what providers take: each call has one result
// before the next message, in the model's order if it goes to a model, and no id
// stands twice.
func legal(t *testing.T, messages []provider.Message, ordered bool) {
	t.Helper()
	seen := map[string]bool{}
	var open []string
	for _, m := range messages {
		if m.Role == provider.RoleTool {
			at := slices.Index(open, m.ToolCallID)
			if at < 0 || ordered && at > 0 {
				t.Fatalf("result of %q where %q wait", m.ToolCallID, open)
			}
			open = slices.Delete(open, at, at+1)
			continue
		}
		if len(open) > 0 {
			t.Fatalf("%s before the results of %q", m.Role, open)
		}
		for _, c := range m.Calls {
			if seen[c.ID] || c.ID == "" {
				t.Fatalf("id %q stands twice", c.ID)
			}
			seen[c.ID] = true
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		t.Fatalf("no result of %q", open)
	}
}

// history gives what clients are told, which has to be legal as what the model was.
func (w *world) history() []provider.Message {
	w.t.Helper()
	messages, err := w.Messages(w.t.Context(), "s1")
	w.must(err)
	legal(w.t, messages, false)
	for _, req := range w.asked() {
		legal(w.t, req.Messages, true)
	}
	return messages
}

// The ids that a model gives say nothing: they may stand twice in one answer, and
// again in every turn.
//
// case: WS-L02, WS-H02
func TestIdsOfAModelThatRepeatInASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		n := w.echoes(time.Second, "f")
		w.play = rounds(sameIDs(`f {"n":1}`, `f {"n":2}`), sameIDs(`f {"n":3}`, `f {"n":4}`, `f {"n":5}`), says("done"))
		c := w.session(w.Client, "fake/m")
		for turn := range 3 {
			c.send(frames.Text("go"))
			c.until("assistant: done", turn+1)
		}
		c.until("idle", 4)
		if n.Load() != 15 {
			t.Errorf("%d calls ran", n.Load())
		}
		history := w.history()
		if len(history) != 1+3*(1+1+2+1+3+1) {
			t.Errorf("%d messages", len(history))
		}
	})
}

// A turn that dies and begins again has a result for each call, though earlier turns
// used the same ids and had theirs.
//
// case: WS-H01, WS-H02, WS-L12
func TestCallsOfADeadLoopInALaterTurn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h, l := w.harness(), w.loop()
		n := w.echoes(20*time.Second, "act", "safe")
		w.play = rounds(sameIDs("act", "safe"), says("done"))
		c := w.session(w.Client, "fake/m")
		c.send(frames.Text("one"))
		c.until("assistant: done", 1)
		c.send(frames.Text("two"))
		c.until("executing", 2)
		<-time.After(5 * time.Second) // virtual time: both run
		l.crash()
		h.crash()
		w.harness()
		w.loop()
		c.send(frames.Text("three"))
		got := c.until("assistant: done", 3)
		if strings.Count(got, "result act INTERRUPTED") != 1 || strings.Count(got, "result safe {}") != 3 || n.Load() != 4+1+2 {
			t.Errorf("%d runs:\n%s", n.Load(), got)
		}
		w.history()
	})
}

// ABORT gives every call that is pending its result, and closes the session.
//
// case: WS-H05, loop-05-cancelled-is-not-done
func TestAbortOfPendingCalls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.echoes(20*time.Minute, "f", "g")
		w.play = rounds(says("", "f", "g", "f"), says("done"))
		c := w.session(w.Client, "fake/m")
		c.send(frames.Text("go"))
		c.until("executing", 1)
		<-time.After(time.Second) // virtual time: they run
		c.send(frames.NewFrame(frames.TypeAbort, nil))
		got := c.until("END cancelled", 1)
		if strings.Count(got, "result f CANCELLED") != 2 || strings.Count(got, "result g CANCELLED") != 1 || !strings.HasSuffix(got, "\ncancelled\nEND cancelled") {
			t.Errorf("got:\n%s", got)
		}
		w.history()
		if n := len(w.asked()); n != 1 {
			t.Errorf("%d model requests", n)
		}
		info, err := w.SessionInfo(t.Context(), "s1")
		w.must(err)
		if info.Status != "cancelled" {
			t.Errorf("the session is %s", info.Status)
		}
	})
}

// END waits for the calls that run: they stand in the history.
//
// case: WS-L03
func TestEndWhileCallsRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.echoes(20*time.Second, "slow")
		w.echoes(time.Second, "fast")
		w.play = rounds(says("", "slow", "fast"), says("done"))
		c := w.session(w.Client, "fake/m")
		c.send(frames.Text("go"))
		c.until("executing", 1)
		c.send(frames.End(""))
		got := c.until("END completed", 1)
		if !strings.Contains(got, "result slow {}") || !strings.Contains(got, "result fast {}") || strings.Index(got, "END") < strings.Index(got, "result slow") {
			t.Errorf("got:\n%s", got)
		}
		w.history()
	})
}

// A session takes exactly its turns, and says why it ends.
//
// case: WS-H09, WS-L08
func TestTurnsOfASessionAreExact(t *testing.T) {
	for _, most := range []int{1, 3, 10} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.harness()
				w.loop()
				w.echoes(time.Second, "f")
				w.play = rounds(says("", "f"), says("done"))
				c := w.session(w.Client, "fake/m", frames.Param("maxTurns", most))
				for i := range most {
					c.send(frames.Text("go"))
					c.until("idle", i+2)
				}
				c.send(frames.Text("one more"))
				got := c.until("END max_turns", 1)
				if n := strings.Count(got, "assistant: done"); n != most || len(w.asked()) != 2*most {
					t.Errorf("%d turns, %d requests:\n%s", n, len(w.asked()), got)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if !slices.ContainsFunc(c.frames, func(f frames.Frame) bool {
					op, _ := f.Content.Lookup("operation").Text()
					return f.Type == frames.TypeProgress && op == "max-turns-reached"
				}) {
					t.Error("no PROGRESS says so")
				}
				w.history()
			})
		})
	}
}

// A model that only repeats itself is told so, and then stopped.
//
// case: WS-L10
func TestModelThatRepeatsItselfInASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		var n atomic.Int32
		w.meshTools(func(s *tool.Set) {
			w.must(s.AddRaw(frames.Declaration{Name: "f"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
				n.Add(1)
				return &frames.ToolResult{Result: json.RawMessage(`{"ok":true}`)}, nil
			}))
		})
		w.play = func(req *provider.Request) []provider.Event {
			return says("", []string{`f {"a":1,"b":{"x":1.0,"y":[1]}}`, `f { "b": {"y":[1],"x":1.0}, "a":1}`}[len(req.Messages)/2%2])
		}
		c := w.session(w.Client, "fake/m", frames.Param("maxIterations", 220))
		c.send(frames.Text("go"))
		if got := c.until("idle", 2); !strings.Contains(got, "LIMIT loop_detected") {
			t.Errorf("got:\n%s", got)
		}
		asked := w.asked()
		if n.Load() < 3 || n.Load() > 6 || len(asked) > 7 {
			t.Errorf("%d runs, %d requests", n.Load(), len(asked))
		}
		w.history()
	})
}

// A result that ends the run takes no sibling with it.
//
// case: WS-H19
func TestTerminateInABatch(t *testing.T) {
	for name, c := range map[string]struct {
		ends [4]string // control of each call
		last string    // what the turn ends with
	}{
		"one says now":    {[4]string{"", frames.TerminateNow, "", ""}, "result f3 {}"},
		"one says round":  {[4]string{frames.TerminateRound, "", "", ""}, "assistant: done"},
		"every says so":   {[4]string{frames.TerminateRound, frames.TerminateRound, frames.TerminateRound, frames.TerminateRound}, "result f3 {}"},
		"the last is now": {[4]string{"", "", "", frames.TerminateNow}, "result f3 {}"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.harness()
				w.loop()
				w.meshTools(func(s *tool.Set) {
					for i, control := range c.ends {
						d := time.Duration(i) * time.Second
						w.must(s.AddRaw(frames.Declaration{Name: fmt.Sprint("f", i)}, func(ctx context.Context, _ *tool.Call) (*frames.ToolResult, error) {
							_, err := after(d)(ctx, nil)
							return &frames.ToolResult{Terminate: control}, err
						}))
					}
				})
				w.play = rounds(says("", "f0", "f1", "f2", "f3"), says("done"))
				s := w.session(w.Client, "fake/m")
				s.send(frames.Text("go"))
				got := s.until("idle", 2)
				for i := range 4 {
					if !strings.Contains(got, fmt.Sprintf("result f%d {}", i)) {
						t.Errorf("no result of f%d", i)
					}
				}
				lines := strings.Split(got, "\n")
				if lines[len(lines)-2] != c.last {
					t.Errorf("ends with %q:\n%s", lines[len(lines)-2], got)
				}
				w.history()
				s.send(frames.Text("more")) // the history is whole
				s.until("idle", 3)
			})
		})
	}
}

// Of texts that come while a turn runs, from several processes, each has a turn of
// its own, in one order.
//
// case: WS-H10, WS-H14
func TestTextsOfSeveralClients(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.harness()
		w.loop()
		w.loop()
		w.echoes(time.Second, "f")
		w.play = rounds(says("", "f"), says("done"))
		c := w.session(w.Client, "fake/m")
		done := make(chan error)
		for i := range 6 {
			other := w.dial()
			go func() {
				s, err := other.Session(t.Context(), "s1")
				if err == nil {
					_, err = s.Send(t.Context(), frames.Text(fmt.Sprint("text ", i)))
					_ = s.Close()
				}
				done <- err
			}()
		}
		for range 6 {
			w.must(<-done)
		}
		c.until("assistant: done", 6)
		c.until("idle", 7)
		synctest.Wait()
		history := w.history()
		seen := map[string]bool{}
		for i, m := range history[1:] {
			if role := []provider.Role{provider.RoleUser, provider.RoleAssistant, provider.RoleTool, provider.RoleAssistant}[i%4]; m.Role != role {
				t.Fatalf("message %d is of %s", i, m.Role)
			}
			if m.Role == provider.RoleUser {
				seen[m.Text] = true
			}
		}
		if len(seen) != 6 {
			t.Errorf("texts %v", seen)
		}
	})
}

// The call of a loop that dies is not under way for ever: another takes the session
// over, and the model is told.
//
// case: WS-H17, WS-H01
func TestCallOfALoopThatDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		l := w.loop()
		w.echoes(20*time.Minute, "act")
		w.play = rounds(says("", "act"), says("done"))
		c := w.session(w.Client, "fake/m")
		c.send(frames.Text("go"))
		c.until("executing", 1)
		<-time.After(3 * time.Second) // virtual time: it runs
		w.loop()
		start := time.Now()
		l.crash()
		c.until("result act INTERRUPTED", 1)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("told after %v", took)
		}
		c.until("idle", 2)
		w.history()
	})
}

// A result that is sent again, in one message or as another, is one result.
//
// case: WS-H03
func TestResultThatIsSentAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.harness()
		w.loop()
		w.play = rounds(says("", `ask {"n":1}`, `ask {"n":2}`), says("well"))
		c := w.session(w.Client, "fake/m", frames.Param("tool", map[string]any{"name": "ask", "timeoutMs": 600_000}))
		other := w.dial() // serves the tool, and never answers there
		sub, err := other.Conn().NATS().SubscribeSync(other.Conn().Own("me", "ask"))
		w.must(err)
		w.must(other.Conn().Flush(t.Context()))
		c.send(frames.Text("go"))
		var ids []string
		for range 2 {
			m, err := sub.NextMsgWithContext(t.Context())
			w.must(err)
			call, err := frames.Decode(m.Data)
			w.must(err)
			ids = append(ids, call.Frames[0].ToolCallID)
		}
		slices.Sort(ids)
		result := func(i int, frameID string) frames.Frame {
			return frames.Result(&frames.ToolResult{Result: fmt.Appendf(nil, `{"n":%d}`, i)}, frames.WithCall(ids[i], "ask"), frames.WithID(frameID))
		}
		for range 3 {
			c.send(result(0, "r0"))
		}
		<-time.After(5 * time.Minute) // virtual time: behind the stream's own window for repeats
		c.send(result(0, "r0"))
		c.send(result(1, "r1"))
		got := c.until("assistant: well", 1)
		c.send(result(1, "r1"))
		synctest.Wait()
		if strings.Count(got, "result ask") != 2 || strings.Contains(strings.Join(c.lines(), "\n"), "CONFLICT") {
			t.Errorf("got:\n%s", strings.Join(c.lines(), "\n"))
		}
		if history := w.history(); len(history) != 6 {
			t.Errorf("%d messages", len(history))
		}
		info, err := w.SessionInfo(t.Context(), "s1")
		w.must(err)
		if info.Usage.Calls != 2 {
			t.Errorf("%d calls are counted", info.Usage.Calls)
		}
		w.must(sub.Unsubscribe())
	})
}
