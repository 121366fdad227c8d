package openai_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/openai"
)

// testCase is a line of testdata/cases.jsonl.
type testCase struct {
	ID       string          `json:"id"`
	Input    json.RawMessage `json:"input"`
	Expected json.RawMessage `json:"expected"`
}

func readCases(t *testing.T) []testCase {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []testCase
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c testCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// caseTests names the test of each case; a case without one fails.
var caseTests = map[string]func(*testing.T, testCase){
	"acc-02-missing-index":                      caseCalls,
	"acc-03-index0-reused-whole":                caseCalls,
	"acc-06-args-only-fragments-no-index-no-id": caseCalls,
	"acc-07-name-repeated":                      caseCalls,
	"acc-08-name-late":                          caseCalls,
	"acc-15-index-minus-one":                    caseCalls,
	"acc-16-huge-index":                         caseHugeIndex,
	"acc-17-choices":                            caseChoices,
	"acc-19-usage-repeated":                     caseUsage,
	"acc-21-utf8-split":                         caseSplit,
	"acc-23-truncated-length":                   caseTruncated,
	"exp-18-empty-tools":                        caseEmptyTools,
	"loop-10-bad-args-in-history":               caseBadHistory,
	"loop-13-mistral-id":                        caseShortID,
	"loop-14-assistant-content":                 caseNullContent,
}

// TestCases drives each case through HTTP.
//
// contract: B15
// case: acc-02-missing-index, acc-03-index0-reused-whole, acc-06-args-only-fragments-no-index-no-id
// case: acc-07-name-repeated, acc-08-name-late, acc-15-index-minus-one, acc-16-huge-index, acc-17-choices
// case: acc-19-usage-repeated, acc-21-utf8-split, acc-23-truncated-length, exp-18-empty-tools
// case: loop-10-bad-args-in-history, loop-13-mistral-id, loop-14-assistant-content
func TestCases(t *testing.T) { //nolint:paralleltest // a case measures what is allocated
	all := readCases(t)
	passed := 0
	for _, c := range all {
		run := caseTests[c.ID]
		if run == nil {
			t.Errorf("case %s has no test", c.ID)
			continue
		}
		if t.Run(c.ID, func(t *testing.T) { run(t, c) }) {
			passed++
		}
	}
	t.Logf("%d of %d cases passed", passed, len(all))
	if len(all) != len(caseTests) {
		t.Errorf("%d cases, %d tests", len(all), len(caseTests))
	}
}

func decode[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

type deltasInput struct {
	Deltas       []json.RawMessage `json:"deltas"`
	FinishReason string            `json:"finish_reason"`
}

func (in deltasInput) pieces() []string {
	var chunks []string
	for _, d := range in.Deltas {
		chunks = append(chunks, delta(`{"tool_calls":%s}`, d))
	}
	return data(append(chunks, finish(in.FinishReason))...)
}

type wantCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func diffCalls(t *testing.T, want []wantCall, got []provider.ToolCall) {
	t.Helper()
	var have []wantCall
	for _, c := range got {
		if c.Invalid != nil {
			t.Errorf("call %s: %v", c.ID, c.Invalid)
		}
		have = append(have, wantCall{c.ID, c.Name, json.RawMessage(c.Arguments)})
	}
	same := cmp.Transformer("value", func(raw json.RawMessage) any {
		var v any
		_ = json.Unmarshal(raw, &v)
		return v
	})
	if diff := cmp.Diff(want, have, same); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func caseCalls(t *testing.T, c testCase) {
	got := mustTurn(t, decode[deltasInput](t, c.Input).pieces()...)
	diffCalls(t, decode[struct{ Calls []wantCall }](t, c.Expected).Calls, got.Calls)
	if got.Stop.Reason != provider.StopToolCalls {
		t.Errorf("stop %q", got.Stop.Reason)
	}
}

func caseHugeIndex(t *testing.T, c testCase) {
	pieces := decode[deltasInput](t, c.Input).pieces()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := mustTurn(t, pieces...)
	runtime.ReadMemStats(&after)
	diffCalls(t, []wantCall{{"a", "f", json.RawMessage("{}")}}, got.Calls)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes allocated", grown)
	}
}

type chunksInput struct {
	Chunks []json.RawMessage `json:"chunks"`
}

func (in chunksInput) pieces() []string {
	var chunks []string
	for _, c := range in.Chunks {
		chunks = append(chunks, string(c))
	}
	return data(chunks...)
}

func caseChoices(t *testing.T, c testCase) {
	got := mustTurn(t, decode[chunksInput](t, c.Input).pieces()...)
	want := decode[struct{ Choice0 []wantCall }](t, c.Expected).Choice0
	want[0].Name = "f"
	diffCalls(t, want, got.Calls)
}

func caseUsage(t *testing.T, c testCase) {
	got := mustTurn(t, decode[chunksInput](t, c.Input).pieces()...)
	want := decode[struct {
		Usage struct{ Prompt, Completion, Total int64 }
	}](t, c.Expected).Usage
	have := got.Stop.Usage
	if have.InputTokens != want.Prompt || have.OutputTokens != want.Completion || have.TotalTokens != want.Total {
		t.Errorf("usage %+v, want %+v", have, want)
	}
}

// caseSplit cuts the bytes in two ways: in the connection, and into events.
func caseSplit(t *testing.T, c testCase) {
	var pieces []string
	for _, text := range decode[struct {
		Hex []string `json:"bytes_hex"`
	}](t, c.Input).Hex {
		piece, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, strings.ReplaceAll(string(piece), `"`, `\"`))
	}
	head, tail := `data: `+`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"`, `"}}]}}]}`+"\n\n"
	connection := append(append([]string{head}, pieces...), tail, "data: [DONE]\n\n")
	var events []string
	for _, piece := range pieces {
		events = append(events, head+piece+tail)
	}
	for name, wire := range map[string][]string{"connection": connection, "events": append(events, "data: [DONE]\n\n")} {
		got := mustTurn(t, wire...)
		diffCalls(t, []wantCall{{"a", "f", json.RawMessage(`{"t":"ä😀"}`)}}, got.Calls)
		if text := got.Calls[0].Arguments; !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) {
			t.Errorf("%s: arguments %q", name, text)
		}
	}
}

