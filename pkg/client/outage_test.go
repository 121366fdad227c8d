package client_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// away is a session whose line to the mesh can be cut.
type away struct {
	*keeper
	*client.Session
	c    *client.Client
	line *bustest.Line
}

func withLine(t *testing.T, test func(t *testing.T, a *away)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := bustest.Start(t)
		a := &away{keeper: newKeeper(t, m), line: m.Line(t, "me")}
		conn, err := bus.New(m.Connect(t, "me", a.line.Option()), "me")
		if err != nil {
			t.Fatal(err)
		}
		a.c = client.New(conn)
		if a.Session, err = a.c.Session(t.Context(), "s1", client.OutageLimit(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		test(t, a)
		if err := a.Session.Close(); err != nil {
			t.Error(err)
		}
		a.line.Mend()
	})
}

// readEnd reads a session to its error, and tells what came and how long the
// error took from now on.
func (a *away) readEnd(t *testing.T, after uint64) (got string, took time.Duration, err error) {
	t.Helper()
	start := time.Now()
	var all []string
	for f, e := range a.Frames(t.Context(), after) {
		if err = e; err == nil {
			all = append(all, f.Text()+f.Reason())
		}
	}
	return strings.Join(all, ""), time.Since(start), err
}

func within(t *testing.T, took, least, most time.Duration) {
	t.Helper()
	if took < least || took > most {
		t.Errorf("given up after %v, want %v to %v", took, least, most)
	}
}

// A mesh that does not come back ends the reader with UNAVAILABLE, after a
// bounded time; the next one goes on where it ended.
func TestMeshThatIsGone(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		a.keep(text(1, "a"))
		time.AfterFunc(time.Second, a.line.Cut)
		got, took, err := a.readEnd(t, 0)
		wantCode(t, err, frames.CodeUnavailable)
		within(t, took, 20*time.Second, 30*time.Second)
		if got != "a" || !strings.Contains(err.Error(), "s1") {
			t.Errorf("got %q, %v", got, err)
		}
		a.keep(text(2, "b"), end(3))
		a.line.Mend()
		<-time.After(5 * time.Second) // the connection comes back by itself
		if got, _, err := a.readEnd(t, 1); err != nil || got != "bcompleted" {
			t.Errorf("then got %q, %v", got, err)
		}
	})
}

// One that is back in time is read on without a word.
func TestMeshThatComesBack(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		a.keep(text(1, "a"))
		time.AfterFunc(time.Second, a.line.Cut)
		time.AfterFunc(15*time.Second, func() {
			a.keep(text(2, "b"), end(3))
			a.line.Mend()
		})
		if got, _, err := a.readEnd(t, 0); err != nil || got != "abcompleted" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// Services that do not answer are waited for as a mesh is.
func TestHarnessThatIsGone(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		a.keep(text(1, "a"))
		time.AfterFunc(time.Second, func() { _ = a.subs[0].Drain(context.Background()) })
		_, took, err := a.readEnd(t, 0)
		wantCode(t, err, frames.CodeUnavailable)
		within(t, took, 20*time.Second, 30*time.Second)
		_, took, err = a.readEnd(t, 0)
		wantCode(t, err, frames.CodeUnavailable)
		within(t, took, 0, time.Second) // there was nobody to begin with
	})
}

func TestSessionThatIsNotThere(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		_, took, err := a.readEnd(t, 0)
		wantCode(t, err, frames.CodeNotFound)
		within(t, took, 20*time.Second, 30*time.Second)
		a.keep(text(1, "a"))
		time.AfterFunc(time.Second, a.forget)
		_, took, err = a.readEnd(t, 0)
		wantCode(t, err, frames.CodeNotFound)
		within(t, took, time.Second, 6*time.Second)
	})
}

func (k *keeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = nil
}

// Input that meets an outage is sent again, with the ids that it has.
func TestInputInAnOutage(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		var ids []string
		answer := func(_ context.Context, q *bus.Request) {
			ids = append(ids, q.Frames[0].ID)
			_ = q.End(frames.EndCompleted)
		}
		if _, err := a.conn.Handle(t.Context(), a.conn.In("*", "*"), bus.QueueHarness, answer); err != nil {
			t.Fatal(err)
		}
		a.line.Cut()
		synctest.Wait()
		time.AfterFunc(10*time.Second, a.line.Mend)
		id, err := a.Send(t.Context(), frames.Text("hello"))
		if err != nil || len(ids) != 1 || ids[0] != id {
			t.Errorf("sent %q, %v, came as %q", id, err, ids)
		}
		a.line.Cut()
		synctest.Wait()
		start := time.Now()
		_, err = a.Send(t.Context(), frames.Text("hello"))
		wantCode(t, err, frames.CodeUnavailable)
		within(t, time.Since(start), 20*time.Second, 21*time.Second)
	})
}

// Where the mesh was there all the time, a service that is not is told at once.
func TestInputWithoutHarness(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		start := time.Now()
		_, err := a.Send(t.Context(), frames.Text("hello"))
		wantCode(t, err, frames.CodeUnavailable)
		within(t, time.Since(start), 0, time.Second)
	})
}

func TestWatchOfAMeshThatIsGone(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		time.AfterFunc(time.Second, a.line.Cut)
		start := time.Now()
		for _, err := range a.c.Watch(t.Context(), client.OutageLimit(10*time.Second)) {
			wantCode(t, err, frames.CodeUnavailable)
		}
		within(t, time.Since(start), 10*time.Second, 15*time.Second)
	})
}

func TestReadOptionsAreChecked(t *testing.T) {
	withLine(t, func(t *testing.T, a *away) {
		_, err := a.c.Session(t.Context(), "s2", client.OutageLimit(0))
		wantCode(t, err, frames.CodeValidationInput)
		for _, err := range a.c.Watch(t.Context(), client.OutageLimit(-1)) {
			wantCode(t, err, frames.CodeValidationInput)
		}
	})
}
