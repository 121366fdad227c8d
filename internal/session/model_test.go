package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// machine drives a session as a harness, a loop that may crash at any moment
// and its zombies do, in any order.
type machine struct {
	life
	owners  []session.Owner // all that took the session, the last one is right
	said    []string        // texts that were sent
	calls   map[string]int  // calls that clients saw, and how many results of each
	shown   []frames.Frame
	checked int
}

func (m *machine) owner() session.Owner {
	if len(m.owners) == 0 {
		return session.Owner{Nonce: "nobody"}
	}
	return m.owners[len(m.owners)-1]
}

// attempt runs a transition that may be refused, with a code and without a trace.
func (m *machine) attempt(t *rapid.T, tr session.Transition) {
	before := len(m.entries)
	_, ok, err := m.do(tr)
	if err != nil && (ok || len(m.entries) != before) {
		t.Fatalf("refused with %v, and written", err)
	}
	if err != nil && frames.CodeOf(err) != frames.CodeConflict {
		t.Fatalf("refused with %v", err)
	}
}

func (m *machine) say(*rapid.T) {
	text := fmt.Sprint("text", len(m.said))
	m.said = append(m.said, text)
	m.input(frames.Text(text, frames.WithID(text)))
}

func (m *machine) sayAgain(t *rapid.T) {
	if len(m.said) == 0 {
		return
	}
	text := m.said[len(m.said)-1]
	m.input(frames.Text(text, frames.WithID(text)))
}

func (m *machine) take(t *rapid.T) {
	o := session.Owner{Nonce: fmt.Sprint("o", len(m.owners))}
	epoch, work := m.state().Epoch, m.state().Work()
	_, ok, _ := m.do(func(s *session.State) ([]session.Change, error) { return s.Take(o) })
	if ok != work || (ok && m.state().Epoch != epoch+1) {
		t.Fatalf("work %v, taken %v, epoch %d after %d", work, ok, m.state().Epoch, epoch)
	}
	if ok {
		m.owners = append(m.owners, o)
	}
}

func (m *machine) assistant(t *rapid.T) {
	var a session.Answer
	for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
		a.Message.Calls = append(a.Message.Calls, provider.Call{Name: fmt.Sprint("tool", i), Arguments: "{}"})
		a.Calls = append(a.Calls, session.PendingCall{Outside: rapid.Bool().Draw(t, "outside")})
	}
	o := m.owner()
	m.attempt(t, func(s *session.State) ([]session.Change, error) { return s.Assistant(o, a) })
}

// call draws a pending call, or one of the calls there ever were.
func (m *machine) call(t *rapid.T) string {
	if pending := m.state().Pending; len(pending) > 0 && rapid.IntRange(0, 4).Draw(t, "any") > 0 {
		return rapid.SampledFrom(pending).Draw(t, "pending").ID
	}
	ids := make([]string, 0, len(m.calls))
	for id := range m.calls {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "call")
}

func (m *machine) result(t *rapid.T) {
	o, id := m.owner(), m.call(t)
	m.attempt(t, func(s *session.State) ([]session.Change, error) {
		return s.Result(o, session.Outcome{CallID: id, Content: content("1")})
	})
}

func (m *machine) clientResult(t *rapid.T) {
	m.input(frames.Result(&frames.ToolResult{}, frames.WithCall(m.call(t), "tool")))
}

func (m *machine) nextRound(t *rapid.T) {
	o := m.owner()
	m.attempt(t, func(s *session.State) ([]session.Change, error) { return s.NextRound(o) })
}

func (m *machine) endTurn(t *rapid.T) {
	o := m.owner()
	reason := rapid.SampledFrom([]string{frames.EndCompleted, frames.EndCancelled, frames.EndError, frames.EndLimit}).Draw(t, "reason")
	m.attempt(t, func(s *session.State) ([]session.Change, error) { return s.EndTurn(o, reason, nil) })
}

func (m *machine) interrupt(t *rapid.T) {
	o := m.owner()
	m.attempt(t, func(s *session.State) ([]session.Change, error) {
		return s.Interrupt(o, frames.NewError(frames.CodeInterrupted, "gone"))
	})
}

func (m *machine) release(t *rapid.T) {
	o := m.owner()
	leases := map[string]session.Lease{}
	for _, c := range m.state().Pending {
		if rapid.Bool().Draw(t, "leased") {
			leases[c.ID] = session.Lease{Until: clock.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "lease")) * time.Hour), Timeout: time.Hour}
		}
	}
	m.attempt(t, func(s *session.State) ([]session.Change, error) { return s.Release(o, 1, leases) })
}

// expire lets hours go by: exactly the calls whose time is over get a result.
func (m *machine) expire(t *rapid.T) {
	now := clock.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "now")) * time.Hour)
	before := m.state()
	m.attempt(t, func(s *session.State) ([]session.Change, error) { return s.Expire(now), nil })
	for _, c := range before.Pending {
		over := before.Status == session.Waiting && c.Deadline != 0 && c.Deadline <= now.UnixMilli()
		if waits := m.state().Waits(c.ID); waits == over {
			t.Fatalf("call %s with the deadline %d waits %v at %d", c.ID, c.Deadline, waits, now.UnixMilli())
		}
	}
}

