package session_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

func same(t *testing.T, got []frames.Frame, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, summary(got)); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

// contract: G15, G16, G21, G24, B44
func TestBeforeStart(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	same(t, l.input(frames.Start()),
		"ERROR CONFLICT: Workspace not configured. Send PARAM(workspace, path) first. for in1")
	same(t, l.input(frames.Param("workspace", "demo")), "meta")
	same(t, l.input(frames.Start()),
		"ERROR CONFLICT: Task not configured. Send PARAM(task, description) first. for in3")
	for i, f := range []frames.Frame{
		frames.Text("hello"), frames.Data(map[string]any{"type": "llm-response"}), frames.NewFrame(frames.TypeToolResult, map[string]any{}),
	} {
		same(t, l.input(f),
			fmt.Sprintf("ERROR CONFLICT: Harness not initialized. Send START frame first. for in%d", i+4))
	}
	if l.state().Status != session.Idle {
		t.Errorf("status %s, want idle: the session stays open", l.state().Status)
	}
}

// contract: G10, G14, G17, G18, G19
func TestStart(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	fs := l.input(frames.Param("workspace", "demo"), frames.Param("task", "look"), frames.Param("nodeId", "n1"),
		frames.Param("sessionId", "s1"), frames.Param("maxTurns", 7.0), frames.Param("systemPrompt", "Be brief."), frames.Start())
	same(t, fs, "START", "progress initialized", "state idle 0")

	meta := map[string]string{}
	for _, f := range fs[0].Metadata {
		meta[f.Key], _ = f.Value.Text()
	}
	want := map[string]string{"phase": "task-execution", "workspace": "demo", "task": "look", "nodeId": "n1", "sessionId": "s1"}
	if diff := cmp.Diff(want, meta); diff != "" {
		t.Errorf("START metadata (-want +got):\n%s", diff)
	}
	progress, err := fs[1].Content.JSON()
	if want := `{"maxTurns":7,"operation":"initialized","task":"look","workspace":"demo"}`; err != nil || string(progress) != want {
		t.Errorf("progress = %s, %v, want %s", progress, err, want)
	}
	head := l.head()
	system := head.Messages()
	if len(system) != 1 || system[0].Role != provider.RoleSystem || system[0].Text != "Be brief.\n\nTask: look" {
		t.Errorf("history = %+v", system)
	}
}

// contract: G17, B42
func TestSecondStart(t *testing.T) {
	t.Parallel()
	l := started(t)
	before := l.state()
	same(t, l.input(frames.Start()), "ERROR CONFLICT: the session has started already for in5")
	if l.state().CurrentTurn != before.CurrentTurn || len(l.entries[1].Messages()) != 0 {
		t.Error("a second START changed the session")
	}
}

// contract: G22, G23, G29, G35
func TestUnknown(t *testing.T) {
	t.Parallel()
	l := started(t)
	same(t, l.input(frames.Data(map[string]any{"type": "nonsense"})), "ERROR BAD_FRAME: Unknown data type: nonsense for in5")
	same(t, l.input(frames.Data(map[string]any{"x": 1})), "ERROR BAD_FRAME: DATA frame missing type for in6")
	same(t, l.input(frames.Describe("")), "ERROR BAD_FRAME: Unknown frame type: DESCRIBE for in7")
	same(t, l.input(frames.NewFrame("NONSENSE", nil)), "ERROR BAD_FRAME: Unknown frame type: NONSENSE for in8")
	same(t, l.input(frames.Text("go on")), "user: go on", "state thinking 1")
}

// contract: G2, G20, B43, G34
// case: WS-H09
func TestExactTurns(t *testing.T) {
	t.Parallel()
	for _, turns := range []int{1, 2, 10} {
		l := started(t, frames.Param("maxTurns", turns))
		for i := range turns {
			same(t, l.input(frames.Text("go")), "user: go", fmt.Sprintf("state thinking %d", i+1))
			o := l.take(fmt.Sprint("o", i))
			l.must(func(s *session.State) ([]session.Change, error) {
				return s.Assistant(o, session.Answer{Message: provider.Message{Text: "done"}})
			})
		}
		fs := l.input(frames.Text("one more"))
		same(t, fs, "progress max-turns-reached", fmt.Sprintf("state done %d", turns), "END max_turns")
		content, _ := fs[0].Content.JSON()
		if want := fmt.Sprintf(`{"currentTurn":%d,"maxTurns":%d,"operation":"max-turns-reached"}`, turns, turns); string(content) != want {
			t.Errorf("content %s, want %s", content, want)
		}
	}
	fresh := session.New(key, "uid", clock)
	if fresh.MaxTurns != 100 {
		t.Errorf("default of maxTurns is %d, want 100", fresh.MaxTurns)
	}
}

