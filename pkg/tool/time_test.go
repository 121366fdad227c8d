package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// until runs a tool that works until its context ends, and then gives res and err.
func until(t *testing.T, s *tool.Set, d frames.Declaration, res *frames.ToolResult, err error) {
	t.Helper()
	must(t, s.AddRaw(d, func(ctx context.Context, _ *tool.Call) (*frames.ToolResult, error) {
		<-ctx.Done()
		return res, err
	}))
}

func timeLimit(d frames.Declaration, ms int64) frames.Declaration {
	d.TimeoutMs = &ms
	return d
}

// contract: P10, P21, W20, S7, S12
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		until(t, s, timeLimit(raw("x"), 1500), nil, errors.New("stopped early"))
		safe := timeLimit(raw("safe"), 60_000)
		safe.Replay = frames.ReplaySafe
		until(t, s, safe, nil, context.Canceled)
		srv := setup(t).serve(s, "i1")

		start := time.Now()
		a := srv.call("x", "{}")
		if took := time.Since(start); took < 1500*time.Millisecond || took > 1600*time.Millisecond {
			t.Errorf("answered after %v, want 1.5s", took)
		}
		e := a.result.Err
		if e == nil || e.Code != frames.CodeTimeout || e.Message != "Tool x timed out after 1500ms" || e.Effect != frames.EffectUnknown || e.Retryable {
			t.Errorf("%+v", e)
		}
		if e.RetryAfter != 1500*time.Millisecond || a.result.Duration < 1500*time.Millisecond {
			t.Errorf("retry after %v, took %v", e.RetryAfter, a.result.Duration)
		}
		if e := srv.call("safe", "{}").result.Err; !e.Retryable || e.RetryAfter != 5*time.Second {
			t.Errorf("safe tool: %+v", e)
		}
	})
}

// The caller can make the time shorter, never longer.
func TestCallersTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		until(t, s, timeLimit(raw("x"), 2000), nil, nil)
		until(t, s, timeLimit(raw("none"), 0), nil, nil)
		srv := setup(t).serve(s, "i1")
		for ms, want := range map[int]string{500: "500ms", 5000: "2000ms", 0: "2000ms", -1: "2000ms"} {
			e := srv.call("x", "{}", frames.WithMeta("timeoutMs", ms)).result.Err
			if !strings.HasSuffix(e.Message, " "+want) {
				t.Errorf("timeoutMs %d: %s, want %s", ms, e.Message, want)
			}
		}
		if e := srv.call("none", "{}").result.Err; e.Message != "Tool none timed out after 3600000ms" {
			t.Errorf("without a time-out: %v", e)
		}
	})
}

// A tool that does not heed its context is answered for 3 s after the time-out;
// what it gives later is dropped, and its slot stays taken until then.
//
// contract: P25, B7, S28, W13, B26
func TestLateOutcomeIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		must(t, tool.Add(s, "x", func(context.Context, struct{}) (string, error) {
			time.Sleep(10 * time.Second)
			return "late", nil
		}, tool.Timeout(time.Second), tool.Concurrency(1)))
		srv := setup(t).serve(s, "i1")
		start := time.Now()
		a := srv.call("x", "{}", frames.WithCall("c1", "x"))
		if took := time.Since(start).Round(100 * time.Millisecond); took != 4*time.Second || a.code() != frames.CodeTimeout || a.result.Result != nil {
			t.Errorf("after %v: %v, %s", took, a.result.Err, a.result.Result)
		}
		if a := srv.call("x", "{}"); a.code() != frames.CodeBusy {
			t.Errorf("while the tool still runs: %v", a.result.Err)
		}
		if got := srv.whoRuns("c1"); got != "running" {
			t.Errorf("state %q", got)
		}
		time.Sleep(10 * time.Second)
		if got := srv.whoRuns("c1"); got != "done" {
			t.Errorf("afterwards: state %q", got)
		}
		if late := srv.r.caller.Stats().LateAnswers; late != 0 {
			t.Errorf("%d late answers were sent", late)
		}
	})
}

func (s *service) whoRuns(id string) string {
	s.r.t.Helper()
	fs, err := s.control(frames.Meta(map[string]any{"whoRuns": id}))
	if err != nil || len(fs) != 1 {
		s.r.t.Fatalf("whoRuns: %v, %v", fs, err)
	}
	return metaText(fs[0], "state")
}

// What was done by the time the call was stopped is told beside the error.
func TestStoppedCallKeepsWhatItDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		half := &frames.ToolResult{Result: json.RawMessage(`"half"`)}
		until(t, s, timeLimit(raw("done"), 1000), half, nil)
		until(t, s, timeLimit(raw("none"), 1000), half, frames.NewError(frames.CodeCancelled, "x").With(func(e *frames.Error) { e.Effect = frames.EffectNone }))
		srv := setup(t).serve(s, "i1")
		for name, effect := range map[string]frames.Effect{"done": frames.EffectDone, "none": frames.EffectNone} {
			a := srv.call(name, "{}")
			if a.code() != frames.CodeTimeout || a.result.Err.Effect != effect || string(a.result.Result) != `"half"` {
				t.Errorf("%s: %+v, %s", name, a.result.Err, a.result.Result)
			}
		}
	})
}