func caseTruncated(t *testing.T, c testCase) {
	in := decode[struct{ Variants []deltasInput }](t, c.Input)
	for _, v := range in.Variants {
		got := mustTurn(t, v.pieces()...)
		if len(got.Calls) != 1 || got.Calls[0].Invalid == nil {
			t.Fatalf("%s: calls %+v", v.FinishReason, got.Calls)
		}
		call := got.Calls[0]
		want := map[string]string{"length": "arguments_truncated", "tool_calls": "arguments_incomplete"}[v.FinishReason]
		if call.Invalid.Code != frames.CodeValidationInput || call.Invalid.Reason != want {
			t.Errorf("%s: %v (%s)", v.FinishReason, call.Invalid, call.Invalid.Reason)
		}
		if !strings.Contains(call.Invalid.ForModel(), "cut off") {
			t.Errorf("%s: the model reads %q", v.FinishReason, call.Invalid.ForModel())
		}
		if want := `{"path":"a.txt","content":"lin`; call.Arguments != want {
			t.Errorf("%s: the original text is gone: %q", v.FinishReason, call.Arguments)
		}
	}
}

func caseEmptyTools(t *testing.T, _ testCase) {
	body := sent(t, &provider.Request{Model: "m", Tools: []provider.Tool{}, ToolChoice: provider.ToolChoice{Mode: provider.ChoiceAuto}})
	for _, key := range []string{"tools", "tool_choice"} {
		if v, ok := body[key]; ok {
			t.Errorf("%s is %v", key, v)
		}
	}
}

// sent gives the body that a request goes out as.
func sent(t *testing.T, req *provider.Request, change ...func(*openai.Config)) map[string]any {
	t.Helper()
	s := serve(t, sseAnswer(data(finish("stop"))...))
	if _, err := provider.Collect(s.provider(change...).Stream(context.Background(), req)); err != nil {
		t.Fatal(err)
	}
	return s.body()
}

