package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

func values(pairs ...string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return out
}

// contract: P71
func TestParams(t *testing.T) {
	t.Parallel()
	got, err := engine.ParseParams(values(
		"model", `"openai/org/gpt"`, "messages", `[{"role":"user","content":"hi"}]`, "systemPrompt", `"be kind"`,
		"tools", `["read_*","run?"]`, "toolChoice", `"required"`, "tool_choice", `"none"`, "maxIterations", `3.0`, "maxCalls", `0`,
		"maxTokens", `1e3`, "maxDurationMs", `1500`, "temperature", `0.50`, "top_p", `{"a":1}`, "workspace", `"w"`,
		"task", `"of a session"`, "maxTurns", `7`,
	))
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Params{
		Model: "openai/org/gpt", Messages: []provider.Message{{Role: provider.RoleUser, Text: "hi"}}, SystemPrompt: "be kind",
		Tools: engine.Patterns{"read_*", "run?"}, ToolChoice: provider.ToolChoice{Mode: provider.ChoiceRequired},
		MaxIterations: new(3), FinalSystemPrompt: engine.FinalPrompt, MaxCalls: new(0), MaxTokens: 1000,
		MaxDuration: 1500 * time.Millisecond, Workspace: "w",
		Settings: values("temperature", `0.50`, "top_p", `{"a":1}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParamsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	got, err := engine.ParseParams(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.MaxIterations != nil || got.MaxCalls != nil || got.FinalSystemPrompt != engine.FinalPrompt || got.Tools != nil {
		t.Errorf("got %+v", got)
	}
	if n := *got.WithIterations(50).MaxIterations; n != 50 {
		t.Errorf("default of maxIterations: %d", n)
	}
	if n := *(engine.Params{MaxIterations: new(0)}).WithIterations(50).MaxIterations; n != 0 {
		t.Errorf("0 is a limit, not the default: %d", n)
	}
}

func TestBadParamsNameTheirKey(t *testing.T) {
	t.Parallel()
	for key, bad := range map[string][]string{
		"model":             {`"gpt"`, `7`, `null`},
		"messages":          {`{}`, `[{"role":"boss"}]`},
		"systemPrompt":      {`7`, `null`},
		"finalSystemPrompt": {`[]`},
		"workspace":         {`1`},
		"tools":             {`"read"`, `null`, `[1]`, `["a b"]`, `["[a]"]`, `[""]`, `[{"name":"f"}]`},
		"toolChoice":        {`"sometimes"`, `7`},
		"maxIterations":     {`-1`, `1.5`, `"3"`, `null`, `1e99`},
		"maxCalls":          {`-1`, `true`},
		"maxTokens":         {`-5`},
		"maxDurationMs":     {`"1s"`},
		"temperature":       {`"hot"`, `-1`, `null`},
		"top_p":             {`{`},
	} {
		for _, value := range bad {
			err := engine.CheckParam(key, json.RawMessage(value))
			e := frames.AsError(err)
			if e == nil || e.Code != frames.CodeValidationInput || !strings.HasPrefix(e.Message, "PARAM "+key+": ") {
				t.Errorf("%s = %s: %v", key, value, err)
			}
			if _, err := engine.ParseParams(values(key, value)); err == nil {
				t.Errorf("%s = %s was taken", key, value)
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns engine.Patterns
		name     string
		want     bool
	}{
		{nil, "f", true}, {engine.Patterns{}, "f", false}, {engine.Patterns{"f"}, "f", true}, {engine.Patterns{"f"}, "ff", false},
		{engine.Patterns{"*"}, "f", true}, {engine.Patterns{"read_*", "x"}, "read_file", true}, {engine.Patterns{"?"}, "ff", false},
	} {
		if got := c.patterns.Match(c.name); got != c.want {
			t.Errorf("%q of %q: %v", c.name, c.patterns, got)
		}
	}
}
