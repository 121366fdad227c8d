package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// assistant commits an answer with one call of each tool and gives their ids. A
// tool named "own…" is the client's.
func (l *life) assistant(o session.Owner, tools ...string) []string {
	l.t.Helper()
	var a session.Answer
	for _, name := range tools {
		a.Message.Calls = append(a.Message.Calls, provider.Call{ModelID: "m-" + name, Name: name, Arguments: `{"x":1}`})
		a.Calls = append(a.Calls, session.PendingCall{Identity: "local", Replay: "unsafe", Outside: name[:1] == "o"})
	}
	l.must(func(s *session.State) ([]session.Change, error) { return s.Assistant(o, a) })
	ids := make([]string, 0, len(l.state().Pending))
	for _, c := range l.state().Pending {
		ids = append(ids, c.ID)
	}
	return ids
}

func content(result string) frames.Raw {
	f := frames.Result(&frames.ToolResult{Result: []byte(result)})
	return f.Content
}

func (l *life) result(o session.Owner, id, result string) ([]frames.Frame, error) {
	e, _, err := l.do(func(s *session.State) ([]session.Change, error) {
		return s.Result(o, session.Outcome{CallID: id, Content: content(result)})
	})
	return e.Frames(), err
}

// contract: G30, G31, G32, G33, B46
func TestRound(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("go"))
	o := l.take("o")
	epoch := l.state().Epoch
	fs := l.must(func(s *session.State) ([]session.Change, error) {
		return s.Assistant(o, session.Answer{
			Message: provider.Message{
				Thinking: []provider.Thinking{{Text: "hm", Signature: "sig"}}, Text: "reading",
				Calls: []provider.Call{{ModelID: "toolu_1", Name: "read_file", Arguments: `{"path":"a"}`}, {ModelID: "toolu_1", Name: "read_file", Arguments: `{"path":"b"}`}},
			},
			Calls: []session.PendingCall{{Identity: "local", Replay: "safe"}, {}},
			Usage: provider.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15},
		})
	})
	a, b := "uid-4-0", "uid-4-1"
	same(t, fs, "THINKING", "assistant: reading", "call "+a+" read_file", "call "+b+" read_file", "meta", "state executing 1")
	for _, f := range fs {
		if f.Epoch != epoch || f.Entry != 4 {
			t.Errorf("%s: epoch %d, entry %d", f.Type, f.Epoch, f.Entry)
		}
		if f.Type == frames.TypeToolCall && f.Metadata.Get("modelCallId") != nil {
			t.Error("the provider's id goes to clients")
		}
	}
	if args, err := fs[2].Arguments(); err != nil || string(args) != `{"path":"a"}` {
		t.Errorf("arguments %s, %v", args, err)
	}
	want := []session.PendingCall{{ID: a, Name: "read_file", Identity: "local", Replay: "safe"}, {ID: b, Name: "read_file"}}
	if diff := cmp.Diff(want, l.state().Pending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}

	// The second call ends first; the model sees the results in its own order.
	fs, err := l.result(o, b, `"B"`)
	if err != nil {
		t.Fatal(err)
	}
	same(t, fs, "result "+b+` "B"`)
	if stream := fs[0].StreamID; stream != fmt.Sprintf("uid-%d-0", epoch) {
		t.Errorf("stream %q is not that of the model request", stream)
	}
	fs = l.must(func(s *session.State) ([]session.Change, error) {
		done, err := s.Result(o, session.Outcome{CallID: a, Content: content(`"A"`)})
		if err != nil {
			return nil, err
		}
		next, err := s.NextRound(o)
		return append(done, next...), err
	})
	same(t, fs, "result "+a+` "A"`, "state thinking 1")
	fs = l.must(func(s *session.State) ([]session.Change, error) {
		return s.Assistant(o, session.Answer{Message: provider.Message{Text: "done"}, Usage: provider.Usage{TotalTokens: 5}})
	})
	same(t, fs, "assistant: done", "meta", "state idle 1")
	if u := l.state().Usage; u.Requests != 2 || u.Calls != 2 || u.TotalTokens != 20 {
		t.Errorf("usage %+v", u)
	}
	if got := l.conversation(); got != `system user assistant(2) tool "A" tool "B" assistant(0)` {
		t.Errorf("conversation: %s", got)
	}
}

// case: WS-H03
func TestFirstResultWins(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("go"))
	o := l.take("o")
	ids := l.assistant(o, "a", "b")
	if _, err := l.result(o, ids[0], "1"); err != nil {
		t.Fatal(err)
	}
	before := len(l.entries)
	for _, id := range []string{ids[0], "uid-9-9", ""} {
		if _, err := l.result(o, id, "2"); frames.CodeOf(err) != frames.CodeConflict {
			t.Errorf("result of %q: %v, want CONFLICT", id, err)
		}
	}
	if len(l.entries) != before {
		t.Error("a refused result was written")
	}
	if _, _, err := l.do(func(s *session.State) ([]session.Change, error) { return s.NextRound(o) }); frames.CodeOf(err) != frames.CodeConflict {
		t.Errorf("next round with a call pending: %v", err)
	}
	// A client's result does not count for a call of the mesh.
	fs := l.input(frames.Result(&frames.ToolResult{}, frames.WithCall(ids[1], "b")))
	if frames.CodeOf(fs[0].Err()) != frames.CodeConflict {
		t.Errorf("a client answered a call of the mesh: %s", summary(fs))
	}
}