func sentMessages(t *testing.T, messages []provider.Message, change ...func(*openai.Config)) []any {
	t.Helper()
	list, ok := sent(t, &provider.Request{Model: "m", Messages: messages}, change...)["messages"].([]any)
	if !ok || len(list) != len(messages) {
		t.Fatalf("messages %v", list)
	}
	return list
}

// at walks into a generic value: at(v, "tool_calls", 0, "id").
func at(v any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[s]
		case int:
			list, _ := v.([]any)
			if s >= len(list) {
				return nil
			}
			v = list[s]
		}
	}
	return v
}

func callAndResult(modelID, arguments, result string) []provider.Message {
	return []provider.Message{
		{Role: provider.RoleAssistant, Calls: []provider.Call{{ID: "u-1-0", ModelID: modelID, Name: "f", Arguments: arguments}}},
		{Role: provider.RoleTool, ToolCallID: "u-1-0", IsError: true, Text: result},
	}
}

func caseBadHistory(t *testing.T, c testCase) {
	in := decode[struct {
		Call   struct{ ID, Name, Arguments string } `json:"assistant_call"`
		Result struct{ Error string }
	}](t, c.Input)
	messages := callAndResult(in.Call.ID, in.Call.Arguments, in.Result.Error)
	list := sentMessages(t, messages)
	if got := at(list, 0, "tool_calls", 0, "function", "arguments"); got != "{}" {
		t.Errorf("arguments %v", got)
	}
	if got := at(list, 1, "content"); got != in.Result.Error || at(list, 1, "tool_call_id") != in.Call.ID {
		t.Errorf("result message %v", list[1])
	}
	if messages[0].Calls[0].Arguments != in.Call.Arguments {
		t.Error("the original text was changed")
	}
}

func caseShortID(t *testing.T, c testCase) {
	id := decode[struct{ ID string }](t, c.Input).ID
	list := sentMessages(t, callAndResult(id, "{}", "ok"), func(c *openai.Config) { c.ShortCallIDs = true })
	call, result := fmt.Sprint(at(list, 0, "tool_calls", 0, "id")), at(list, 1, "tool_call_id")
	if !regexp.MustCompile(`^[a-zA-Z0-9]{9}$`).MatchString(call) || call != result {
		t.Errorf("call id %v, result id %v", call, result)
	}
}

// Of calls in one message that have one id, each has its own result.
//
// case: WS-L02, loop-13-mistral-id
func TestIDsThatStandTwiceInAMessage(t *testing.T) {
	t.Parallel()
	calls := func(ids ...string) provider.Message {
		m := provider.Message{Role: provider.RoleAssistant}
		for _, id := range ids {
			m.Calls = append(m.Calls, provider.Call{ID: id, ModelID: "call_1", Name: "f", Arguments: "{}"})
		}
		return m
	}
	result := func(id string) provider.Message {
		return provider.Message{Role: provider.RoleTool, ToolCallID: id, Text: id}
	}
	history := []provider.Message{calls("u-1-0", "u-1-1", "u-1-2"), result("u-1-0"), result("u-1-1"), result("u-1-2"), calls("u-2-0"), result("u-2-0")}
	for _, short := range []bool{false, true} {
		list := sentMessages(t, history, func(c *openai.Config) { c.ShortCallIDs = short })
		seen := map[any]bool{}
		for i := range 3 {
			id := at(list, 0, "tool_calls", i, "id")
			if seen[id] || at(list, 1+i, "tool_call_id") != id {
				t.Errorf("call %d has id %v, its result %v", i, id, at(list, 1+i, "tool_call_id"))
			}
			seen[id] = true
		}
		if first := at(list, 0, "tool_calls", 0, "id"); at(list, 4, "tool_calls", 0, "id") != first || at(list, 5, "tool_call_id") != first {
			t.Errorf("in a later message the model's id is %v", at(list, 4, "tool_calls", 0, "id"))
		}
	}
}

func caseNullContent(t *testing.T, _ testCase) {
	list := sentMessages(t, append(callAndResult("a", "{}", "ok"), provider.Message{Role: provider.RoleAssistant}))
	if got, ok := list[0].(map[string]any)["content"]; got != nil || !ok {
		t.Errorf("content beside calls is %v", got)
	}
	if got := at(list, 2, "content"); got != "" {
		t.Errorf("content without calls is %v", got)
	}
}
