package session_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	key   = session.Key{Caller: "me", SID: "s1"}
	clock = time.UnixMilli(1_700_000_000_000)
)

// life is a session in memory: its entries, oldest first.
type life struct {
	t       tb
	entries []session.Entry
	ids     int
	stored  uint64
}

// tb is what both *testing.T and *rapid.T can do.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newLife(t tb) *life { return &life{t: t} }

func (l *life) head() session.Entry {
	if len(l.entries) == 0 {
		return session.Entry{State: session.New(key, "uid", clock)}
	}
	return l.entries[len(l.entries)-1]
}

func (l *life) state() *session.State { s := l.head().State; return &s }

// do writes one transition; ok is false where it changed nothing.
func (l *life) do(tr session.Transition) (e session.Entry, ok bool, err error) {
	head := l.head()
	e, ok, err = head.Next(fmt.Sprint("nonce", len(l.entries)), clock.Add(time.Duration(len(l.entries))*time.Second), tr)
	if ok {
		l.entries = append(l.entries, e)
	}
	return e, ok, err
}

// must writes a transition that may not fail and gives its durable frames.
func (l *life) must(tr session.Transition) []frames.Frame {
	l.t.Helper()
	e, ok, err := l.do(tr)
	if err != nil || !ok {
		l.t.Fatalf("transition: changed %v, %v", ok, err)
	}
	return e.Frames()
}

// input applies one stored message, each frame with an id of its own.
func (l *life) input(fs ...frames.Frame) []frames.Frame {
	l.t.Helper()
	return l.must(applying(l.message(fs...)))
}

func (l *life) message(fs ...frames.Frame) session.Input {
	l.stored++
	for i := range fs {
		if fs[i].ID == "" {
			l.ids++
			fs[i].ID = fmt.Sprint("in", l.ids)
		}
	}
	return session.Input{Message: frames.Message{Frames: fs}, Sequence: l.stored}
}

func applying(in session.Input) session.Transition {
	return func(s *session.State) ([]session.Change, error) { return s.Apply(in), nil }
}

// started gives a session behind START, driven by a model of the mesh.
func started(t tb, params ...frames.Frame) *life {
	t.Helper()
	l := newLife(t)
	fs := append([]frames.Frame{
		frames.Param("workspace", "demo"), frames.Param("task", "look"), frames.Param("model", "scripted/demo"),
	}, params...)
	l.input(append(fs, frames.Start())...)
	if !l.state().Initialized {
		t.Fatal("not initialized")
	}
	return l
}

// outside gives a session behind START that a client drives.
func outside(t tb, params ...frames.Frame) *life {
	t.Helper()
	l := newLife(t)
	fs := append([]frames.Frame{frames.Param("workspace", "demo"), frames.Param("task", "look")}, params...)
	l.input(append(fs, frames.Start())...)
	return l
}

func (l *life) take(nonce string) session.Owner {
	l.t.Helper()
	o := session.Owner{Nonce: nonce, Identity: "loop", Instance: "i1"}
	l.must(func(s *session.State) ([]session.Change, error) { return s.Take(o) })
	return o
}

// summary writes frames short, for a comparison.
func summary(fs []frames.Frame) []string {
	out := make([]string, len(fs))
	for i := range fs {
		out[i] = summaryOf(&fs[i])
	}
	return out
}

func summaryOf(f *frames.Frame) string {
	switch f.Type {
	case frames.TypeMeta:
		if st := f.Content.Lookup("state"); !st.Absent() {
			status, _ := st.Lookup("status").Text()
			turn, _ := st.Lookup("currentTurn").Int64()
			return fmt.Sprintf("state %s %d", status, turn)
		}
		return "meta"
	case frames.TypeError:
		return fmt.Sprintf("ERROR %v for %s", f.Err(), f.Metadata.Text("inputId"))
	case frames.TypeEnd:
		return "END " + f.Reason()
	case frames.TypeText:
		return f.Metadata.Text("role") + ": " + f.Text()
	case frames.TypeToolCall:
		return fmt.Sprintf("call %s %s", f.ToolCallID, f.Name)
	case frames.TypeToolResult:
		r, err := f.Result()
		if err != nil {
			return err.Error()
		}
		if r.Err != nil {
			return fmt.Sprintf("result %s %s", f.ToolCallID, r.Err.Code)
		}
		return fmt.Sprintf("result %s %s", f.ToolCallID, r.Result)
	case frames.TypeProgress:
		operation, _ := f.Content.Lookup("operation").Text()
		return "progress " + operation
	}
	return string(f.Type)
}