// case: WS-H01, WS-H02
func TestTakeOver(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("go"))
	old := l.take("old")
	ids := l.assistant(old, "a", "b", "c")
	epoch := l.state().Epoch
	now := l.take("new")
	if l.state().Epoch != epoch+1 {
		t.Error("a take-over begins no new epoch")
	}
	for name, tr := range oldMoves(old, ids[0]) {
		if _, changed, err := l.do(tr); !errors.Is(err, session.ErrLostOwner) || changed {
			t.Errorf("%s by the old owner: changed %v, %v", name, changed, err)
		}
	}
	gone := frames.NewError(frames.CodeInterrupted, "the tool died")
	fs := l.must(func(s *session.State) ([]session.Change, error) { return s.Interrupt(now, gone, ids[1], "unknown") })
	same(t, fs, "result "+ids[1]+" INTERRUPTED")
	fs = l.must(func(s *session.State) ([]session.Change, error) {
		rest, err := s.Interrupt(now, gone)
		if err != nil {
			return nil, err
		}
		next, err := s.NextRound(now)
		return append(rest, next...), err
	})
	same(t, fs, "result "+ids[0]+" INTERRUPTED", "result "+ids[2]+" INTERRUPTED", "state thinking 1")
	if got := l.conversation(); got != "system user assistant(3) tool the tool died tool the tool died tool the tool died" {
		t.Errorf("conversation: %s", got)
	}
}

func oldMoves(old session.Owner, call string) map[string]session.Transition {
	return map[string]session.Transition{
		"Assistant": func(s *session.State) ([]session.Change, error) { return s.Assistant(old, session.Answer{}) },
		"Result": func(s *session.State) ([]session.Change, error) {
			return s.Result(old, session.Outcome{CallID: call, Content: content("1")})
		},
		"Interrupt": func(s *session.State) ([]session.Change, error) {
			return s.Interrupt(old, frames.NewError(frames.CodeInterrupted, "gone"))
		},
		"NextRound": func(s *session.State) ([]session.Change, error) { return s.NextRound(old) },
		"EndTurn":   func(s *session.State) ([]session.Change, error) { return s.EndTurn(old, frames.EndCompleted, nil) },
		"Release":   func(s *session.State) ([]session.Change, error) { return s.Release(old, 1, nil) },
	}
}

func TestTakeNeedsWork(t *testing.T) {
	t.Parallel()
	take := func(s *session.State) ([]session.Change, error) { return s.Take(session.Owner{Nonce: "o"}) }
	idle, driven := started(t), outside(t)
	driven.input(frames.Text("go"))
	for name, l := range map[string]*life{"idle": idle, "driven from outside": driven} {
		if _, _, err := l.do(take); frames.CodeOf(err) != frames.CodeConflict || errors.Is(err, session.ErrLostOwner) {
			t.Errorf("%s: %v, want CONFLICT", name, err)
		}
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("go"))
	o := l.take("o")
	release := func(s *session.State) ([]session.Change, error) { return s.Release(o, 42, nil) }
	if _, _, err := l.do(release); frames.CodeOf(err) != frames.CodeConflict {
		t.Errorf("released with work to do: %v", err)
	}
	fs := l.must(func(s *session.State) ([]session.Change, error) {
		over, err := s.Assistant(o, session.Answer{Message: provider.Message{Text: "ok"}})
		if err != nil {
			return nil, err
		}
		gone, err := s.Release(o, 42, nil)
		return append(over, gone...), err
	})
	same(t, fs, "assistant: ok", "state idle 1")
	if s := l.state(); s.Owner != nil || s.Job != 42 {
		t.Errorf("owner %v, job %d", s.Owner, s.Job)
	}
	if _, _, err := l.do(release); !errors.Is(err, session.ErrLostOwner) {
		t.Errorf("released twice: %v", err)
	}
	l.input(frames.End(""))
	if _, changed, err := l.do(release); changed || err != nil {
		t.Errorf("released a closed session: changed %v, %v", changed, err)
	}
}

// contract: G9, B55
func TestWaitingForClients(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("go"))
	o := l.take("o")
	ids := l.assistant(o, "own_1", "read")
	release := func(s *session.State) ([]session.Change, error) { return s.Release(o, 1, nil) }
	if _, _, err := l.do(release); frames.CodeOf(err) != frames.CodeConflict {
		t.Errorf("released while the mesh runs a call: %v", err)
	}
	if _, err := l.result(o, ids[1], "1"); err != nil {
		t.Fatal(err)
	}
	same(t, l.must(release), "state waiting 1")
	if l.state().Work() {
		t.Error("waiting is work")
	}
	same(t, l.input(frames.Result(&frames.ToolResult{Result: []byte("7")}, frames.WithCall(ids[0], "own_1"))),
		"result "+ids[0]+" 7", "progress tool-completed", "state executing 1") // a loop closes the round
	if !l.state().Work() {
		t.Error("no work after the last result")
	}
}

// conversation writes the history short.
func (l *life) conversation() string {
	l.t.Helper()
	log := session.NewMemory()
	var last uint64
	for _, e := range l.entries {
		last = appendEntry(l.t, log, e, last)
	}
	messages, err := session.NewStore(log).Messages(context.Background(), key)
	if err != nil {
		l.t.Fatal(err)
	}
	return conversationOf(l.t, messages)
}

func conversationOf(t tb, messages []provider.Message) string {
	t.Helper()
	out := ""
	for _, m := range messages {
		switch m.Role {
		case provider.RoleAssistant:
			out += fmt.Sprintf(" assistant(%d)", len(m.Calls))
		case provider.RoleTool:
			out += " tool " + m.Content()
		default:
			out += " " + string(m.Role)
		}
	}
	return out[1:]
}
