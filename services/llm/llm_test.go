package llm_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/modelbus"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/services/llm"
)

func wantCode(t *testing.T, err error, code frames.Code) {
	t.Helper()
	if frames.CodeOf(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

// contract: P64, P67
// case: arg-05-big-integers, loop-10-bad-args-in-history
func TestRequestAndAnswerCrossTheBusWhole(t *testing.T) {
	strict := true
	sent := &provider.Request{
		Model: "fake/org/m-1",
		Messages: []provider.Message{
			{Role: provider.RoleSystem, Text: "be kind"},
			{Role: provider.RoleUser, Parts: []provider.Part{{Type: provider.PartImage, MediaType: "image/png", Data: []byte{1, 2}}}},
			{Role: provider.RoleAssistant, Calls: []provider.Call{{ID: "u-1-0", ModelID: "m.0", Name: "f", Arguments: `{"x":1,"y"`}},
				Thinking: []provider.Thinking{{Text: "hm", Signature: "sig"}}},
			{Role: provider.RoleTool, ToolCallID: "u-1-0", IsError: true, Text: "invalid JSON"},
		},
		Tools:      []provider.Tool{{Name: "f", Description: "d", Schema: json.RawMessage(`{"type":"object", "maximum": 9007199254740993}`), Strict: &strict}, {Name: "g"}},
		ToolChoice: provider.ToolChoice{Mode: provider.ChoiceTool, Name: "f"},
		Settings:   map[string]json.RawMessage{"temperature": json.RawMessage(`0.5`), "seed": json.RawMessage(`9007199254740993`), "stop": json.RawMessage(`["a"]`)},
		StreamID:   "s-1",
	}
	events := []provider.Event{
		provider.Thinking{Text: "let me see"}, provider.Thinking{Signature: "abc"}, provider.Thinking{Signature: "zzz", Redacted: true},
		provider.Text{Text: "so"}, provider.Text{Text: " it is"},
		provider.NewToolCall("call:1", "f", `{"n":9007199254740993,"m":1.0}`, provider.StopToolCalls),
		provider.NewToolCall("call_2", "functions.f", ``, provider.StopToolCalls),
		provider.NewToolCall("call_3", "f", `{"cut":`, provider.StopToolCalls),
		provider.Stop{Reason: provider.StopToolCalls, Raw: "tool_calls", Usage: provider.Usage{InputTokens: 7, OutputTokens: 3, TotalTokens: 10, CachedTokens: 2}},
	}
	inBubble(t, func(t *testing.T, r *rig) {
		var got *provider.Request
		r.serve(llm.Config{Providers: []provider.Provider{fake{"fake", func(_ context.Context, req *provider.Request, yield func(provider.Event, error) bool) {
			got = req
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
		}}}})
		var answered []provider.Event
		for e, err := range r.m.Stream(t.Context(), sent) {
			if err != nil {
				t.Fatal(err)
			}
			answered = append(answered, e)
		}
		want := *sent
		want.Model = "org/m-1"
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("the request: %s", diff)
		}
		if diff := cmp.Diff(briefs(events), briefs(answered)); diff != "" {
			t.Errorf("the answer: %s", diff)
		}
	})
}

// briefs gives events in a form that compares errors by what travels.
func briefs(events []provider.Event) []any {
	out := make([]any, len(events))
	for i, e := range events {
		c, ok := e.(provider.ToolCall)
		if !ok {
			out[i] = e
			continue
		}
		why := ""
		if c.Invalid != nil {
			why = c.Invalid.Error() + c.Invalid.Reason + c.Invalid.ForModel()
		}
		out[i] = []string{c.ID, c.Name, c.Arguments, why}
	}
	return out
}

func TestModelThatIsNotThere(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, model := range []string{"nosuch/m", "m", "a b/m"} {
			_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: model}))
			wantCode(t, err, frames.CodeNotFound)
		}
		s := r.serve(llm.Config{Providers: []provider.Provider{says("ok")}})
		if _, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"})); err != nil {
			t.Fatal(err)
		}
		s.stop()
		if <-s.done; s.err != nil {
			t.Fatal(s.err)
		}
		_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}))
		wantCode(t, err, frames.CodeUnavailable)
	})
}