// respond is what a model outside says.
func (m *machine) respond(t *rapid.T) {
	m.input(response("so", slices.Repeat([]any{map[string]any{"tool": "x"}}, rapid.IntRange(0, 2).Draw(t, "calls"))...))
}

func (m *machine) prepared(t *rapid.T) {
	o, id := m.owner(), m.call(t)
	call := session.PendingCall{ID: id, Identity: "local", Outside: rapid.Bool().Draw(t, "outside")}
	m.attempt(t, func(s *session.State) ([]session.Change, error) { return s.Prepared(o, call) })
}

// zombie lets an owner that lost the session try each of its moves.
func (m *machine) zombie(t *rapid.T) {
	if len(m.owners) < 2 || m.state().Owner == nil {
		return
	}
	old := rapid.SampledFrom(m.owners[:len(m.owners)-1]).Draw(t, "zombie")
	before := len(m.entries)
	for name, tr := range oldMoves(old, "x") {
		if _, _, err := m.do(tr); !errors.Is(err, session.ErrLostOwner) {
			t.Fatalf("%s by a zombie: %v", name, err)
		}
	}
	if len(m.entries) != before {
		t.Fatal("a zombie wrote")
	}
}

func (m *machine) control(f func() frames.Frame) func(*rapid.T) {
	return func(*rapid.T) { m.input(f()) }
}

func (m *machine) cancelEpoch(t *rapid.T) {
	epoch := rapid.Uint64Range(0, m.state().Epoch).Draw(t, "epoch")
	before := m.state()
	m.input(frames.NewFrame(frames.TypeCancel, map[string]any{"epoch": epoch}))
	if s := m.state(); epoch < before.TurnEpoch && (s.Cancel != before.Cancel || s.Status != before.Status) {
		t.Fatalf("CANCEL of epoch %d stopped the turn that began with %d", epoch, before.TurnEpoch)
	}
}

func (m *machine) check(t *rapid.T) {
	m.checkState(t, m.state())
	for ; m.checked < len(m.entries); m.checked++ {
		m.checkEntry(t, m.entries[m.checked])
	}
	m.checkEnd(t)
	m.checkTexts(t)
	m.checkHistory(t)
}

func (m *machine) checkState(t *rapid.T, s *session.State) {
	switch {
	case s.Status.Final() && (s.Owner != nil || len(s.Queued) > 0 || s.Work()):
		t.Fatalf("closed, and owned by %v, %d queued", s.Owner, len(s.Queued))
	case !s.Status.Running() && len(s.Pending) > 0:
		t.Fatalf("%s with %d pending calls", s.Status, len(s.Pending))
	case s.Status == session.Idle && len(s.Queued) > 0:
		t.Fatalf("idle with %d texts queued", len(s.Queued))
	case s.Status == session.Waiting && (len(s.Pending) == 0 || s.Owner != nil):
		t.Fatalf("waiting for nobody: owner %v", s.Owner)
	case s.CurrentTurn > s.MaxTurns:
		t.Fatalf("turn %d of %d", s.CurrentTurn, s.MaxTurns)
	case s.Cancel && s.Owner == nil:
		t.Fatal("nobody is there to end the turn")
	case s.Status.Running() && s.Owner == nil && !s.Work() && s.Status != session.Waiting && s.Model() != "":
		t.Fatalf("%s, and nobody has to go on", s.Status)
	case s.Status.Running() != (s.Reason == "") && s.CurrentTurn > 0:
		t.Fatalf("%s with reason %q", s.Status, s.Reason)
	}
}

func (m *machine) checkEntry(t *rapid.T, e session.Entry) {
	if e.N != uint64(m.checked+1) {
		t.Fatalf("entry %d is number %d", m.checked+1, e.N)
	}
	if m.checked > 0 && e.State.Epoch < m.entries[m.checked-1].State.Epoch {
		t.Fatalf("the epoch went back to %d", e.State.Epoch)
	}
	fs := e.Frames()
	if len(fs) == 0 || !fs[len(fs)-1].Last {
		t.Fatalf("entry %d has no last frame", e.N)
	}
	data, err := json.Marshal(e)
	var again session.Entry
	if err == nil {
		err = json.Unmarshal(data, &again)
	}
	if err != nil || !slices.EqualFunc(e.Wire(1<<20), again.Wire(1<<20), slices.Equal) {
		t.Fatalf("entry %d is published otherwise after it was read back: %v", e.N, err)
	}
	for _, f := range fs {
		m.see(t, f)
	}
}

func (m *machine) see(t *rapid.T, f frames.Frame) {
	m.shown = append(m.shown, f)
	results, known := m.calls[f.ToolCallID]
	switch f.Type {
	case frames.TypeToolCall:
		if known {
			t.Fatalf("call id %s twice", f.ToolCallID)
		}
		m.calls[f.ToolCallID] = 0
	case frames.TypeToolResult:
		if !known || results > 0 {
			t.Fatalf("result of call %s: known %v, %d before", f.ToolCallID, known, results)
		}
		m.calls[f.ToolCallID]++
	}
}

