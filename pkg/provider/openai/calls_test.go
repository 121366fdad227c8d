package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/openai"
)

// generated stands for an id that the accumulator made.
var generated = regexp.MustCompile(`call_[A-Z2-7]{24}`)

func TestCallsFindTheirDeltas(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		deltas []string // the tool_calls of one chunk each
		want   []string // id name arguments
	}{
		{"parallel by index, interleaved", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":""}},{"index":1,"id":"b","function":{"name":"g","arguments":""}}]`,
			`[{"index":1,"function":{"arguments":"{\"y\":"}}]`, `[{"index":0,"function":{"arguments":"{\"x\":"}}]`,
			`[{"index":0,"function":{"arguments":"1}"}}]`, `[{"index":1,"function":{"arguments":"2}"}}]`,
		}, []string{`a f {"x":1}`, `b g {"y":2}`}},
		{"index 0 reused, second in pieces", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\":"}}]`,
			`[{"index":0,"function":{"arguments":"2}"}}]`,
		}, []string{`a f {"x":1}`, `b f {"x":2}`}},
		{"head at index 0, tail at index 1", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\":"}}]`,
			`[{"index":1,"function":{"arguments":"2}"}}]`,
		}, []string{`a f {"x":1}`, `b g {"y":2}`}},
		{"tail at index 1 with its id", []string{
			`[{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\":"}}]`,
			`[{"index":1,"id":"b","function":{"arguments":"2}"}}]`,
		}, []string{`b g {"y":2}`}},
		{"index 0 reused without ids", []string{
			`[{"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"function":{"name":"f","arguments":"{\"x\":2}"}}]`,
		}, []string{`* f {"x":1}`, `* f {"x":2}`}},
		{"other name at index 0, first without arguments", []string{
			`[{"index":0,"function":{"name":"now","arguments":""}}]`,
			`[{"index":0,"function":{"name":"f","arguments":"{}"}}]`,
		}, []string{`* now {}`, `* f {}`}},
		{"no index, no ids, whole calls", []string{
			`[{"function":{"name":"f","arguments":"{\"x\":1}"}},{"function":{"name":"f","arguments":"{\"x\":2}"}}]`,
		}, []string{`* f {"x":1}`, `* f {"x":2}`}},
		{"no index, no id, name in each piece", []string{
			`[{"function":{"name":"f","arguments":"{\"x\":"}}]`, `[{"function":{"name":"f","arguments":"1}"}}]`,
		}, []string{`* f {"x":1}`}},
		{"no index, name late", []string{
			`[{"id":"a","function":{"arguments":"{\"x\":"}}]`, `[{"function":{"name":"f","arguments":"1}"}}]`,
		}, []string{`a f {"x":1}`}},
		{"name first empty, then late", []string{
			`[{"index":0,"id":"a","function":{"name":"","arguments":""}}]`, `[{"index":0,"function":{"name":"f","arguments":"{}"}}]`,
		}, []string{`a f {}`}},
		{"id late", []string{
			`[{"index":0,"function":{"name":"f","arguments":""}}]`, `[{"index":0,"id":"a","function":{"arguments":"{\"x\":1}"}}]`,
		}, []string{`a f {"x":1}`}},
		{"id new in each piece", []string{
			`[{"index":0,"id":"r1","function":{"name":"f","arguments":""}}]`,
			`[{"index":0,"id":"r2","function":{"arguments":"{\"x\":"}}]`, `[{"index":0,"id":"r3","function":{"arguments":"1}"}}]`,
		}, []string{`r1 f {"x":1}`}},
		{"blank and null ids", []string{
			`[{"index":0,"id":"","function":{"name":"f","arguments":"{}"}}]`, `[{"index":1,"id":null,"function":{"name":"g","arguments":"{}"}}]`,
		}, []string{`* f {}`, `* g {}`}},
		{"one id for two indexes", []string{
			`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":1,"id":"x","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
		}, []string{`x f {"x":1}`, `* f {"x":1}`}},
		{"a whole call said twice", []string{
			`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
		}, []string{`x f {"x":1}`}},
		{"one id used again for another call", []string{
			`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"x\":1}"}}]`,
			`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"x\":2}"}}]`,
		}, []string{`x f {"x":1}`, `* f {"x":2}`}},
		{"by id at one index, interleaved", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`, `[{"index":0,"id":"b","function":{"name":"g","arguments":""}}]`,
			`[{"index":0,"id":"a","function":{"arguments":"{\"x\":1}"}}]`, `[{"index":0,"id":"b","function":{"arguments":"{\"y\":2}"}}]`,
		}, []string{`a f {"x":1}`, `b g {"y":2}`}},
		{"index -1 in pieces", []string{
			`[{"index":-1,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]`, `[{"index":-1,"function":{"arguments":"1}"}}]`,
		}, []string{`a f {"x":1}`}},
		{"index as text, id as number", []string{
			`[{"index":"0","id":7,"function":{"name":"f","arguments":"{\"x\":"}}]`, `[{"index":0.0,"function":{"arguments":"1}"}}]`,
		}, []string{`7 f {"x":1}`}},
		{"arguments as object, numbers kept", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":{"id":9007199254740993,"d":1.10}}}]`,
		}, []string{`a f {"id":9007199254740993,"d":1.10}`}},
		{"arguments null, absent, blank", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":null}},{"index":1,"id":"b","function":{"name":"f"}},{"index":2,"id":"c","function":{"name":"f","arguments":"  "}}]`,
		}, []string{`a f {}`, `b f {}`, `c f {}`}},
		{"one call without its list", []string{`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`}, []string{`a f {}`}},
		{"empty deltas are no calls", []string{`[]`, `null`, `[{"index":0}]`, `[{"index":0,"function":{"arguments":""}}]`}, nil},
		{"no name at all", []string{`[{"index":0,"id":"a","function":{"arguments":"{}"}}]`}, []string{`a  !no_tool_name`}},
		{"two objects glued", []string{`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}{\"x\":2}"}}]`}, []string{`a f !invalid_json`}},
		{"key twice", []string{`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"p\":1,\"p\":2}"}}]`}, []string{`a f !duplicate_key`}},
		{"surrogates in two pieces", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"\ud83d"}}]`, `[{"index":0,"function":{"arguments":"\ude00\"}"}}]`,
		}, []string{`a f {"x":"😀"}`}},
		{"a surrogate alone", []string{`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"\ud83d\"}"}}]`}, []string{`a f !invalid_utf8`}},
		{"escapes cut in two", []string{
			`[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"\\u00e"}}]`, `[{"index":0,"function":{"arguments":"9 \\ud83d"}}]`,
			`[{"index":0,"function":{"arguments":"\\ude00 \\"}}]`, `[{"index":0,"function":{"arguments":"n\"}"}}]`,
		}, []string{`a f {"x":"\u00e9 \ud83d\ude00 \n"}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var chunks []string
			for _, d := range tt.deltas {
				chunks = append(chunks, delta(`{"tool_calls":%s}`, d))
			}
			got := mustTurn(t, data(append(chunks, finish("tool_calls"))...)...)
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), generated.ReplaceAllString(calls(got), "*")); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			unique(t, got)
		})
	}
}