func says(text string) fake {
	return fake{"fake", func(_ context.Context, _ *provider.Request, yield func(provider.Event, error) bool) {
		_ = yield(provider.Text{Text: text}, nil) && yield(provider.Stop{Reason: provider.StopDone}, nil)
	}}
}

// hangs says something and then waits for its end, which it counts.
func hangs(ended *atomic.Int32) fake {
	return fake{"fake", func(ctx context.Context, _ *provider.Request, yield func(provider.Event, error) bool) {
		yield(provider.Text{Text: "hm"}, nil)
		<-ctx.Done()
		ended.Add(1)
		yield(nil, frames.AsError(ctx.Err()))
	}}
}

func TestProvidersErrorComesThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.serve(llm.Config{Providers: []provider.Provider{fake{"fake", func(_ context.Context, _ *provider.Request, yield func(provider.Event, error) bool) {
			if yield(provider.Text{Text: "half"}, nil) {
				yield(nil, frames.NewError(frames.CodeDenied, "no key: set one"))
			}
		}}}})
		turn, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}))
		wantCode(t, err, frames.CodeDenied)
		if turn.Text != "half" || frames.AsError(err).Message != "no key: set one" {
			t.Errorf("got %q, %v", turn.Text, err)
		}
	})
}

func TestProviderThatPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.serve(llm.Config{Providers: []provider.Provider{fake{"fake", func(context.Context, *provider.Request, func(provider.Event, error) bool) {
			panic("oh")
		}}}})
		_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}))
		wantCode(t, err, frames.CodeInternal)
	})
}

func TestSlowModelIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		slow := fake{"fake", func(_ context.Context, _ *provider.Request, yield func(provider.Event, error) bool) {
			<-time.After(time.Minute) // virtual time
			yield(provider.Stop{Reason: provider.StopDone}, nil)
		}}
		r.serve(llm.Config{Providers: []provider.Provider{slow}, Concurrency: 1})
		results := make(chan error, 2)
		for range 2 { // the second waits for the first's slot, and is kept alive meanwhile
			go func() {
				_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}))
				results <- err
			}()
		}
		start := time.Now()
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 2*time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

func TestFullQueueIsBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var ended atomic.Int32
		r.serve(llm.Config{Providers: []provider.Provider{hangs(&ended)}, Concurrency: 1, QueueLimit: 1})
		for range 2 {
			go func() { _, _ = provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"})) }()
		}
		synctest.Wait()
		_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}))
		wantCode(t, err, frames.CodeBusy)
		if frames.AsError(err).RetryAfter == 0 {
			t.Error("does not say when to come again")
		}
	})
}

// contract: B4, B58
func TestRequestThatIsGivenUpEndsAtTheProvider(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var ended atomic.Int32
		r.serve(llm.Config{Providers: []provider.Provider{hangs(&ended)}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, err := range r.m.Stream(ctx, &provider.Request{Model: "fake/m"}) {
			if err != nil {
				wantCode(t, err, frames.CodeCancelled)
			}
			cancel()
		}
		for range r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}) {
			break // early
		}
		synctest.Wait()
		if ended.Load() != 2 {
			t.Errorf("%d of 2 requests ended", ended.Load())
		}
	})
}

func TestCallerThatIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var ended atomic.Int32
		r.serve(llm.Config{Providers: []provider.Provider{hangs(&ended)}})
		fs, err := modelbus.RequestFrames(&provider.Request{Model: "fake/m"})
		if err != nil {
			t.Fatal(err)
		}
		data, err := frames.Encode(frames.Msgpack, fs...)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.loop.NATS().PublishMsg(&nats.Msg{Subject: r.loop.LLM("fake"), Reply: "_INBOX.loop.gone", Data: data}); err != nil {
			t.Fatal(err)
		}
		<-time.After(6 * time.Second) // virtual time
		synctest.Wait()
		if ended.Load() != 1 {
			t.Error("the provider still works for nobody")
		}
	})
}

