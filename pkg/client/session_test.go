package client_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// keeper is a harness by hand: it keeps durable frames and answers for them.
type keeper struct {
	t    *testing.T
	conn *bus.Conn
	subs []*bus.Subscription

	mu    sync.Mutex
	kept  []frames.Frame
	asked int
}

func connect(t *testing.T, m *bustest.Mesh, identity string) *bus.Conn {
	t.Helper()
	c, err := bus.New(m.Connect(t, identity), identity)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newKeeper(t *testing.T, m *bustest.Mesh) *keeper {
	t.Helper()
	k := &keeper{t: t, conn: connect(t, m, "harness")}
	sub, err := k.conn.Handle(t.Context(), k.conn.Subjects.Sessions("*"), bus.QueueHarness, k.answer)
	if err != nil {
		t.Fatal(err)
	}
	k.subs = append(k.subs, sub)
	if err := k.conn.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// answer gives at most two entries a page.
func (k *keeper) answer(_ context.Context, q *bus.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	if len(k.kept) == 0 {
		_ = q.Fail(frames.NewError(frames.CodeNotFound, "no such session"))
		return
	}
	after, _ := q.Frames[0].Content.Lookup("after").Uint64()
	var out []frames.Frame
	more := false
	for i := range k.kept {
		f := k.kept[i]
		if more = f.Entry > after+2; more {
			break
		}
		if f.Entry > after {
			data, err := frames.Encode(frames.Msgpack, &f)
			if err != nil {
				k.t.Error(err)
			}
			out = append(out, frames.Meta(frames.Fields{{Key: "frame", Value: frames.Raw(data)}}))
		}
	}
	page := frames.Meta(map[string]any{"page": map[string]any{"more": more}})
	_ = q.End(frames.EndCompleted, append(out, page)...)
}

// text makes the one durable frame of an entry.
func text(entry uint64, s string) frames.Frame {
	f := frames.Text(s)
	f.Entry, f.Part, f.Last, f.Epoch = entry, 1, true, 1
	return f
}

func (k *keeper) keep(fs ...frames.Frame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, fs...)
}

func (k *keeper) publish(fs ...frames.Frame) {
	k.t.Helper()
	for i := range fs {
		if err := k.conn.Publish(k.t.Context(), k.conn.Out("me", "s1"), frames.Msgpack, &fs[i]); err != nil {
			k.t.Fatal(err)
		}
	}
	if err := k.conn.Flush(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// read collects the texts of a session until END.
func read(t *testing.T, s *client.Session, after uint64) <-chan string {
	t.Helper()
	out := make(chan string, 1)
	go func() {
		var got []string
		for f, err := range s.Frames(t.Context(), after) {
			if err != nil {
				t.Error(err)
				break
			}
			got = append(got, f.Text()+f.Reason())
		}
		out <- strings.Join(got, " ")
	}()
	return out
}

func inSession(t *testing.T, test func(t *testing.T, k *keeper, s *client.Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := bustest.Start(t)
		k := newKeeper(t, m)
		s, err := client.New(connect(t, m, "me")).Session(t.Context(), "s1")
		if err != nil {
			t.Fatal(err)
		}
		test(t, k, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func end(entry uint64) frames.Frame {
	f := frames.End(frames.EndCompleted)
	f.Entry, f.Part, f.Last = entry, 1, true
	return f
}

// Every durable frame comes once and none is missing, whatever is published.
//
// contract: A22, B56
// case: WS-B02
func TestDurableFramesOnceAndInOrder(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, s *client.Session) {
		k.keep(text(1, "a"), text(2, "b"), text(3, "c"))
		got := read(t, s, 0)
		synctest.Wait()
		k.keep(text(4, "d"), text(5, "e"), text(6, "f"), end(7))
		k.publish(text(3, "c"))                 // again
		k.publish(text(6, "f"), text(4, "d"))   // a gap, and what is old then
		k.publish(text(6, "f"), end(7), end(7)) // again
		if want := "a b c d e f completed"; <-got != want {
			t.Errorf("want %s", want)
		}
	})
}

// An END does not hide that frames before it were lost.
//
// case: WS-B05
func TestEndBehindAGap(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, s *client.Session) {
		k.keep(text(1, "a"))
		got := read(t, s, 0)
		synctest.Wait()
		k.keep(text(2, "b"), text(3, "c"), end(4))
		k.publish(end(4))
		if got := <-got; got != "a b c completed" {
			t.Errorf("got %s", got)
		}
	})
}

// What is not kept any more is no end and no silence, but said.
//
// case: WS-B04
func TestEntriesThatAreNotKept(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, s *client.Session) {
		k.keep(text(6, "f"), end(7))
		var got []string
		var last error
		for f, err := range s.Frames(t.Context(), 4) {
			if last = err; err == nil {
				got = append(got, f.Text())
			}
		}
		if e := frames.AsError(last); e == nil || e.Code != frames.CodeConflict || e.Reason != "gap" || len(got) > 0 {
			t.Errorf("got %v, then %v", got, last)
		}
	})
}

// The live frames of a new epoch begin at 1 again; those of an old one are dropped.
//
// case: WS-B04
func TestLiveFramesBeginAgain(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, s *client.Session) {
		k.keep(text(1, "a"))
		got := read(t, s, 0)
		synctest.Wait()
		live := func(epoch, seq uint64, s string) frames.Frame {
			f := frames.Text(s)
			f.Epoch, f.Seq = epoch, seq
			return f
		}
		k.publish(live(1, 7, "old"), live(2, 1, "new"), live(1, 8, "late"), live(2, 2, "er"))
		synctest.Wait()
		k.keep(end(2))
		k.publish(end(2))
		if got := <-got; got != "a old new er completed" {
			t.Errorf("got %s", got)
		}
	})
}

func TestFramesBehindAnEntry(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, s *client.Session) {
		k.keep(text(1, "a"), text(2, "b"), end(3))
		if got := <-read(t, s, 1); got != "b completed" {
			t.Errorf("got %s", got)
		}
	})
}

// A frame that got lost is read when nothing is heard.
func TestLostFramesAreAskedFor(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, s *client.Session) {
		got := read(t, s, 0) // the session is not there yet
		synctest.Wait()
		k.keep(text(1, "a"), end(2))
		start := time.Now()
		if got := <-got; got != "a completed" {
			t.Errorf("got %s", got)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("asked after %v", took)
		}
	})
}

func TestLiveFramesOfAnOlderEpochAreDropped(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, s *client.Session) {
		k.keep(text(1, "a"))
		got := read(t, s, 0)
		synctest.Wait()
		live := func(epoch uint64, s string) frames.Frame {
			f := frames.Text(s)
			f.Epoch = epoch
			return f
		}
		k.publish(live(2, "new"), live(1, "old"), live(2, "newer"))
		synctest.Wait()
		k.keep(end(2))
		k.publish(end(2))
		if got := <-got; got != "a new newer completed" {
			t.Errorf("got %s", got)
		}
	})
}

func TestSessionIdsAreChecked(t *testing.T) {
	inSession(t, func(t *testing.T, k *keeper, _ *client.Session) {
		c := client.New(k.conn)
		for _, id := range []string{"a.b", "a b", ">", strings.Repeat("x", 65)} {
			if _, err := c.Session(t.Context(), id); frames.CodeOf(err) != frames.CodeValidationInput {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}