func unique(t *testing.T, got *provider.Turn) {
	t.Helper()
	seen := map[string]bool{"": true}
	for _, c := range got.Calls {
		if seen[c.ID] {
			t.Errorf("id %q is blank or there twice", c.ID)
		}
		seen[c.ID] = true
	}
}

// Calls are those of choice 0, in whatever order choices come, and end.
//
// case: acc-17-choices
func TestCallsOfSeveralChoices(t *testing.T) {
	t.Parallel()
	call := func(i int, id, args string) string {
		return fmt.Sprintf(`{"index":%d,"delta":{"tool_calls":[{"index":0,"id":%q,"function":{"name":"f","arguments":%q}}]}}`, i, id, args)
	}
	end := func(i int, reason string) string {
		return fmt.Sprintf(`{"index":%d,"delta":{},"finish_reason":%q}`, i, reason)
	}
	for name, chunks := range map[string][]string{
		"the other first":       {call(1, "b", `{"x":2}`), call(0, "a", `{"x":1}`), end(0, "tool_calls"), end(1, "tool_calls")},
		"in one chunk":          {call(1, "b", `{"x":2}`) + "," + call(0, "a", `{"x":1}`), end(1, "length") + "," + end(0, "tool_calls")},
		"one id":                {call(0, "a", `{"x":`), call(1, "a", `{"x":2`), call(0, "a", `1}`), call(1, "a", `}`), end(0, "tool_calls")},
		"the other is cut":      {call(0, "a", `{"x":1}`), call(1, "b", `{"x":`), end(1, "length"), end(0, "tool_calls")},
		"the other ends before": {call(1, "b", `{"x":2}`), end(1, "tool_calls"), call(0, "a", `{"x":1}`), end(0, "tool_calls")},
	} {
		var wire []string
		for _, c := range chunks {
			wire = append(wire, `{"choices":[`+c+`]}`)
		}
		got := mustTurn(t, data(wire...)...)
		if calls(got) != `a f {"x":1}` || got.Stop.Reason != provider.StopToolCalls {
			t.Errorf("%s: calls %s, stop %s", name, calls(got), got.Stop.Reason)
		}
	}
}

func TestLegacyFunctionCall(t *testing.T) {
	t.Parallel()
	got := mustTurn(t, data(delta(`{"function_call":{"name":"f","arguments":"{\"x\":"}}`),
		delta(`{"function_call":{"arguments":"1}"}}`), finish("function_call"))...)
	if want := `* f {"x":1}`; generated.ReplaceAllString(calls(got), "*") != want {
		t.Errorf("calls %q", calls(got))
	}
}