// checkEnd: END is once, and only refusals of later input come after it.
func (m *machine) checkEnd(t *rapid.T) {
	end := slices.IndexFunc(m.shown, func(f frames.Frame) bool { return f.Type == frames.TypeEnd })
	if end < 0 != !m.state().Status.Final() {
		t.Fatalf("%s, END at %d", m.state().Status, end)
	}
	if end < 0 {
		return
	}
	for _, f := range m.shown[end+1:] {
		if f.Type != frames.TypeError {
			t.Fatalf("%s after END", f.Type)
		}
	}
	for id, results := range m.calls {
		if results != 1 {
			t.Fatalf("call %s has %d results at END", id, results)
		}
	}
}

// checkTexts: each text began a turn, in order, or was refused, or waits.
func (m *machine) checkTexts(t *rapid.T) {
	var turns []string
	refused := map[string]bool{}
	for _, f := range m.shown {
		switch input := f.Metadata.Text("inputId"); {
		case f.Type == frames.TypeText && f.Metadata.Text("role") == "user":
			turns = append(turns, f.Text())
		case f.Type == frames.TypeError, f.Type == frames.TypeProgress:
			refused[input] = true
		}
	}
	if len(turns) != m.state().CurrentTurn {
		t.Fatalf("%d user texts in %d turns", len(turns), m.state().CurrentTurn)
	}
	for _, q := range m.state().Queued {
		turns = append(turns, q.Text)
	}
	accepted := slices.DeleteFunc(slices.Clone(m.said), func(text string) bool { return refused[text] && !slices.Contains(turns, text) })
	if !slices.Equal(accepted, turns) {
		t.Fatalf("texts %v, turns and queue %v", accepted, turns)
	}
}

// checkHistory: behind each assistant message stand the results of its calls, in
// its order, all of them unless they are pending.
func (m *machine) checkHistory(t *rapid.T) {
	log := session.NewMemory()
	var last uint64
	for _, e := range m.entries {
		last = appendEntry(m.t, log, e, last)
	}
	messages, err := session.NewStore(log).Messages(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	var owed []string
	for _, msg := range messages {
		if msg.Role != provider.RoleTool && len(owed) > 0 {
			t.Fatalf("%s before the results of %v", msg.Role, owed)
		}
		if msg.Role == provider.RoleTool {
			i := slices.Index(owed, msg.ToolCallID)
			if i < 0 || (i > 0 && len(m.state().Pending) == 0) {
				t.Fatalf("result of %s, owed are %v", msg.ToolCallID, owed)
			}
			owed = slices.Delete(owed, i, i+1)
		}
		for _, c := range msg.Calls {
			owed = append(owed, c.ID)
		}
	}
	pending := make([]string, 0, len(m.state().Pending))
	for _, c := range m.state().Pending {
		pending = append(pending, c.ID)
	}
	if !slices.Equal(owed, pending) {
		t.Fatalf("calls without a result %v, pending %v", owed, pending)
	}
}

// contract: G56
// case: WS-H10, WS-L03, WS-H05, WS-H03
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{calls: map[string]int{}}
		m.t = t
		begin := []frames.Frame{frames.Param("workspace", "w"), frames.Param("task", "t"),
			frames.Param("maxTurns", rapid.IntRange(1, 6).Draw(t, "maxTurns"))}
		switch rapid.SampledFrom([]string{"mesh", "mesh", "outside", "client"}).Draw(t, "model") {
		case "mesh":
			begin = append(begin, frames.Param("model", "a/b"))
		case "client":
			begin = append(begin, frames.Param("toolExecution", "client"))
		}
		m.input(append(begin, frames.Start())...)
		t.Repeat(map[string]func(*rapid.T){
			"say": m.say, "sayMore": m.say, "sayAgain": m.sayAgain,
			"take": m.take, "assistant": m.assistant, "answer": m.assistant,
			"result": m.result, "resultMore": m.result, "resultAgain": m.result, "clientResult": m.clientResult,
			"nextRound": m.nextRound, "endTurn": m.endTurn, "interrupt": m.interrupt, "release": m.release,
			"expire": m.expire, "respond": m.respond, "respondMore": m.respond, "prepared": m.prepared,
			"zombie": m.zombie, "cancelEpoch": m.cancelEpoch,
			"cancel": m.control(func() frames.Frame { return frames.NewFrame(frames.TypeCancel, nil) }),
			"param":  m.control(func() frames.Frame { return frames.Param("temperature", 1) }),
			"rare": func(t *rapid.T) {
				switch rapid.IntRange(0, 9).Draw(t, "which") {
				case 0:
					m.input(frames.End(""))
				case 1:
					m.input(frames.Abort())
				}
			},
			"": m.check,
		})
	})
}
