package session_test

import (
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: G11, G43, G12
func TestParams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key   string
		value any
		want  string // begins the error; empty: taken
	}{
		{"model", "openai/gpt/x", ""},
		{"model", "gpt", "VALIDATION_INPUT: PARAM model: model \"gpt\" does not name"},
		{"model", 3, "VALIDATION_INPUT: PARAM model: must be a text"},
		{"workspace", "", "VALIDATION_INPUT: PARAM workspace: must be a text"},
		{"sessionId", "s2", "VALIDATION_INPUT: PARAM sessionId: \"s2\" is not this session"},
		{"maxTurns", -1, "VALIDATION_INPUT: PARAM maxTurns: must be a whole number"},
		{"maxTurns", "7", "VALIDATION_INPUT: PARAM maxTurns: must be a whole number"},
		{"maxIterations", 0, ""},
		{"maxIterations", 1.5, "VALIDATION_INPUT: PARAM maxIterations: must be a whole number"},
		{"tools", []string{"read_*"}, ""},
		{"tools", "read", "VALIDATION_INPUT: PARAM tools: must be a list"},
		{"toolChoice", "auto", ""},
		{"toolChoice", "sometimes", "VALIDATION_INPUT: PARAM toolChoice: tool choice"},
		{"toolExecution", "client", ""},
		{"toolExecution", "nobody", "VALIDATION_INPUT: PARAM toolExecution: \"nobody\" is not one of mesh, client"},
		{"approval", "deny", ""},
		{"messages", []any{map[string]any{"role": "user", "content": "hi"}}, ""},
		{"messages", []any{map[string]any{"role": "boss"}}, "VALIDATION_INPUT: PARAM messages: messages[0]: role \"boss\""},
		{"temperature", 0.5, ""},
		{"reasoning_effort", "low", ""},
		{"tool", map[string]any{"name": "x"}, ""},
		{"register-tool", map[string]any{"name": "x", "schema": map[string]any{"type": "object"}}, ""},
		{"tool", "x", "VALIDATION_INPUT: PARAM tool: must be a tool's declaration"},
		{"tool", []any{}, "VALIDATION_INPUT: PARAM tool: must be a tool's declaration"},
		{"tool", map[string]any{"name": "a b"}, "VALIDATION_INPUT: PARAM tool: tool declaration refused: /name"},
		{"register-tool", map[string]any{"name": "x", "schema": map[string]any{"type": 7}}, "VALIDATION_INPUT: PARAM register-tool: "},
		{"tool", map[string]any{"name": "x", "schema": map[string]any{"type": "string"}}, "VALIDATION_INPUT: PARAM tool: "},
		{"tool", map[string]any{"name": "x", "outputSchemaJson": "{"}, "VALIDATION_INPUT: PARAM tool: "},
		{"tool", map[string]any{"name": "x", "schemaJson": `{"x":"` + strings.Repeat("x", frames.MaxSchema) + `"}`}, "TOO_LARGE: PARAM tool: "},
		{"", "x", "VALIDATION_INPUT: PARAM key of 0 bytes"},
		{"task", nil, "VALIDATION_INPUT: PARAM task: has no value"},
	} {
		l := newLife(t)
		fs := l.input(frames.Param(c.key, c.value))
		got := ""
		if fs[0].Type == frames.TypeError {
			got = fs[0].Err().Error()
		}
		if !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("PARAM %s %v: error %q, want %q", c.key, c.value, got, c.want)
		}
	}
}

func TestParamsOfStartAreFixed(t *testing.T) {
	t.Parallel()
	l := started(t)
	for _, key := range []string{"workspace", "task", "nodeId", "systemPrompt", "messages"} {
		fs := l.input(frames.Param(key, "other"))
		if err := fs[0].Err(); frames.CodeOf(err) != frames.CodeConflict {
			t.Errorf("PARAM %s after START: %v, want CONFLICT", key, err)
		}
	}
	l.input(frames.Param("model", "scripted/other"))
	if got := l.state().Model(); got != "scripted/other" {
		t.Errorf("model %q", got)
	}
}

func TestEarlierMessages(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	fs := l.input(frames.Param("workspace", "demo"), frames.Param("task", "look"),
		frames.Param("messages", []any{
			map[string]any{"role": "user", "content": "before"},
			map[string]any{"role": "assistant", "content": "said"},
		}), frames.Start())
	same(t, fs, "START", "progress initialized", "state idle 0")
	head := l.head()
	history := head.Messages()
	roles := make([]string, 0, len(history))
	for _, m := range history {
		roles = append(roles, string(m.Role)+" "+m.Text)
	}
	if got := strings.Join(roles, ", "); got != "system Task: look, user before, assistant said" {
		t.Errorf("history: %s", got)
	}
	if _, kept := l.state().Params["messages"]; kept {
		t.Error("the messages stay in the state")
	}
}