// contract: B15
func TestCutTurnsHaveNoValidCalls(t *testing.T) {
	t.Parallel()
	whole := `[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]`
	blank := `[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`
	for _, reason := range []string{"length", "max_tokens", "content_filter", "error"} {
		for _, calls := range []string{whole, blank} {
			got := mustTurn(t, data(delta(`{"tool_calls":%s}`, calls), finish(reason))...)
			if len(got.Calls) != 1 || got.Calls[0].Invalid == nil || got.Calls[0].Invalid.Reason != "arguments_truncated" {
				t.Errorf("%s after %s: calls %+v", reason, calls, got.Calls)
			}
			if got.Stop.Reason.Complete() || got.Stop.Raw != reason {
				t.Errorf("%s: stop %+v", reason, got.Stop)
			}
		}
	}
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	call := delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}`)
	tests := []struct {
		name   string
		chunks []string
		want   provider.StopReason
	}{
		{"stop", []string{finish("stop")}, provider.StopDone},
		{"tool_calls without calls", []string{finish("tool_calls")}, provider.StopDone},
		{"stop with calls", []string{call, finish("stop")}, provider.StopToolCalls},
		{"null with calls", []string{call, `{"choices":[{"index":0,"delta":{},"finish_reason":null}]}`}, provider.StopToolCalls},
		{"none", []string{delta(`{"content":"a"}`)}, provider.StopDone},
		{"length, then stop", []string{finish("length"), finish("stop")}, provider.StopLength},
		{"empty in each chunk", []string{finish(""), finish("stop"), finish("")}, provider.StopDone},
		{"filter", []string{finish("content_filter")}, provider.StopContentFilter},
		{"unknown word", []string{finish("eos")}, provider.StopDone},
	}
	for _, tt := range tests {
		if got := mustTurn(t, data(tt.chunks...)...); got.Stop.Reason != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got.Stop.Reason, tt.want)
		}
	}
}

// Any cut of the bytes of a stream gives the same turn.
func TestAnyCutGivesTheSameTurn(t *testing.T) {
	t.Parallel()
	wire := strings.Join(data(
		delta(`{"role":"assistant","content":"é 😀 "}`), delta(`{"content":"\ud83d\ude00"}`), delta(`{"reasoning":"hm"}`),
		delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"t\":\"ä"}}]}`),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":"😀\"}"}}]}`), finish("tool_calls"),
		`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`), "")
	want := mustTurn(t, wire)
	rapid.Check(t, func(rt *rapid.T) {
		pieces := cutAnywhere(rt, wire)
		got, err := provider.Collect(fake(t, pieces).Stream(context.Background(), user("hi")))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("turn (-want +got):\n%s", diff)
		}
	})
}

func cutAnywhere(rt *rapid.T, s string) []string {
	var out []string
	for s != "" {
		n := rapid.IntRange(1, len(s)).Draw(rt, "n")
		n = min(n, rapid.IntRange(1, 40).Draw(rt, "most"))
		out, s = append(out, s[:n]), s[n:]
	}
	return out
}

// Any cut of an argument text into deltas, in the manner of any server, gives
// the same calls.
func TestAnyDeltasGiveTheSameCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		manner := rapid.SampledFrom([]string{"index", "id", "both", "named", "newest"}).Draw(rt, "manner")
		var chunks, want []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "calls") {
			text := fmt.Sprintf(`{"i":%d,"t":%q}`, i, rapid.StringMatching(`[a-zäß😀{}\[\],: ]{0,12}`).Draw(rt, "text"))
			want = append(want, fmt.Sprintf("id%d f %s", i, text))
			for n, piece := range cutRunes(rt, text) {
				chunks = append(chunks, mannered(manner, i, n, piece))
			}
		}
		got, err := provider.Collect(fake(t, data(append(chunks, finish("tool_calls"))...)).Stream(context.Background(), user("hi")))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(strings.Join(want, "\n"), calls(got)); diff != "" {
			rt.Fatalf("%s: calls (-want +got):\n%s", manner, diff)
		}
	})
}

func cutRunes(rt *rapid.T, s string) []string {
	var out []string
	runes := []rune(s)
	for len(runes) > 0 {
		n := rapid.IntRange(1, len(runes)).Draw(rt, "n")
		out, runes = append(out, string(runes[:n])), runes[n:]
	}
	return out
}

// mannered writes piece n of call i as one kind of server does.
func mannered(manner string, i, n int, piece string) string {
	function := map[string]any{"arguments": piece}
	call := map[string]any{"function": function}
	if n == 0 || manner == "named" {
		function["name"] = "f"
	}
	if n == 0 || manner == "id" || manner == "both" {
		call["id"] = fmt.Sprintf("id%d", i)
	}
	if manner == "index" || manner == "both" || manner == "named" {
		call["index"] = i
	}
	if manner == "newest" && n == 0 {
		call["index"] = 0 // as a server that always says 0, and only once
	}
	text, err := json.Marshal([]any{call})
	if err != nil {
		panic(err)
	}
	return delta(`{"tool_calls":%s}`, text)
}

var _ provider.Provider = (*openai.Provider)(nil)
