package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// failing adds a raw tool that fails with err.
func failing(t *testing.T, s *tool.Set, name string, err error) {
	t.Helper()
	must(t, s.AddRaw(raw(name), func(context.Context, *tool.Call) (*frames.ToolResult, error) { return nil, err }))
}

// contract: P19, P22, W15, E11, S30
func TestErrorsOfTools(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	want := map[string]*frames.Error{}
	add := func(name string, err error, e frames.Error) {
		failing(t, s, name, err)
		want[name] = &e
	}
	plain := func(code frames.Code, reason, text string, effect frames.Effect, retry bool) frames.Error {
		return frames.Error{Code: code, Reason: reason, Message: text, LLMMessage: text, Effect: effect, Retryable: retry}
	}
	add("plain", errors.New("no luck"), plain("EXECUTION", "", "no luck", "unknown", false))
	add("fail", tool.Fail("no_luck", "no %s", "luck"), plain("EXECUTION", "no_luck", "no luck", "unknown", false))
	add("retry", tool.Retryable(errors.New("later")), plain("EXECUTION", "", "later", "unknown", true))
	add("wrapped", fmt.Errorf("outer: %w", tool.Fail("inner", "inner")), plain("EXECUTION", "inner", "inner", "unknown", false))
	add("denied", frames.NewError(frames.CodeDenied, "not yours"), plain("DENIED", "", "not yours", "none", false))
	add("notfound", frames.NewError(frames.CodeNotFound, "no such row"), plain("NOT_FOUND", "", "no such row", "none", true))
	add("foreign", context.DeadlineExceeded, plain("EXECUTION", "", "context deadline exceeded", "unknown", false))
	for _, code := range []frames.Code{"BUSY", "UNAVAILABLE", "TIMEOUT", "CANCELLED", "INTERRUPTED", "NO_RESULT", "BAD_FRAME", "DISABLED", "INTERNAL", "VALIDATION_OUTPUT"} {
		e := frames.NewError(code, "it said so")
		add("say"+string(code), e, plain("EXECUTION", strings.ToLower(string(code)), "it said so", e.Effect, e.Retryable))
	}
	long := strings.Repeat("é", 4096)
	add("long", errors.New(long), plain("EXECUTION", "", long[:4092]+"…", "unknown", false))
	add("badreason", tool.Fail("Not A Word", "x"), plain("EXECUTION", "", "x", "unknown", false))
	srv := setup(t).serve(s, "i1")
	for name, e := range want {
		a := srv.call(name, "{}")
		got := a.result.Err
		if diff := cmp.Diff(e, got, cmp.Comparer(func(a, b *frames.Error) bool { return string(a.Raw()) == string(b.Raw()) })); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if a.reason != "error" || a.result.Result != nil {
			t.Errorf("%s: END %s, result %s", name, a.reason, a.result.Result)
		}
	}
	if tool.Retryable(nil) != nil {
		t.Error("no error became one")
	}
}

// contract: P41, B6, B12
func TestResultBesideAnError(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, s.AddRaw(raw("x"), func(context.Context, *tool.Call) (*frames.ToolResult, error) {
		return &frames.ToolResult{Result: json.RawMessage(`{"success":true,"exitCode":1}`), Err: frames.NewError(frames.CodeExecution, "exit 1")}, nil
	}))
	a := setup(t).serve(s, "i1").call("x", "{}")
	if a.code() != "EXECUTION" || string(a.result.Result) != `{"success":true,"exitCode":1}` {
		t.Errorf("%v, %s", a.result.Err, a.result.Result)
	}
}