// contract: F1, P15
func TestTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		must(t, tool.Add(s, "x", func(context.Context, struct{}) (int, error) { time.Sleep(17 * time.Second); return 1, nil }))
		a := setup(t).serve(s, "i1").call("x", "{}", frames.WithCall("c1", "x"))
		if len(a.frames) != 3 || a.code() != "" {
			t.Fatalf("%d frames before the result, want 3 TICKs: %+v", len(a.frames), a.frames)
		}
		for _, f := range a.frames {
			if f.Type != frames.TypeTick || f.ToolCallID != "c1" {
				t.Errorf("%s of %q", f.Type, f.ToolCallID)
			}
		}
	})
}

// CANCEL is acknowledged, ends the tool's context and is told from a time-out.
//
// contract: P15, B4, B36, F2, S30
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		started, _ := blocking(t, s, "x")
		r := setup(t)
		srv, other := r.serve(s, "i1"), r.serve(s, "i2")
		toAll := r.caller.CtlTool("x")
		for _, subject := range []string{r.caller.Inst("local", "i1"), toAll} {
			f := frames.Call("x", nil, frames.WithCall("c1", "x"), frames.WithMeta("caller", "me"))
			p := srv.start("x", &f)
			<-started
			if _, err := r.ask(subject, frames.Cancel("c2", "x")); subject == toAll && frames.CodeOf(err) != frames.CodeTimeout {
				t.Errorf("CANCEL of a call that nobody runs: %v, want no answer", err)
			}
			foreign := frames.Cancel("c1", "x", frames.WithMeta("caller", "you"))
			if fs, err := srv.control(foreign); err != nil || metaText(fs[0], "state") != "running" {
				t.Errorf("CANCEL for another caller: %v, %v", fs, err)
			}
			fs, err := r.ask(subject, frames.Cancel("c1", "x", frames.WithMeta("caller", "me")))
			if err != nil || len(fs) != 1 || metaText(fs[0], "cancelling") != "c1" || fs[0].Name != "x" {
				t.Errorf("%s: CANCEL was answered %+v, %v", subject, fs, err)
			}
			a := p.end()
			if a.code() != frames.CodeCancelled || a.reason != "cancelled" || a.result.Err.Retryable {
				t.Errorf("%s: %+v, END %s", subject, a.result.Err, a.reason)
			}
		}
		for _, srv := range []*service{srv, other} {
			fs, err := srv.control(frames.Cancel("c1", "x"))
			if want := map[string]string{"i1": "done", "i2": "unknown"}[srv.id]; err != nil || metaText(fs[0], "state") != want {
				t.Errorf("%s: CANCEL of an ended call: %+v, %v; want %s", srv.id, fs, err, want)
			}
		}
	})
}

// contract: F3, B58, P15, W10
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		started, release := blocking(t, s, "x")
		srv := setup(t).serve(s, "i1")
		var ps []*pending
		for _, sid := range []string{"s1", "s1", "s2"} {
			f := frames.Call("x", nil, frames.WithMeta("sessionId", sid))
			ps = append(ps, srv.start("x", &f))
			<-started
		}
		fs, err := srv.control(frames.Abort(frames.WithMeta("sessionId", "s1")))
		if err != nil || len(fs) != 2 {
			t.Errorf("ABORT was answered %+v, %v; want two acknowledgements", fs, err)
		}
		if a, b := ps[0].end(), ps[1].end(); a.code() != "CANCELLED" || b.code() != "CANCELLED" {
			t.Errorf("%v, %v", a.result.Err, b.result.Err)
		}
		close(release)
		if a := ps[2].end(); a.code() != "" {
			t.Errorf("call of another session: %v", a.result.Err)
		}
		if _, err := srv.control(frames.Abort()); frames.CodeOf(err) != frames.CodeBadFrame {
			t.Errorf("ABORT of nothing: %v", err)
		}
	})
}

// contract: F4
func TestOutputAndProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		must(t, tool.Add(s, "x", func(ctx context.Context, _ struct{}) (int, error) {
			tool.Output(ctx, "stdout", "a")
			tool.Output(ctx, "stdout", "b")
			tool.Output(ctx, "stderr", "c")
			tool.Progress(ctx, 1, 4, "begun")
			tool.Progress(ctx, 2, 4, "going")
			tool.Progress(ctx, 1, 4, "back")
			time.Sleep(time.Second)
			tool.Output(ctx, "stdout", "d")
			tool.Progress(ctx, 3, 0, "")
			return 1, nil
		}))
		a := setup(t).serve(s, "i1").call("x", "{}")
		var got []string
		for _, f := range a.frames {
			switch f.Type {
			case frames.TypeText:
				got = append(got, f.Metadata.Text("stream")+":"+f.Text())
			default:
				text, err := f.Content.JSON()
				must(t, err)
				got = append(got, string(f.Type)+string(text))
			}
		}
		want := `stdout:ab stderr:c PROGRESS{"message":"going","progress":2.0,"total":4.0} stdout:d PROGRESS{"progress":3.0}`
		if s := strings.Join(got, " "); s != want {
			t.Errorf("live frames\n%s\nwant\n%s", s, want)
		}
	})
}
