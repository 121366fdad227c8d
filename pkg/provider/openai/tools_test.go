package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/openai"
)

const searchSchema = `{"type":"object","properties":{"q":{"type":"string"},"limit":{"type":"integer"},"cursor":{"type":["string","null"]}},"required":["q"]}`

// A call comes back under the tool's own name and with its own arguments, and goes
// out again, as part of the past, under the name that the model knows.
//
// contract: W22, B28
// case: arg-14-null-for-optional, exp-01-openai-name
func TestToolsAreMappedAndBack(t *testing.T) {
	t.Parallel()
	req := &provider.Request{
		Model: "m", Tools: []provider.Tool{{Name: "google.search", Schema: json.RawMessage(searchSchema)}, {Name: "google_search"}},
		ToolChoice: provider.ToolChoice{Mode: provider.ChoiceTool, Name: "google.search"},
		Settings:   map[string]json.RawMessage{"strictTools": json.RawMessage("true")},
	}
	body := sent(t, req)
	wire, _ := at(body, "tools", 0, "function", "name").(string)
	if wire == "google.search" || wire == "google_search" || at(body, "tools", 1, "function", "name") != "google_search" {
		t.Fatalf("tools %v", body["tools"])
	}
	if at(body, "tool_choice", "function", "name") != wire || at(body, "tools", 0, "function", "strict") != true || body["strictTools"] != nil {
		t.Errorf("body %v", body)
	}
	s := serve(t, sseAnswer(data(
		delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":%q,"arguments":"{\"limit\":null,\"q\":1.0,"}}]}`, wire),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":"\"cursor\":null}"}},{"index":1,"id":"b","function":{"name":"google_search"}}]}`),
		finish("tool_calls"))...))
	turn, err := provider.Collect(s.provider().Stream(t.Context(), req))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := calls(turn), "a google.search {\"q\":1.0,\"cursor\":null}\nb google_search {}"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	req.Messages = []provider.Message{turn.Message()}
	if got := at(sent(t, req), "messages", 0, "tool_calls", 0, "function", "name"); got != wire {
		t.Errorf("in the past it is called %v", got)
	}
}

// contract: S34
func TestStrictIsWrittenWhenChosen(t *testing.T) {
	t.Parallel()
	no := false
	for setting, want := range map[string][]any{"": {nil, false}, "null": {nil, false}, "true": {true, false}, "false": {false, false}} {
		req := &provider.Request{Model: "m", Tools: []provider.Tool{{Name: "a"}, {Name: "b", Strict: &no}}}
		if setting != "" {
			req.Settings = map[string]json.RawMessage{"strictTools": json.RawMessage(setting)}
		}
		body := sent(t, req)
		for i, w := range want {
			if got := at(body, "tools", i, "function", "strict"); got != w {
				t.Errorf("%q: strict of tool %d is %v, want %v", setting, i, got, w)
			}
		}
	}
	req := &provider.Request{Model: "m", Settings: map[string]json.RawMessage{"strictTools": json.RawMessage(`"yes"`)}}
	if _, err := provider.Collect(fake(t, nil).Stream(t.Context(), req)); frames.CodeOf(err) != frames.CodeValidationInput {
		t.Errorf("a setting that is neither: %v", err)
	}
}

// case: exp-17-tool-count
func TestTooManyToolsAreNotSent(t *testing.T) {
	t.Parallel()
	req := &provider.Request{Model: "m"}
	for i := range 129 {
		req.Tools = append(req.Tools, provider.Tool{Name: fmt.Sprint("t", i)})
	}
	s := serve(t, sseAnswer(data(finish("stop"))...))
	_, err := provider.Collect(s.provider().Stream(t.Context(), req))
	if frames.CodeOf(err) != frames.CodeTooLarge || !strings.Contains(err.Error(), "openai: 129 tools, more than the limit of 128") || len(s.bodies) != 0 {
		t.Errorf("%v, %d requests", err, len(s.bodies))
	}
	if list, _ := sent(t, req, func(c *openai.Config) { c.MaxTools = -1 })["tools"].([]any); len(list) != 129 {
		t.Errorf("without a bound %d are sent", len(list))
	}
}
