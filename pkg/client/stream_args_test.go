package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// sinks answers openers by hand: each is told the sink, on which pieces are read.
// done answers the closing META with what was read.
func (r *rig) sinks(done func(q *bus.Request, text string)) (wholes *[]string) {
	wholes = &[]string{}
	r.calls(func(q *bus.Request, f *frames.Frame) {
		if !f.Metadata.Bool("streaming") {
			args, _ := f.Arguments()
			*wholes = append(*wholes, string(args))
			_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{Result: args}, frames.WithCall(f.ToolCallID, f.Name)))
			return
		}
		sink := frames.Meta(map[string]any{"sink": r.router.Sink(q.Caller(), "x")})
		_ = q.End(frames.EndCompleted, sink)
	})
	if done == nil {
		return wholes
	}
	text, next := "", uint64(1)
	_, err := r.router.Handle(r.t.Context(), r.router.Sink("*", "x"), "", func(_ context.Context, q *bus.Request) {
		f := &q.Frames[0]
		if f.Seq != next || f.ToolCallID != "c-1" {
			r.t.Errorf("%s of %s has number %d, want %d", f.Type, f.ToolCallID, f.Seq, next)
		}
		next++
		if frames.ToolComplete(f) {
			if f.Metadata.Text("stopReason") != "" {
				text = "cut: " + f.Metadata.Text("stopReason")
			}
			done(q, text)
			return
		}
		piece, _ := f.Content.Lookup("text").Bytes()
		text += string(piece)
	})
	if err == nil {
		err = r.router.Flush(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return wholes
}

func (r *rig) written(pieces ...string) *client.StreamedCall {
	r.t.Helper()
	s, err := r.OpenCall(r.t.Context(), "echo", client.WithID("c-1"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range pieces {
		if n, err := s.Write([]byte(p)); n != len(p) || err != nil {
			r.t.Fatal(n, err)
		}
	}
	return s
}

func result(value string) frames.Frame {
	return frames.Result(&frames.ToolResult{Result: []byte(value)})
}

func TestOpenCall(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		long := strings.Repeat("x", 150<<10)
		wholes := r.sinks(func(q *bus.Request, text string) {
			if text != `{"t":"ä`+long+`"}` {
				t.Errorf("the router got %d bytes: %.30q", len(text), text)
			}
			_ = q.End(frames.EndCompleted, result(`1`))
		})
		s := r.written(`{"t":"`+"\xc3", "\xa4", "", long, `"}`)
		if s.ID() != "c-1" {
			t.Errorf("id %s", s.ID())
		}
		res, err := s.Finish(t.Context())
		if err != nil || string(res.Result) != `1` || len(*wholes) != 0 {
			t.Errorf("%+v, %v, %v", res, err, *wholes)
		}
		_, err = s.Finish(t.Context())
		wantCode(t, err, frames.CodeConflict)
		_, err = s.Write([]byte("x"))
		wantCode(t, err, frames.CodeConflict)
	})
}

func TestCutCall(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		r.sinks(func(q *bus.Request, text string) { _ = q.End(frames.EndCompleted, result(`"`+text+`"`)) })
		res, err := r.written(`{}`).Cut(t.Context(), "length")
		if err != nil || string(res.Result) != `"cut: length"` {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// Where the router that had the pieces is gone, or lost some, the whole call is sent.
//
// contract: P53
func TestOpenCallFallsBack(t *testing.T) {
	lost := map[string]func(q *bus.Request, text string){
		"gone":     nil,
		"gap":      refuses(frames.CodeBadFrame, "arguments_gap"),
		"not open": refuses(frames.CodeConflict, "not_open"),
	}
	for name, done := range lost {
		withRouter(t, func(t *testing.T, r *rig) {
			wholes := r.sinks(done)
			res, err := r.written(`{"a":`, `1}`).Finish(t.Context())
			if err != nil || string(res.Result) != `{"a":1}` || len(*wholes) != 1 {
				t.Errorf("%s: %+v, %v, %v", name, res, err, *wholes)
			}
		})
	}
	withRouter(t, func(t *testing.T, r *rig) {
		wholes := r.sinks(refuses(frames.CodeConflict, ""))
		res, err := r.written(`{}`).Finish(t.Context())
		if err != nil || res.Err == nil || len(*wholes) != 0 {
			t.Errorf("another failure: %+v, %v, %v", res, err, *wholes)
		}
	})
}

func refuses(code frames.Code, reason string) func(q *bus.Request, text string) {
	return func(q *bus.Request, _ string) {
		_ = q.End(frames.EndError, frames.FailedResult(frames.NewError(code, "no").WithReason(reason)))
	}
}

func TestOpenCallThatIsRefused(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		_, err := r.OpenCall(t.Context(), "echo")
		wantCode(t, err, frames.CodeUnavailable)
		_, err = r.OpenCall(t.Context(), "no name")
		wantCode(t, err, frames.CodeNotFound)
		answers := []frames.Frame{frames.FailedResult(frames.Busy("echo", time.Second)), result(`1`), frames.Meta(nil)}
		next := 0
		r.calls(func(q *bus.Request, _ *frames.Frame) {
			_ = q.End(frames.EndCompleted, answers[next])
			next++
		})
		for _, code := range []frames.Code{frames.CodeBusy, frames.CodeNoResult, frames.CodeNoResult} {
			_, err := r.OpenCall(t.Context(), "echo")
			wantCode(t, err, code)
		}
	})
}

func TestStreamedArgumentsAreBounded(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		r.sinks(nil)
		s := r.written(strings.Repeat(" ", r.Conn().InlineLimit()))
		n, err := s.Write([]byte("x"))
		wantCode(t, err, frames.CodeTooLarge)
		if n != 0 {
			t.Errorf("%d bytes written", n)
		}
	})
}

// An end of ctx cancels the call, as that of any other.
func TestStreamedCallIsCancelled(t *testing.T) {
	withRouter(t, func(t *testing.T, r *rig) {
		r.sinks(func(*bus.Request, string) {})
		r.on(r.router.Ctl("*"), "", func(_ context.Context, q *bus.Request) {
			r.ended.Add(1)
			_ = q.End(frames.EndCompleted, frames.Meta(map[string]any{"cancelling": "c-1"}))
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
		res, err := r.written(`{}`).Finish(ctx)
		if res != nil || err == nil || r.ended.Load() != 1 {
			t.Errorf("%+v, %v, cancelled %d times", res, err, r.ended.Load())
		}
	})
}