// A tool that panics, or ends its goroutine, fails alone: no stack leaves, the
// service goes on, the log has both.
//
// contract: P20, G51, S29, B14
func TestPanicsAreErrors(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := tool.NewSet("test")
	must(t, tool.Add(s, "panic", func(context.Context, struct{}) (int, error) { panic("secret 42") }))
	must(t, tool.Add(s, "exit", func(context.Context, struct{}) (int, error) { runtime.Goexit(); return 0, nil }))
	must(t, tool.Add(s, "fine", give(1)))
	srv := setup(t).serve(s, "i1", tool.Logger(slog.New(slog.NewJSONHandler(&log, nil))))
	for _, name := range []string{"panic", "exit"} {
		a := srv.call(name, "{}")
		if a.code() != "EXECUTION" || a.result.Err.Reason != "panic" || strings.Contains(string(a.result.Err.Raw()), "secret") {
			t.Errorf("%s: %+v", name, a.result.Err)
		}
	}
	if a := srv.call("fine", "{}"); a.code() != "" {
		t.Errorf("afterwards: %v", a.result.Err)
	}
	must(t, srv.end())
	if got := log.String(); !strings.Contains(got, "secret 42") || !strings.Contains(got, "call_test.go") {
		t.Errorf("log without value or stack: %s", got)
	}
}

// contract: P16, P23, S5
func TestFramesOfACallNameIt(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "x", func(ctx context.Context, _ struct{}) (int, error) {
		tool.Output(ctx, "stdout", "hello")
		return 1, nil
	}))
	must(t, tool.Add(s, "fails", func(context.Context, struct{}) (int, error) { return 0, errors.New("no luck") }))
	srv := setup(t).serve(s, "i1")
	names := func(tool string, fs ...frames.Frame) {
		t.Helper()
		for _, f := range fs {
			if f.ToolCallID != "c1" || f.Name != tool || f.StreamID != "s1" {
				t.Errorf("%s names %q, %q, %q", f.Type, f.ToolCallID, f.Name, f.StreamID)
			}
		}
	}
	opts := []frames.Option{frames.WithCall("c1", ""), frames.WithStream("s1")}
	a := srv.call("x", "{}", opts...)
	names("x", append(a.frames, a.frame)...)
	names("fails", srv.call("fails", "{}", opts...).frame)
	names("x", srv.call("x", "[]", opts...).frame) // a refusal before it runs
	if len(a.frames) != 1 || a.frames[0].Text() != "hello" || a.frames[0].Metadata.Text("stream") != "stdout" {
		t.Errorf("live frames %+v", a.frames)
	}
}

// contract: W10, W11, E1
func TestCallInfo(t *testing.T) {
	t.Parallel()
	got := make(chan *tool.Call, 1)
	s := tool.NewSet("test")
	must(t, s.AddRaw(raw("x"), func(ctx context.Context, c *tool.Call) (*frames.ToolResult, error) {
		if d, ok := ctx.Deadline(); !ok || !d.Equal(c.Deadline) || tool.CallInfo(ctx).ID != c.ID {
			t.Error("the context knows another call")
		}
		got <- c
		return nil, nil
	}))
	a := setup(t).serve(s, "i1").call("x", `{"a":1}`, frames.WithCall("c1", "x"), frames.WithStream("s"),
		frames.WithMeta("caller", "me"), frames.WithMeta("sessionId", "s1"), frames.WithMeta("attempt", 2),
		frames.WithMeta("workspace", "w"), frames.WithMeta("depth", 3), frames.WithMeta("more", "kept"))
	c := <-got
	if c.Metadata.Text("more") != "kept" || a.result.Attempts != 3 {
		t.Errorf("metadata %v, attempts %d", c.Metadata, a.result.Attempts)
	}
	want := &tool.Call{Info: tool.Info{
		ID: "c1", Tool: "x", Caller: "me", SessionID: "s1", StreamID: "s", Workspace: "w", Attempt: 2, Depth: 3,
		Deadline: c.Deadline, Metadata: c.Metadata,
	}, Arguments: json.RawMessage(`{"a":1}`)}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if i := tool.CallInfo(context.Background()); i.ID != "" {
		t.Errorf("outside of a call: %+v", i)
	}
	tool.Output(context.Background(), "stdout", "nowhere")
	tool.Progress(context.Background(), 1, 2, "nowhere")
}

