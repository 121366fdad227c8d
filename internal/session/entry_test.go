package session_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// reread gives an entry as it comes back from a revision.
func reread(t testing.TB, e session.Entry) session.Entry {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var out session.Entry
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFramesAreNumberedAndRepeatable(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("go"))
	o := l.take("o")
	ids := l.assistant(o, "a", "b")
	if _, err := l.result(o, ids[0], `{"n":1.0,"big":12345678901234567890}`); err != nil {
		t.Fatal(err)
	}
	for i, e := range l.entries {
		fs := e.Frames()
		for k, f := range fs {
			if f.Entry != uint64(i+1) || f.Part != k+1 || f.Last != (k == len(fs)-1) || f.TS == 0 || f.ID == "" {
				t.Errorf("entry %d frame %d: %+v", i+1, k, f)
			}
		}
		for _, limit := range []int{1, 200, 1 << 20} {
			first, again := e.Wire(limit), rereadWire(t, e, limit)
			if diff := cmp.Diff(first, again); diff != "" {
				t.Errorf("entry %d, limit %d: published again (-first +again):\n%s", i+1, limit, diff)
			}
		}
	}
}

func rereadWire(t *testing.T, e session.Entry, limit int) [][]byte {
	t.Helper()
	again := reread(t, e)
	return again.Wire(limit)
}

func TestWireKeepsToTheLimit(t *testing.T) {
	t.Parallel()
	l := started(t)
	head := l.head()
	whole := bytes.Join(head.Wire(1<<20), nil)
	for _, limit := range []int{1, 100, 300} {
		parts := head.Wire(limit)
		for _, p := range parts {
			m, err := frames.Decode(p)
			if err != nil || (len(p) > limit && len(m.Frames) > 1) {
				t.Errorf("limit %d: message of %d bytes and %d frames, %v", limit, len(p), len(m.Frames), err)
			}
		}
		if !bytes.Equal(bytes.Join(parts, nil), whole) {
			t.Errorf("limit %d: other frames", limit)
		}
	}
}

// A result that has no JSON form still has its frame for a JSON client.
func TestWireWithoutJSONForm(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	in := l.message(frames.Param("workspace", "demo"), frames.Param("task", "t"), frames.Param("model", "a/b"), frames.Start(), frames.Text("go"))
	in.Encoding = frames.JSON
	l.must(applying(in))
	o := l.take("o")
	ids := l.assistant(o, "a")
	nan := frames.Value(map[string]any{"details": []any{nan()}})
	l.must(func(s *session.State) ([]session.Change, error) {
		return s.Result(o, session.Outcome{CallID: ids[0], Content: nan})
	})
	head := l.head()
	m, err := frames.Decode(head.Wire(1 << 20)[0])
	if err != nil || m.Frames[0].ToolCallID != ids[0] || m.Frames[0].Entry == 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

// An assistant that says nothing has a frame all the same: it is the answer.
func TestEmptyAnswer(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("go"))
	o := l.take("o")
	same(t, l.must(func(s *session.State) ([]session.Change, error) {
		return s.Assistant(o, session.Answer{Message: provider.Message{Thinking: []provider.Thinking{{Signature: "s", Redacted: true}}}})
	}), "THINKING", "assistant: ", "state idle 1")
}

func TestToolMessage(t *testing.T) {
	t.Parallel()
	image := frames.Result(&frames.ToolResult{Parts: []frames.Part{{Type: "image", MediaType: "image/png", Data: []byte{1}}}})
	failed := frames.FailedResult(frames.NewError(frames.CodeExecution, "exit 1").With(func(e *frames.Error) { e.LLMMessage = "it failed" }))
	for _, c := range []struct {
		content frames.Raw
		want    provider.Message
	}{
		{content(`{"a":1}`), provider.Message{Text: `{"a":1}`}},
		{image.Content, provider.Message{Parts: []provider.Part{{Type: provider.PartImage, MediaType: "image/png", Data: []byte{1}}}}},
		{failed.Content, provider.Message{Text: "it failed", IsError: true}},
	} {
		c.want.Role, c.want.ToolCallID = provider.RoleTool, "c1"
		if diff := cmp.Diff(c.want, session.ToolMessage("c1", c.content)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