func TestDrainAnswersWhatItTook(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		slow := fake{"fake", func(_ context.Context, _ *provider.Request, yield func(provider.Event, error) bool) {
			<-time.After(3 * time.Second) // virtual time
			yield(provider.Stop{Reason: provider.StopDone}, nil)
		}}
		s := r.serve(llm.Config{Providers: []provider.Provider{slow}})
		answered := make(chan error, 1)
		go func() {
			_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}))
			answered <- err
		}()
		synctest.Wait()
		s.stop()
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if <-s.done; s.err != nil {
			t.Error(s.err)
		}
	})
}

func TestHardStopSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var ended atomic.Int32
		s := r.serve(llm.Config{Providers: []provider.Provider{hangs(&ended)}})
		answered := make(chan error, 1)
		go func() {
			_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m"}))
			answered <- err
		}()
		synctest.Wait()
		s.stop()
		synctest.Wait()
		s.kill()
		wantCode(t, <-answered, frames.CodeUnavailable)
		<-s.done
	})
}

func TestBadRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.serve(llm.Config{Providers: []provider.Provider{says("ok")}})
		start := frames.Start()
		param := func(key string, value any) *frames.Frame { f := frames.Param(key, value); return &f }
		for name, c := range map[string]struct {
			fs   []*frames.Frame
			code frames.Code
			says string
		}{
			"no start":    {[]*frames.Frame{param("model", "fake/m")}, frames.CodeBadFrame, "START"},
			"other model": {[]*frames.Frame{param("model", "other/m"), &start}, frames.CodeValidationInput, "PARAM model"},
			"no model":    {[]*frames.Frame{&start}, frames.CodeValidationInput, "PARAM model"},
			"messages":    {[]*frames.Frame{param("messages", 7), &start}, frames.CodeValidationInput, "PARAM messages"},
			"tools":       {[]*frames.Frame{param("tools", []any{"f"}), &start}, frames.CodeValidationInput, "PARAM tools"},
			"choice":      {[]*frames.Frame{param("toolChoice", "sometimes"), &start}, frames.CodeValidationInput, "PARAM toolChoice"},
		} {
			_, err := r.loop.Request(t.Context(), r.loop.LLM("fake"), c.fs...)
			if frames.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRequestOverTheInlineLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.serve(llm.Config{Providers: []provider.Provider{says("ok")}})
		long := strings.Repeat("x", r.loop.InlineLimit())
		_, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "fake/m", Messages: []provider.Message{{Role: provider.RoleUser, Text: long}}}))
		wantCode(t, err, frames.CodeTooLarge)
	})
}

