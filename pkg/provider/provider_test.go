package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixed is a provider that gives the same events each time.
type fixed struct {
	name   string
	events []provider.Event
	err    error
	models []string
}

func (f *fixed) Name() string { return f.name }

func (f *fixed) Stream(context.Context, *provider.Request) iter.Seq2[provider.Event, error] {
	return func(yield func(provider.Event, error) bool) {
		for _, e := range f.events {
			if !yield(e, nil) {
				return
			}
		}
		if f.err != nil {
			yield(nil, f.err)
		}
	}
}

// lister is a provider that knows its models.
type lister struct{ fixed }

func (l *lister) Models() []string { return l.models }

func wantError(t *testing.T, err error, code frames.Code, says ...string) {
	t.Helper()
	e := frames.AsError(err)
	if e == nil || e.Code != code {
		t.Errorf("error %v, want %s", err, code)
		return
	}
	for _, word := range says {
		if !strings.Contains(e.Message, word) {
			t.Errorf("message %q does not say %q", e.Message, word)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	set, err := provider.NewSet(&fixed{name: "openai"}, &lister{fixed{name: "scripted", models: []string{"demo", "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	p, model, err := set.Resolve("openai/vendor/gpt-x")
	if err != nil || p.Name() != "openai" || model != "vendor/gpt-x" {
		t.Errorf("%v, %q, %v", p, model, err)
	}
	for _, name := range []string{"", "openai", "openai/", "/gpt", "other/gpt", strings.Repeat("x", 10_000)} {
		_, _, err := set.Resolve(name)
		wantError(t, err, frames.CodeNotFound, "openai/<model>, scripted/demo, scripted/x")
		if len(err.Error()) > 500 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	}
	if diff := cmp.Diff([]string{"openai", "scripted"}, set.Names()); diff != "" {
		t.Error(diff)
	}
}

func TestEmptySetSaysSo(t *testing.T) {
	t.Parallel()
	set, err := provider.NewSet()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = set.Resolve("a/b")
	wantError(t, err, frames.CodeNotFound, "there are: none")
}

func TestNewSetRefuses(t *testing.T) {
	t.Parallel()
	_, err := provider.NewSet(&fixed{name: "a"}, &fixed{name: "a"})
	wantError(t, err, frames.CodeConflict, `"a"`)
	for _, name := range []string{"", "a/b", "a.b", "a b", "*", ">"} {
		_, err := provider.NewSet(&fixed{name: name})
		wantError(t, err, frames.CodeValidationInput)
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	call := provider.NewToolCall("m1", "f", "", provider.StopToolCalls)
	stop := provider.Stop{Reason: provider.StopToolCalls, Usage: provider.Usage{TotalTokens: 3}}
	p := &fixed{events: []provider.Event{
		provider.Thinking{Text: "a"}, provider.Thinking{Text: "b", Signature: "s1"}, provider.Thinking{Text: "c"},
		provider.Thinking{Signature: "r", Redacted: true}, provider.Thinking{Text: "d"},
		provider.Text{Text: "x"}, provider.Text{Text: "y"}, call, stop,
	}}
	got, err := provider.Collect(p.Stream(t.Context(), nil))
	if err != nil {
		t.Fatal(err)
	}
	want := &provider.Turn{
		Text: "xy", Calls: []provider.ToolCall{call}, Stop: stop,
		Thinking: []provider.Thinking{{Text: "ab", Signature: "s1"}, {Text: "c"}, {Signature: "r", Redacted: true}, {Text: "d"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turn (-want +got):\n%s", diff)
	}
	message := provider.Message{
		Role: provider.RoleAssistant, Text: "xy", Thinking: want.Thinking,
		Calls: []provider.Call{{ModelID: "m1", Name: "f", Arguments: "{}"}},
	}
	if diff := cmp.Diff(message, got.Message()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestCollectGivesWhatCameBeforeAnError(t *testing.T) {
	t.Parallel()
	p := &fixed{events: []provider.Event{provider.Text{Text: "x"}}, err: errors.New("boom")}
	got, err := provider.Collect(p.Stream(t.Context(), nil))
	wantError(t, err, frames.CodeInternal, "boom")
	if got.Text != "x" {
		t.Errorf("text %q", got.Text)
	}
	p.err = nil
	_, err = provider.Collect(p.Stream(t.Context(), nil))
	wantError(t, err, frames.CodeNoResult)
}

func TestUsageAdd(t *testing.T) {
	t.Parallel()
	u := provider.Usage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3, CachedTokens: 4, ReasoningTokens: 5}
	if got := u.Add(u); got != (provider.Usage{InputTokens: 2, OutputTokens: 4, TotalTokens: 6, CachedTokens: 8, ReasoningTokens: 10}) {
		t.Errorf("%+v", got)
	}
}

// contract: B15, P58
// case: acc-23-truncated-length
func TestNewToolCall(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, arguments string
		stop            provider.StopReason
		want, reason    string
	}{
		{"f", `{"a": 1.0}`, provider.StopToolCalls, `{"a": 1.0}`, ""},
		{"f", ``, provider.StopDone, `{}`, ""},
		{"f", "  ", provider.StopDone, `{}`, ""},
		{"f", `{"a`, provider.StopToolCalls, `{"a`, "arguments_incomplete"},
		{"f", `{"a`, provider.StopLength, `{"a`, "arguments_truncated"},
		{"f", `{"a":[1,],}`, provider.StopToolCalls, `{"a":[1]}`, ""},
		{"f", `{"a":[1,],}`, provider.StopLength, `{"a":[1,],}`, "arguments_truncated"},
		{"f", "```json\n{\"a\":1}\n```", provider.StopDone, `{"a":1}`, ""},
		{"f", `{"a":NaN}`, provider.StopToolCalls, `{"a":NaN}`, "invalid_json"},
		{"f", `{"a":1}`, provider.StopLength, `{"a":1}`, "arguments_truncated"},
		{"f", ``, provider.StopLength, `{}`, "arguments_truncated"},
		{"f", `{"a":1}`, provider.StopContentFilter, `{"a":1}`, "arguments_truncated"},
		{"f", `{"a":1}`, provider.StopError, `{"a":1}`, "arguments_truncated"},
		{"f", `{"a":1}`, "", `{"a":1}`, "arguments_truncated"},
		{"", `{}`, provider.StopToolCalls, `{}`, "no_tool_name"},
		{"f", "{\"a\":\"\xff\"}", provider.StopToolCalls, `{"a":" \xff"}`, "invalid_utf8"},
		{"f", "{\"a\":\"\\\xff\"}", provider.StopToolCalls, `{"a":"\ \xff"}`, "invalid_json"},
	}
	for _, tt := range tests {
		c := provider.NewToolCall("id", tt.name, tt.arguments, tt.stop)
		reason := ""
		if c.Invalid != nil {
			reason = c.Invalid.Reason
		}
		if c.ID != "id" || c.Name != tt.name || c.Arguments != tt.want || reason != tt.reason {
			t.Errorf("%q after %s: %+v (%s)", tt.arguments, tt.stop, c, reason)
		}
	}
}

// Who gets a call by its parts judges it as the adapter did.
func TestJudgementIsRepeatable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(
			rapid.Map(rapid.SliceOf(rapid.SampledFrom([]byte("{}[]\":,\\1a \xff\xc3\xa4\n"))), func(b []byte) string { return string(b) }),
			rapid.Map(rapid.SliceOf(rapid.SampledFrom([]byte("\\x\xff\xed\xa0\x80"))), func(b []byte) string { return `{"a":"` + string(b) + `"}` }),
		).Draw(rt, "text")
		reason := rapid.SampledFrom([]provider.StopReason{provider.StopDone, provider.StopToolCalls, provider.StopLength}).Draw(rt, "reason")
		first := provider.NewToolCall("id", "f", text, reason)
		again := provider.NewToolCall("id", "f", first.Arguments, reason)
		if (first.Invalid == nil) != (again.Invalid == nil) || first.Arguments != again.Arguments {
			rt.Fatalf("first %+v, then %+v", first, again)
		}
		if !utf8.ValidString(first.Arguments) {
			rt.Fatalf("arguments %q", first.Arguments)
		}
	})
}

// case: loop-10-bad-args-in-history
func TestValidArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`{"x":1,"y"`: "{}", ``: "{}", `[1]`: "{}", `{"x":1.0}`: `{"x":1.0}`} {
		if got := string(provider.ValidArguments(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestToolChoice(t *testing.T) {
	t.Parallel()
	tool := provider.ToolChoice{Mode: provider.ChoiceTool, Name: "f"}
	for text, want := range map[string]provider.ToolChoice{
		``: {}, `null`: {}, `""`: {}, `auto`: {Mode: provider.ChoiceAuto}, `"auto"`: {Mode: provider.ChoiceAuto},
		`none`: {Mode: provider.ChoiceNone}, `"none"`: {Mode: provider.ChoiceNone}, `{"type":"none"}`: {Mode: provider.ChoiceNone},
		`required`: {Mode: provider.ChoiceRequired}, `{"type":"any"}`: {Mode: provider.ChoiceRequired}, `any`: {Mode: provider.ChoiceRequired},
		`{"name":"f"}`: tool, `{"type":"function","function":{"name":"f"}}`: tool, `{"type":"tool","name":"f"}`: tool,
		`{"type":"tool","toolName":"f"}`: tool, `{"mode":"tool","name":"f"}`: tool, "\n" + `{"name":"f"}`: tool,
	} {
		got, err := provider.ParseToolChoice(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"f", `"f"`, `{}`, `{"type":"tool"}`, `{"type":"x"}`, `[1]`, `5`, `{`, `{"name":5}`, strings.Repeat("x", 1000)} {
		_, err := provider.ParseToolChoice(text)
		wantError(t, err, frames.CodeValidationInput, "tool choice")
		if len(err.Error()) > 300 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	}
	for text, c := range map[string]provider.ToolChoice{`null`: {}, `"none"`: {Mode: provider.ChoiceNone}, `{"name":"f"}`: tool} {
		got, err := json.Marshal(c)
		var back provider.ToolChoice
		if err != nil || string(got) != text || json.Unmarshal(got, &back) != nil || back != c {
			t.Errorf("%+v: %s, %v, %+v", c, got, err, back)
		}
	}
}