// A raw tool's arguments are held to its schema, and read into a type, strictly.
//
// contract: E18
func TestDecodeOfACall(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	d := raw("x")
	d.Schema = json.RawMessage(`{"type":"object","properties":{"item":{"type":"string"},"count":{"type":"number"}},"required":["item"]}`)
	must(t, s.AddRaw(d, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
		in, err := tool.Decode[order](c)
		if err != nil {
			return nil, err
		}
		return &frames.ToolResult{Result: fmt.Appendf(nil, "%q", fmt.Sprint(in.Item, in.Count))}, nil
	}))
	srv := setup(t).serve(s, "i1")
	if a := srv.call("x", `{"item":"tea","count":2.0}`); string(a.result.Result) != `"tea2"` {
		t.Errorf("%s, %v", a.result.Result, a.result.Err)
	}
	for _, args := range []string{`{"count":2}`, `{"item":"tea","count":1.5}`} {
		if a := srv.call("x", args); a.code() != frames.CodeValidationInput {
			t.Errorf("%s: %v", args, a.result.Err)
		}
	}
}

// What is not one whole call of the subject's tool is refused at once.
//
// contract: P17, B5
func TestBadCalls(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "x", give(1)))
	srv := setup(t).serve(s, "i1")
	call := func(name string, opts ...frames.Option) frames.Frame { return frames.Call(name, nil, opts...) }
	for name, tc := range map[string]struct {
		fs   []frames.Frame
		code frames.Code
		text string
	}{
		"other name": {[]frames.Frame{call("y")}, "BAD_FRAME", `the frame names tool "y", the subject "x"`},
		"two calls":  {[]frames.Frame{call("x"), call("x")}, "BAD_FRAME", "more than one TOOL_CALL"},
		"streamed":   {[]frames.Frame{call("x", frames.WithMeta("streaming", true))}, "BAD_FRAME", "streamed"},
		"bad id":     {[]frames.Frame{call("x", frames.WithCall("a.b", "x"))}, "BAD_FRAME", "toolCallId"},
		"no call":    {[]frames.Frame{frames.Describe("")}, "BAD_FRAME", "Unknown frame type: DESCRIBE"},
		"unknown":    {[]frames.Frame{frames.NewFrame("NEWS", nil)}, "BAD_FRAME", "Unknown frame type: NEWS"},
		"beside":     {[]frames.Frame{frames.NewFrame("NEWS", nil), call("")}, "", ""},
	} {
		ptrs := make([]*frames.Frame, len(tc.fs))
		for i := range tc.fs {
			ptrs[i] = &tc.fs[i]
		}
		a := srv.start("x", ptrs...).end()
		if a.code() != tc.code || tc.code != "" && !strings.Contains(a.result.Err.Message, tc.text) {
			t.Errorf("%s: %v, want %s with %q", name, a.result.Err, tc.code, tc.text)
		}
	}
	if a := srv.call("nope", "{}"); a.code() != frames.CodeNotFound || a.result.Err.Message != `Tool "nope" not found` {
		t.Errorf("unknown tool: %v", a.result.Err)
	}
}

