package client_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// rig is a mesh with a client, and a router that answers by hand.
type rig struct {
	*client.Client
	t      *testing.T
	router *bus.Conn
	ended  atomic.Int32 // calls that were cancelled
}

// withRouter runs a test in virtual time.
func withRouter(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := bustest.Start(t)
		connect := func(identity string) *bus.Conn {
			c, err := bus.New(m.Connect(t, identity), identity)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		test(t, &rig{t: t, Client: client.New(connect("me")), router: connect("router")})
	})
}

func (r *rig) on(subject, queue string, h bus.Handler) {
	r.t.Helper()
	if _, err := r.router.Handle(r.t.Context(), subject, queue, h, bus.WithWorkers(8), bus.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		r.t.Fatal(err)
	}
	if err := r.router.Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) calls(h func(q *bus.Request, f *frames.Frame)) {
	r.t.Helper()
	r.on(r.router.Subjects.Call("*", "*"), bus.QueueRouter, func(_ context.Context, q *bus.Request) { h(q, &q.Frames[0]) })
}

func wantCode(t *testing.T, err error, code frames.Code) {
	t.Helper()
	if frames.CodeOf(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

// contract: A1, A5, A6, A7
func TestCall(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		r.calls(func(q *bus.Request, f *frames.Frame) {
			args, _ := f.Arguments()
			if f.Name != "echo" || f.ToolCallID != "c-1" || f.Metadata.Text("workspace") != "w" || f.Metadata.Int("timeoutMs") != 1 {
				t.Errorf("call %+v", f)
			}
			_ = q.Send(frames.Text("one"))
			_ = q.Send(frames.Tick())
			_ = q.Send(frames.Progress(map[string]any{"progress": 1}))
			_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{Result: args}))
		})
		opts := []client.CallOption{client.WithID("c-1"), client.WithWorkspace("w"), client.WithTimeout(time.Microsecond)}
		res, err := r.Call(t.Context(), "echo", map[string]any{"x": 1}, opts...)
		if err != nil || string(res.Result) != `{"x":1}` {
			t.Errorf("got %+v, %v", res, err)
		}
		var got []frames.Type
		for f, err := range r.CallStream(t.Context(), "echo", map[string]any{"x": 1}, opts...) {
			wantCode(t, err, "")
			got = append(got, f.Type)
		}
		if !slices.Equal(got, []frames.Type{frames.TypeText, frames.TypeProgress, frames.TypeToolResult}) {
			t.Errorf("frames %v", got)
		}
	})
}

// The tool's failure is a result, the mesh's an error.
//
// contract: A8, A9
func TestCallThatFails(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		_, err := r.Call(t.Context(), "echo", nil)
		wantCode(t, err, frames.CodeUnavailable)
		_, err = r.Call(t.Context(), "a.b", nil)
		wantCode(t, err, frames.CodeNotFound)
		_, err = r.Call(t.Context(), "echo", math.NaN())
		wantCode(t, err, frames.CodeValidationInput)
		answers := map[string]func(q *bus.Request){
			"fails": func(q *bus.Request) {
				_ = q.End(frames.EndError, frames.FailedResult(frames.NewError(frames.CodeDenied, "no")))
			},
			"error":     func(q *bus.Request) { _ = q.End(frames.EndError, frames.Fail(frames.NewError(frames.CodeBusy, "no"))) },
			"no_result": func(q *bus.Request) { _ = q.End(frames.EndCompleted) },
			"no_end":    func(q *bus.Request) { _ = q.Send(frames.Result(&frames.ToolResult{})) },
		}
		r.calls(func(q *bus.Request, f *frames.Frame) { answers[f.Name](q) })
		res, err := r.Call(t.Context(), "fails", nil)
		wantCode(t, err, "")
		wantCode(t, res.Err, frames.CodeDenied)
		_, err = r.Call(t.Context(), "error", nil)
		wantCode(t, err, frames.CodeBusy)
		_, err = r.Call(t.Context(), "no_result", nil)
		wantCode(t, err, frames.CodeNoResult)
		start := time.Now()
		_, err = r.Call(t.Context(), "no_end", nil)
		wantCode(t, err, frames.CodeNoResult)
		if took := time.Since(start); took != bus.SilenceLimit {
			t.Errorf("given up after %v", took)
		}
	})
}

// slow answers calls when they are cancelled, after a pause.
func (r *rig) slow(pause time.Duration) {
	cancel := make(chan string, 8)
	r.calls(func(q *bus.Request, f *frames.Frame) {
		<-cancel
		<-time.After(pause)
		_ = q.End(frames.EndCancelled, frames.FailedResult(frames.Cancelled(f.Name)))
	})
	r.on(r.router.Ctl("*"), "", func(_ context.Context, q *bus.Request) {
		r.ended.Add(1)
		cancel <- q.Frames[0].ToolCallID
		if pause > 0 {
			_ = q.End(frames.EndCompleted, frames.Meta(map[string]any{"cancelling": q.Frames[0].ToolCallID}))
		}
	})
}

// contract: A4, A10
func TestCallThatIsGivenUp(t *testing.T) {
	for name, pause := range map[string]time.Duration{"acknowledged": time.Minute, "ended": 0} {
		t.Run(name, func(t *testing.T) {
			withRouter(t, func(t *testing.T, r *rig) {
				r.slow(pause)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := r.Call(ctx, "slow", nil)
				wantCode(t, err, frames.CodeTimeout)
				if took := time.Since(start); took != time.Second || r.ended.Load() != 1 {
					t.Errorf("after %v, %d calls were cancelled", took, r.ended.Load())
				}
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, stop)
				_, err = r.Call(ctx, "slow", json.RawMessage(`{}`))
				wantCode(t, err, frames.CodeCancelled)
				<-time.After(pause) // the router's handlers end
			})
		})
	}
}

