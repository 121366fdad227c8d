package session_test

import (
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

func response(content string, calls ...any) frames.Frame {
	return frames.Data(map[string]any{"type": "llm-response", "content": content, "thinking": "hm", "toolCalls": calls})
}

// contract: G25, G30, G31, G38, G57
func TestDrivenFromOutside(t *testing.T) {
	t.Parallel()
	l := outside(t, frames.Param("toolExecution", "client"))
	same(t, l.input(frames.Text("go")), "user: go", "state thinking 1")
	fs := l.input(response("calling", map[string]any{"id": "mine", "tool": "echo", "arguments": map[string]any{"text": "hi"}},
		map[string]any{"tool": "echo", "arguments": map[string]any{}}))
	a, b := "uid-3-0", "uid-3-1"
	same(t, fs, "THINKING", "assistant: calling", "call "+a+" echo", "call "+b+" echo", "state waiting 1")

	result := func(id string) frames.Frame {
		return frames.Data(map[string]any{"type": "tool-result", "callId": id, "result": map[string]any{"echo": "hi"}})
	}
	same(t, l.input(result("mine")), "result "+a+` {"echo":"hi"}`, "progress tool-completed")
	if fs := l.input(result("mine")); frames.CodeOf(fs[0].Err()) != frames.CodeConflict {
		t.Errorf("a second result: %s", summary(fs))
	}
	failed := frames.Data(map[string]any{"type": "tool-result", "toolCallId": b, "error": "broken"})
	fs = l.input(failed)
	same(t, fs, "result "+b+" EXECUTION", "progress tool-completed", "state thinking 1")
	if status, _ := fs[1].Content.Lookup("status").Text(); status != "error" {
		t.Errorf("status %q", status)
	}
	same(t, l.input(response("done")), "THINKING", "assistant: done", "state idle 1")
	if got := l.conversation(); got != `system user assistant(2) tool {"echo":"hi"} tool broken assistant(0)` {
		t.Errorf("conversation: %s", got)
	}
}

// A result that is no JSON is refused, and the call waits for one that is.
//
// case: res-01-nan
func TestOutsideResultsThatAreNoJSON(t *testing.T) {
	t.Parallel()
	l := outside(t, frames.Param("toolExecution", "client"))
	l.input(frames.Text("go"))
	l.input(response("", map[string]any{"tool": "echo"}))
	for _, text := range []string{`{"mean":NaN}`, `{"a":1`, `{"a":1,"a":2}`} {
		fs := l.input(frames.NewFrame(frames.TypeToolResult, map[string]any{"resultJson": text}, frames.WithCall("uid-3-0", "echo")))
		if frames.CodeOf(fs[0].Err()) != frames.CodeValidationOutput || len(l.state().Pending) != 1 {
			t.Errorf("%s: %s", text, summary(fs))
		}
	}
	fs := l.input(frames.NewFrame(frames.TypeToolResult, map[string]any{"resultJson": `{"mean":1.0}`}, frames.WithCall("uid-3-0", "echo")))
	same(t, fs, `result uid-3-0 {"mean":1.0}`, "progress tool-completed", "state thinking 1")
}

func TestOutsideRefused(t *testing.T) {
	t.Parallel()
	mesh, idle, open := started(t), outside(t), outside(t)
	mesh.input(frames.Text("go"))
	open.input(frames.Text("go"))
	for name, c := range map[string]struct {
		l    *life
		f    frames.Frame
		code frames.Code
	}{
		"a model drives it":     {mesh, response("x"), frames.CodeConflict},
		"no turn runs":          {idle, response("x"), frames.CodeConflict},
		"a call without a name": {open, response("x", map[string]any{"id": "1"}), frames.CodeValidationInput},
	} {
		before := c.l.state().Status
		fs := c.l.input(c.f)
		if got := frames.CodeOf(fs[0].Err()); got != c.code || c.l.state().Status != before {
			t.Errorf("%s: %s, status %s", name, summary(fs), c.l.state().Status)
		}
	}
}

// END waits for the results that clients owe; a cancelled turn gives them itself.
func TestOutsideEndAndCancel(t *testing.T) {
	t.Parallel()
	l := outside(t, frames.Param("toolExecution", "client"))
	l.input(frames.Text("go"))
	l.input(response("", map[string]any{"tool": "echo"}))
	same(t, l.input(frames.End("")), "meta")
	same(t, l.input(frames.NewFrame(frames.TypeCancel, nil)), "result uid-3-0 CANCELLED", "state cancelled 1", "END cancelled")
}