// blocking adds a tool that tells when it starts, and ends when told.
func blocking(t *testing.T, s *tool.Set, name string, opts ...tool.Option) (started chan string, release chan struct{}) {
	t.Helper()
	started, release = make(chan string, 100), make(chan struct{})
	must(t, tool.Add(s, name, func(ctx context.Context, _ struct{}) (int, error) {
		started <- tool.CallInfo(ctx).ID
		select {
		case <-release:
			return 1, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, opts...))
	return started, release
}

// An id that still runs is refused for its caller; another caller has its own ids.
func TestDuplicateCallsConflict(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	started, release := blocking(t, s, "x")
	srv := setup(t).serve(s, "i1")
	call := func(caller string) *pending {
		f := frames.Call("x", nil, frames.WithCall("c1", "x"), frames.WithMeta("caller", caller))
		return srv.start("x", &f)
	}
	first := call("me")
	<-started
	if a := call("me").end(); a.code() != frames.CodeConflict || a.frame.ToolCallID != "c1" {
		t.Errorf("second call: %v", a.result.Err)
	}
	other := call("you")
	<-started
	close(release)
	for _, p := range []*pending{first, other} {
		if a := p.end(); a.code() != "" {
			t.Error(a.result.Err)
		}
	}
}

// A full instance refuses at once, and has a free slot when a result is read.
func TestFullInstanceIsBusy(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	started, release := blocking(t, s, "x", tool.Concurrency(2))
	must(t, tool.Add(s, "one", give(1), tool.Concurrency(1)))
	srv := setup(t).serve(s, "i1")
	f := frames.Call("x", nil)
	a, b := srv.start("x", &f), srv.start("x", &f)
	<-started
	<-started
	refused := srv.call("x", "{}")
	if e := refused.result.Err; e == nil || e.Code != frames.CodeBusy || e.Reason != "busy" || e.Effect != frames.EffectNone {
		t.Errorf("third call: %+v", e)
	}
	close(release)
	a.end()
	b.end()
	for range 50 {
		if a := srv.call("one", "{}"); a.code() != "" {
			t.Fatal(a.result.Err)
		}
	}
}

func TestJSONCallsAreAnsweredInJSON(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "big", give(count{1<<63 + 1})))
	r := setup(t)
	srv := r.serve(s, "i1")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := r.caller.NATS().RequestWithContext(ctx, r.caller.InstTool("local", srv.id, "big"), []byte(`{"type":"TOOL_CALL","content":{"arguments":{}}}`))
	must(t, err)
	lines := strings.Split(string(m.Data), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"result":{"n":9223372036854775809}`) || !strings.Contains(lines[1], `"type":"END"`) {
		t.Errorf("answer %s", m.Data)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	big := strings.Repeat("x", 4<<20)
	must(t, tool.Add(s, "text", give(big)))
	must(t, tool.Add(s, "data", give(tool.Result[int]{Parts: []frames.Part{{Type: "image", Data: []byte(big + "x")}}})))
	must(t, s.AddRaw(raw("x"), nothing))
	srv := setup(t).serve(s, "i1")
	for _, name := range []string{"text", "data"} {
		a := srv.call(name, "{}")
		if e := a.result.Err; e == nil || e.Code != frames.CodeTooLarge || e.Effect != frames.EffectDone || !strings.Contains(e.Message, "4194304") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	a := srv.call("x", `{"a":"`+big+`"}`)
	if e := a.result.Err; e == nil || e.Code != frames.CodeTooLarge || e.Effect != frames.EffectNone || !strings.Contains(e.Message, "4194304") {
		t.Errorf("arguments: %+v", e)
	}
}

// A result that fits the limit but not a message, since JSON is longer, is
// TOO_LARGE too, not silence.
func TestTooLargeForTheMessage(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "x", give(tool.Result[int]{Details: []string{strings.Repeat("\x01", 600<<10)}, Parts: []frames.Part{{Type: "text", Text: strings.Repeat("\x01", 1<<20)}}})))
	r := setup(t)
	srv := r.serve(s, "i1")
	f := frames.Call("x", nil)
	x, err := r.caller.Open(context.Background(), r.caller.InstTool("local", srv.id, "x"), frames.JSON, &f)
	must(t, err)
	if a := (&pending{t, x}).end(); a.code() != frames.CodeTooLarge || a.result.Err.Effect != frames.EffectDone {
		t.Errorf("%+v", a.result.Err)
	}
}

// Nobody would get the outcome of a call without a reply subject, so it does not run.
func TestCallWithoutReplyDoesNotRun(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	started, release := blocking(t, s, "x")
	close(release)
	r := setup(t)
	srv := r.serve(s, "i1")
	f := frames.Call("x", nil, frames.WithCall("silent", "x"))
	must(t, r.caller.Publish(context.Background(), r.caller.InstTool("local", srv.id, "x"), frames.Msgpack, &f))
	srv.call("x", "{}", frames.WithCall("loud", "x"))
	if id := <-started; id != "loud" {
		t.Errorf("call %s ran", id)
	}
}

// Replies go to inboxes only, whoever asks.
func TestForeignReplySubjectIsDropped(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "x", give(1)))
	r := setup(t)
	srv := r.serve(s, "i1")
	f := frames.Call("x", nil)
	data, err := frames.Encode(frames.Msgpack, &f)
	must(t, err)
	must(t, r.caller.NATS().PublishRequest(r.caller.InstTool("local", srv.id, "x"), "wb.announce.local.i1", data))
	if a := srv.call("x", "{}"); a.code() != "" {
		t.Error(a.result.Err)
	}
}