// A CANCEL may come before the call is known; it is repeated, but not for ever.
func TestCancelIsRepeated(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		wantCode(t, r.Cancel(t.Context(), "c-1"), frames.CodeUnavailable)
		var asked atomic.Int32
		r.on(r.router.Ctl("*"), "", func(_ context.Context, q *bus.Request) {
			if asked.Add(1) == 3 {
				_ = q.End(frames.EndCompleted)
			}
		})
		start := time.Now()
		wantCode(t, r.Cancel(t.Context(), "c-1"), "")
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("acknowledged after %v", took)
		}
		start = time.Now()
		wantCode(t, r.Cancel(t.Context(), "c-2"), frames.CodeNoResult)
		if took := time.Since(start); took != 4*time.Second || asked.Load() != 7 {
			t.Errorf("given up after %v, asked %d times", took, asked.Load()-3)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		wantCode(t, r.Cancel(ctx, "c-3"), frames.CodeTimeout)
	})
}

func TestTools(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		fine := frames.Description(&frames.Declaration{Name: "fine"}, frames.WithMeta("instances", 2), frames.WithMeta("keys", []string{"one", frames.PathKey("/srv")}))
		bad := frames.Description(&frames.Declaration{Name: "b@d"})
		taken := frames.Description(&frames.Declaration{Name: "taken"})
		taken.Metadata.Set("refused", frames.NewError(frames.CodeConflict, "no").Raw())
		r.on(r.router.List("*"), bus.QueueRouter, func(_ context.Context, q *bus.Request) {
			switch q.Frames[0].Name {
			case "":
				_ = q.Send(fine)
				_ = q.End(frames.EndCompleted, bad, taken)
			case "fine":
				_ = q.End(frames.EndCompleted, fine)
			case "none":
				_ = q.End(frames.EndCompleted)
			default:
				_ = q.Fail(frames.NotFound(q.Frames[0].Name, nil))
			}
		})
		tools, err := r.Tools(t.Context())
		if err != nil || len(tools) != 3 {
			t.Fatalf("%d tools, %v", len(tools), err)
		}
		if !slices.Equal(tools[0].Workspaces(), []string{"one"}) || tools[0].Instances != 2 || tools[0].Refused != nil {
			t.Errorf("fine: %+v", tools[0])
		}
		wantCode(t, tools[1].Refused, frames.CodeValidationInput)
		wantCode(t, tools[2].Refused, frames.CodeConflict)
		one, err := r.Tool(t.Context(), "fine")
		if err != nil || one.Name != "fine" {
			t.Errorf("one: %+v, %v", one, err)
		}
		for _, name := range []string{"none", "nope"} {
			_, err = r.Tool(t.Context(), name)
			wantCode(t, err, frames.CodeNotFound)
		}
	})
}

// A stream that is left before its result cancels the call.
//
// contract: A4
func TestStreamThatIsLeft(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		cancelled := make(chan string, 1)
		r.calls(func(q *bus.Request, _ *frames.Frame) {
			_ = q.Send(frames.Text("one"))
			_ = q.End(frames.EndCancelled, frames.FailedResult(frames.Cancelled(<-cancelled)))
		})
		r.on(r.router.Ctl("*"), "", func(_ context.Context, q *bus.Request) {
			_ = q.End(frames.EndCompleted)
			cancelled <- q.Frames[0].ToolCallID
			r.ended.Add(1)
		})
		for f, err := range r.CallStream(t.Context(), "slow", nil) {
			if err != nil || f.Text() != "one" {
				t.Errorf("%+v, %v", f, err)
			}
			break
		}
		if r.ended.Load() != 1 {
			t.Error("the call was not cancelled")
		}
	})
}

// Only the first result counts, and falsy ones are kept.
//
// contract: A7, A11
func TestFirstResult(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		r.calls(func(q *bus.Request, _ *frames.Frame) {
			_ = q.Send(frames.Result(&frames.ToolResult{Result: json.RawMessage(`0`)}))
			_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{Result: json.RawMessage(`"later"`)}))
		})
		res, err := r.Call(t.Context(), "echo", nil)
		if err != nil || string(res.Result) != "0" {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func TestCallOptionsAreChecked(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		for name, o := range map[string]client.CallOption{
			"id": client.WithID("a b"), "no id": client.WithID(""),
			"time-out": client.WithTimeout(0), "negative": client.WithTimeout(-time.Second),
		} {
			_, err := r.Call(t.Context(), "echo", nil, o)
			if frames.CodeOf(err) != frames.CodeValidationInput {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Output that nobody reads ends the call, and it is stopped.
func TestReaderThatIsTooSlow(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		r.calls(func(q *bus.Request, _ *frames.Frame) {
			for range 20_000 {
				_ = q.Send(frames.Text("x"))
			}
			_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{}))
		})
		r.on(r.router.Ctl("*"), "", func(_ context.Context, q *bus.Request) {
			r.ended.Add(1)
			_ = q.End(frames.EndCompleted)
		})
		var last error
		for _, err := range r.CallStream(t.Context(), "flood", nil) {
			synctest.Wait() // all that comes has come
			last = err
		}
		wantCode(t, last, frames.CodeNoResult)
		if r.ended.Load() != 1 {
			t.Error("the call was not stopped")
		}
	})
}