// What an adapter in another language may say.
//
// contract: B15, P56, P57
// case: WS-R01, WS-R02, acc-21-utf8-split, acc-23-truncated-length
func TestAnswersOfOtherAdapters(t *testing.T) {
	meta := func(reason string) frames.Frame { return frames.Meta(map[string]any{"stopReason": reason}) }
	call := func(args string) frames.Frame {
		return frames.Call("f", json.RawMessage(args), frames.WithCall("a", "f"))
	}
	tree := frames.NewFrame(frames.TypeToolCall, map[string]any{"arguments": map[string]any{"n": 1}}, frames.WithCall("a", "f"))
	open, done := frames.OpenCall("f", "a"), frames.CloseCall("a", 0)
	piece := func(text string) frames.Frame { return frames.ArgumentPiece("a", 0, []byte(text)) }
	other := frames.ArgumentPiece("b", 0, []byte("{"))
	inMeta := func(f frames.Frame) frames.Frame {
		f.ToolCallID = ""
		f.Metadata.Set("toolCallId", frames.Value("a"))
		return f
	}
	for name, c := range map[string]struct {
		answer []frames.Frame
		code   frames.Code // of the stream
		args   string
		reason string // of the call's refusal
		stop   provider.StopReason
	}{
		"tree":            {[]frames.Frame{tree, meta("tool-calls")}, "", `{"n":1}`, "", provider.StopToolCalls},
		"stop":            {[]frames.Frame{call(`{}`), meta("stop")}, "", `{}`, "", provider.StopToolCalls},
		"broken":          {[]frames.Frame{call(`{"a":`), meta("tool-calls")}, "", `{"a":`, "arguments_incomplete", provider.StopToolCalls},
		"cut by luck":     {[]frames.Frame{call(`{}`), meta("length")}, "", `{}`, "arguments_truncated", provider.StopLength},
		"unknown reason":  {[]frames.Frame{call(`{}`), meta("tired")}, "", `{}`, "arguments_truncated", provider.StopError},
		"no meta":         {[]frames.Frame{call(`{}`)}, frames.CodeNoResult, "", "", ""},
		"repaired":        {[]frames.Frame{call(`{"n":[1,],}`), meta("stop")}, "", `{"n":[1]}`, "", provider.StopToolCalls},
		"in pieces":       {[]frames.Frame{open, piece(`{"t":"` + "\xc3"), piece("\xa4\xf0\x9f\x98"), piece("\x80\"}"), done, meta("stop")}, "", `{"t":"ä😀"}`, "", provider.StopToolCalls},
		"id in metadata":  {[]frames.Frame{inMeta(open), inMeta(piece(`{"n":1}`)), inMeta(done), meta("stop")}, "", `{"n":1}`, "", provider.StopToolCalls},
		"no piece":        {[]frames.Frame{open, done, meta("stop")}, "", `{}`, "", provider.StopToolCalls},
		"not closed":      {[]frames.Frame{open, piece(`{}`), meta("tool-calls")}, "", `{}`, "arguments_incomplete", provider.StopToolCalls},
		"closed, broken":  {[]frames.Frame{open, piece(`{"command":"rm -rf build`), done, meta("tool-calls")}, "", `{"command":"rm -rf build`, "arguments_incomplete", provider.StopToolCalls},
		"pieces, cut":     {[]frames.Frame{open, piece(`{"n":`), meta("length")}, "", `{"n":`, "arguments_truncated", provider.StopLength},
		"pieces, by luck": {[]frames.Frame{open, piece(`{}`), done, meta("length")}, "", `{}`, "arguments_truncated", provider.StopLength},
		"never a stop":    {[]frames.Frame{open, piece(`{}`), done}, frames.CodeNoResult, "", "", ""},
		"opened twice":    {[]frames.Frame{open, open, meta("stop")}, frames.CodeNoResult, "", "", ""},
		"of no call":      {[]frames.Frame{open, other, meta("stop")}, frames.CodeNoResult, "", "", ""},
		"closed twice":    {[]frames.Frame{open, done, done, meta("stop")}, frames.CodeNoResult, "", "", ""},
		"piece behind":    {[]frames.Frame{open, done, piece("{"), meta("stop")}, frames.CodeNoResult, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				adapter := r.connect("llm")
				_, err := adapter.Handle(t.Context(), adapter.LLM("other"), bus.QueueLLM, func(_ context.Context, q *bus.Request) {
					_ = q.End(frames.EndCompleted, c.answer...)
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := adapter.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				turn, err := provider.Collect(r.m.Stream(t.Context(), &provider.Request{Model: "other/m"}))
				if c.code != "" {
					wantCode(t, err, c.code)
					return
				}
				if err != nil || len(turn.Calls) != 1 {
					t.Fatalf("%+v, %v", turn, err)
				}
				got := turn.Calls[0]
				reason := ""
				if got.Invalid != nil {
					reason = got.Invalid.Reason
				}
				if got.Arguments != c.args || reason != c.reason || turn.Stop.Reason != c.stop || got.ID != "a" {
					t.Errorf("got %+v, refused %q, stop %q", got, reason, turn.Stop.Reason)
				}
			})
		})
	}
}

func TestConfigNamesTheField(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for want, cfg := range map[string]llm.Config{
			"Providers: none":    {},
			"Providers: the nam": {Providers: []provider.Provider{fake{name: "a b"}}},
			"given twice":        {Providers: []provider.Provider{says(""), says("")}},
			"Concurrency":        {Providers: []provider.Provider{says("")}, Concurrency: -1},
			"QueueLimit":         {Providers: []provider.Provider{says("")}, QueueLimit: -1},
		} {
			err := llm.New(cfg).Run(t.Context(), envWithout(r), func() { t.Error("ready") })
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %s: %v", want, err)
			}
		}
	})
}