// contract: G11
func TestMaxTurnsLater(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("one"))
	o := l.take("o")
	l.must(func(s *session.State) ([]session.Change, error) { return s.Assistant(o, session.Answer{}) })
	l.input(frames.Text("two"))
	same(t, l.input(frames.Param("maxTurns", 0)), "ERROR VALIDATION_INPUT: PARAM maxTurns: must be at least 1 for in7")
	same(t, l.input(frames.Param("maxTurns", 1)), "ERROR VALIDATION_INPUT: PARAM maxTurns: 1 is below the 2 turns that were used for in8")
	l.input(frames.Param("maxTurns", 2))
	l.must(func(s *session.State) ([]session.Change, error) { return s.EndTurn(o, frames.EndCompleted, nil) })
	same(t, l.input(frames.Text("three")), "progress max-turns-reached", "state done 2", "END max_turns")
}

// case: WS-H10
func TestQueue(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("0"))
	for i := range session.MaxQueued {
		same(t, l.input(frames.Text(strconv.Itoa(i+1))), "meta")
	}
	same(t, l.input(frames.Text("over")), "ERROR BUSY: 16 texts wait for the running turn already for in22")
	o := l.take("o")
	for i := range session.MaxQueued {
		fs := l.must(func(s *session.State) ([]session.Change, error) {
			return s.Assistant(o, session.Answer{Message: provider.Message{Text: "ok"}})
		})
		same(t, fs, "assistant: ok", fmt.Sprintf("state idle %d", i+1), fmt.Sprintf("user: %d", i+1), fmt.Sprintf("state thinking %d", i+2))
	}
}

func TestFramesOfOneMessage(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	fs := l.input(frames.Param("workspace", "demo"), frames.Text("early"), frames.Param("task", "look"), frames.Start(), frames.Text("hello"), frames.End(""))
	same(t, fs, "ERROR CONFLICT: Harness not initialized. Send START frame first. for in2",
		"START", "progress initialized", "state idle 0", "user: hello", "state thinking 1")
	if len(l.entries) != 1 || l.state().Close != frames.EndCompleted {
		t.Errorf("%d entries, close %q", len(l.entries), l.state().Close)
	}
}

// contract: G26, B45
func TestEndAndAfter(t *testing.T) {
	t.Parallel()
	l := started(t)
	fs := l.input(frames.End(""))
	same(t, fs, "state done 0", "END completed")
	if phase := fs[1].Metadata.Text("phase"); phase != "task-complete" {
		t.Errorf("phase %q", phase)
	}
	for _, f := range []frames.Frame{frames.End(""), frames.Text("x"), frames.Param("model", "a/b"), frames.Tick(), frames.Abort()} {
		same(t, l.input(f), fmt.Sprintf("ERROR CONFLICT: the session is closed: done for in%d", l.ids))
	}
}

// contract: G34, G37, B55, A30
// case: WS-L03
func TestEndIsHeld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, status, end string
		err                 error
	}{
		{frames.EndCompleted, "done", "completed", nil},
		{frames.EndError, "failed", "error", frames.NewError(frames.CodeUnavailable, "no model")},
		{frames.EndLimit, "done", "limit", frames.NewError(frames.CodeLimit, "rounds")},
	} {
		l := started(t)
		l.input(frames.Text("go"))
		o := l.take("o")
		same(t, l.input(frames.End("")), "meta")
		same(t, l.input(frames.End("")), "meta")
		same(t, l.input(frames.Text("late")), "ERROR CONFLICT: the session closes when its turn is over for in8")
		fs := l.must(func(s *session.State) ([]session.Change, error) { return s.EndTurn(o, c.reason, c.err) })
		want := []string{"state " + c.status + " 1", "END " + c.end}
		if c.err != nil {
			want = append([]string{fmt.Sprintf("ERROR %v for ", c.err)}, want...)
		}
		same(t, fs, want...)
	}
}

func TestHeldEndWaitsForQueue(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("one"), frames.Text("two"), frames.End(""))
	o := l.take("o")
	end := func(s *session.State) ([]session.Change, error) { return s.EndTurn(o, frames.EndCompleted, nil) }
	same(t, l.must(end), "state idle 1", "user: two", "state thinking 2")
	same(t, l.must(end), "state done 2", "END completed")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	l := started(t)
	same(t, l.input(frames.NewFrame(frames.TypeCancel, nil)), "meta") // nothing runs
	l.input(frames.Text("one"))
	first := l.state().Epoch
	same(t, l.input(frames.Text("two")), "meta")
	// Nobody has taken the turn: it ends at once, and the next begins.
	same(t, l.input(frames.NewFrame(frames.TypeCancel, map[string]any{"epoch": first})),
		"state idle 1", "user: two", "state thinking 2")
	// The same again means the turn that is over.
	same(t, l.input(frames.NewFrame(frames.TypeCancel, map[string]any{"epoch": first})), "meta")
	same(t, l.input(frames.NewFrame(frames.TypeCancel, map[string]any{"epoch": 99})),
		"ERROR CONFLICT: no turn has had epoch 99, the newest is 2 for in10")
	same(t, l.input(frames.Cancel("c1", "tool")),
		"ERROR VALIDATION_INPUT: a session's CANCEL names no call, it ends a turn: {epoch} for in11")
	// With an owner it is the owner that ends the turn; each epoch of the turn means it.
	begun := l.state().Epoch
	o := l.take("o")
	same(t, l.input(frames.NewFrame(frames.TypeCancel, map[string]any{"epoch": begun})), "meta")
	if !l.state().Cancel {
		t.Fatal("the owner is not told")
	}
	same(t, l.must(func(s *session.State) ([]session.Change, error) { return s.EndTurn(o, frames.EndCancelled, nil) }), "state idle 2")
	if s := l.state(); s.Cancel || s.Reason != frames.EndCancelled {
		t.Errorf("cancel %v, reason %q after the turn", s.Cancel, s.Reason)
	}
}

