package client_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// response is what a model outside of the mesh says; calls are names of tools.
func response(text string, calls ...string) frames.Frame {
	list := make([]any, 0, len(calls))
	for _, c := range calls {
		name, args, _ := strings.Cut(c, " ")
		call := map[string]any{"id": "m-" + name, "tool": name}
		if args != "" {
			call["argumentsJson"] = args
		}
		list = append(list, call)
	}
	return frames.Data(map[string]any{"type": "llm-response", "content": text, "toolCalls": list})
}

// counting serves a tool that counts its runs.
func (w *world) counting(name string, d time.Duration, opts ...tool.Option) *atomic.Int32 {
	w.t.Helper()
	var n atomic.Int32
	w.meshTools(func(s *tool.Set) {
		w.must(tool.Add(s, name, func(ctx context.Context, _ struct{}) (string, error) {
			n.Add(1)
			_, err := after(d)(ctx, nil)
			return "mesh", err
		}, opts...))
	})
	return &n
}

// A session whose model is outside has its calls run by the mesh, and its client's
// own tools by the client.
//
// contract: G3, G59, G30, G57, A28
func TestCallsOfAModelOutside(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.counting("look", time.Second)
		c := w.session(w.Client, "")
		set, _ := doing(t, "echo", after(time.Minute), lasting(time.Hour))
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		c.send(response("so", `echo {"q":"hi"}`, "look", "nosuch", `echo {"q":1}`))
		c.until("thinking", 2)
		c.send(response("done"))
		c.want(c.until("idle", 2), `
			user: go
			thinking
			assistant: so
			call echo
			call look
			call nosuch
			call echo
			executing
			result nosuch NOT_FOUND
			result echo VALIDATION_INPUT
			result look "mesh"
			waiting
			result echo {"q":"hi"}
			thinking
			assistant: done
			idle`)
		messages, err := w.Messages(t.Context(), "s1")
		w.must(err)
		var roles []string
		for _, m := range messages {
			roles = append(roles, string(m.Role))
		}
		if got := strings.Join(roles, " "); got != "system user assistant tool tool tool tool assistant" {
			t.Errorf("history: %s", got)
		}
	})
}

// What a model outside asked for waits for a loop, and does not run twice where one dies.
//
// contract: E2, E3
func TestCallsOfAModelOutsideAndALoopThatDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		unsafe := w.counting("act", 20*time.Second)
		c := w.session(w.Client, "")
		c.send(frames.Text("go"))
		c.send(response("", "act"))
		c.until("executing", 1)
		<-time.After(time.Minute) // virtual time: no loop is there yet
		l := w.loop()
		for unsafe.Load() == 0 {
			<-time.After(10 * time.Millisecond)
		}
		synctest.Wait()
		l.crash()
		w.loop()
		if got := c.until("thinking", 2); !strings.Contains(got, "result act INTERRUPTED") {
			t.Errorf("got:\n%s", got)
		}
		if n := unsafe.Load(); n != 1 {
			t.Errorf("%d runs of a call that may not run twice", n)
		}
	})
}

// A turn of a model outside is cancelled while the mesh runs its call, and while
// nobody works on it.
func TestCancelOfAModelOutside(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.counting("look", 20*time.Second)
		c := w.session(w.Client, "")
		c.send(frames.Text("go"))
		c.send(response("", "look"))
		c.until("executing", 1)
		<-time.After(time.Second) // virtual time
		c.send(frames.NewFrame(frames.TypeCancel, nil))
		c.want(c.until("idle", 2), "user: go\nthinking\ncall look\nexecuting\nresult look CANCELLED\nidle")
		c.send(frames.Text("more"))
		c.send(frames.NewFrame(frames.TypeCancel, nil))
		c.want(c.until("idle", 3), "user: more\nthinking\nidle")
	})
}

// A result with control.terminate ends the turn of a model outside too, once every
// call has its result.
//
// contract: B37
// case: WS-H19
func TestTerminateOutside(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.counting("look", time.Second)
		set := tool.NewSet("own")
		w.must(set.AddRaw(frames.Declaration{Name: "finish"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			return &frames.ToolResult{Terminate: frames.TerminateNow}, nil
		}))
		c := w.session(w.Client, "")
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		c.send(response("", "finish", "look", "look", "look"))
		got := c.until("idle", 2)
		if strings.Count(got, `result look "mesh"`) != 3 || !strings.Contains(got, "result finish {}") {
			t.Errorf("got:\n%s", got)
		}
	})
}

// Results of calls that are not a client's to answer are refused, and change nothing;
// of several results the first counts.
//
// contract: G31, B45
// case: loop-07-unknown-result-id, loop-08-duplicate-result
func TestForeignAndLateResults(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.counting("look", 20*time.Second)
		w.play = rounds(says("", "look", "ask"), says("well"))
		c := w.session(w.Client, "fake/m", frames.Param("tool", map[string]any{"name": "ask", "timeoutMs": 600_000}))
		other := w.dial() // serves the tool, and never answers
		sub, err := other.Conn().NATS().SubscribeSync(other.Conn().Own("me", "ask"))
		w.must(err)
		w.must(other.Conn().Flush(t.Context()))
		c.send(frames.Text("go"))
		c.until("executing", 1)
		m, err := sub.NextMsgWithContext(t.Context())
		w.must(err)
		call, err := frames.Decode(m.Data)
		w.must(err)
		ask := call.Frames[0].ToolCallID
		look := strings.TrimSuffix(ask, "1") + "0"
		result := func(id, text string) frames.Frame {
			return frames.Result(&frames.ToolResult{Result: []byte(text)}, frames.WithCall(id, "x"))
		}
		c.send(result("call_zzz", "0"))
		c.send(result(look, "0")) // the mesh runs it
		c.send(result(ask, "1"))
		c.send(result(ask, "2"))
		c.want(c.until("idle", 2), `
			user: go
			thinking
			call look
			call ask
			executing
			CONFLICT
			result ask 1
			CONFLICT
			result look "mesh"
			thinking
			assistant: well
			idle`)
		messages := w.asked()[1].Messages
		if got := messages[len(messages)-1]; got.Text != "1" || got.ToolCallID != ask {
			t.Errorf("the model sees %+v", got)
		}
		w.must(sub.Unsubscribe())
	})
}