// case: WS-H05
func TestAbort(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("one"))
	o := l.take("o")
	calls := l.assistant(o, "a", "b")
	l.input(frames.Text("two"), frames.End(""))
	same(t, l.input(frames.Abort()), "meta")
	if s := l.state(); !s.Cancel || s.Close != frames.EndCancelled {
		t.Fatalf("cancel %v, close %q", s.Cancel, s.Close)
	}
	fs := l.must(func(s *session.State) ([]session.Change, error) { return s.EndTurn(o, frames.EndCancelled, nil) })
	same(t, fs, "result "+calls[0]+" CANCELLED", "result "+calls[1]+" CANCELLED",
		"ERROR CANCELLED: the session was closed before this text's turn for in6", "state cancelled 1", "END cancelled")
	if s := l.state(); len(s.Pending) != 0 || s.Owner != nil {
		t.Errorf("pending %v, owner %v", s.Pending, s.Owner)
	}
	fresh := newLife(t)
	same(t, fresh.input(frames.Abort()), "state cancelled 0", "END cancelled")
}

func TestRepeatedFrames(t *testing.T) {
	t.Parallel()
	l := started(t)
	text := frames.Text("one", frames.WithID("t1"))
	same(t, l.input(text), "user: one", "state thinking 1")
	same(t, l.input(text), "meta")
	same(t, l.input(frames.Text("two", frames.WithID("t2")), text), "meta")
	if q := l.state().Queued; len(q) != 1 || q[0].Text != "two" {
		t.Errorf("queued %v", q)
	}
	// A stored message at or before the cursor is applied already.
	again := session.Input{Message: frames.Message{Frames: []frames.Frame{frames.Text("three", frames.WithID("t3"))}}, Sequence: l.state().Cursor}
	if _, changed, err := l.do(applying(again)); changed || err != nil {
		t.Errorf("changed %v, %v", changed, err)
	}
	many := make([]frames.Frame, 0, 3*session.MaxSeen)
	for i := range 3 * session.MaxSeen {
		many = append(many, frames.Param("top_p", i))
	}
	in := l.message(many...)
	l.must(applying(in))
	in.Sequence++
	l.stored++
	before := len(l.state().Seen)
	l.must(applying(in))
	if before != session.MaxSeen || string(l.state().Params["top_p"]) != strconv.Itoa(3*session.MaxSeen-1) {
		t.Errorf("seen %d, top_p %s", before, l.state().Params["top_p"])
	}
}

// contract: G27
func TestErrorPasses(t *testing.T) {
	t.Parallel()
	l := started(t)
	same(t, l.input(frames.Fail(frames.NewError(frames.CodeExecution, "my side failed"))), "ERROR EXECUTION: my side failed for in5")
}

func TestStateLimit(t *testing.T) {
	t.Parallel()
	l := started(t)
	l.input(frames.Text("one"))
	in := l.message(frames.Text(strings.Repeat("x", session.MaxState)))
	_, _, err := l.do(applying(in))
	if frames.CodeOf(err) != frames.CodeTooLarge || !strings.Contains(err.Error(), "65536") {
		t.Fatalf("err = %v, want TOO_LARGE that names the limit", err)
	}
	same(t, l.must(func(s *session.State) ([]session.Change, error) { return s.Refuse(in, err), nil }),
		fmt.Sprintf("ERROR %v for in6", err))
	// A text that starts a turn goes to the history, which has room.
	other := started(t)
	other.input(frames.Text(strings.Repeat("x", session.MaxState)))
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	in := l.message(frames.Param("workspace", "demo"))
	in.Encoding = frames.JSON
	l.must(applying(in))
	if l.state().WireEncoding() != frames.JSON {
		t.Error("before START: not that of the first input")
	}
	l.input(frames.Param("task", "look"), frames.Start())
	if l.state().WireEncoding() != frames.Msgpack {
		t.Error("not that of START")
	}
}
