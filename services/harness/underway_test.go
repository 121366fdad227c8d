package harness_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
)

// working gives a session whose turn a loop has taken, with its job in hand.
func working(t *testing.T, c *client, l *loop) jetstream.Msg {
	t.Helper()
	c.start(frames.Text("one"))
	c.until("thinking 1")
	job := l.job()
	l.take(s1)
	return job
}

// The owner hears of each input, and of the entry it became.
func TestOwnerIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		l.listen(true)
		working(t, c, l)
		c.must(frames.NewFrame(frames.TypeCancel, nil))
		if n := <-l.woken; n != 3 {
			t.Errorf("woken for entry %d, want 3", n)
		}
		head, err := l.store.Head(t.Context(), s1)
		if err != nil || !head.State.Cancel {
			t.Errorf("the owner is not asked to cancel: %+v, %v", head.State, err)
		}
		idle(t, mesh)
	})
}

// An owner that does not answer is told again; one that is gone needs no telling.
func TestOwnerIsSilentThenGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		sub := l.listen(false)
		working(t, c, l)
		c.must(frames.Param("temperature", 1))
		<-l.woken
		begun := time.Now()
		<-l.woken
		if waited := time.Since(begun); waited < 2*time.Second || waited > 5*time.Second {
			t.Errorf("told again after %v", waited)
		}
		if err := sub.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		idle(t, mesh)
	})
}

// An owner that never answers stops neither its session's input nor the others';
// in the end its inbox is full, and a client is told so.
func TestInboxIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		l.listen(false)
		working(t, c, l)
		var err error
		stored := 0
		for ; err == nil && stored < 1100; stored++ {
			_, err = c.send(frames.Param("top_p", stored))
		}
		e := frames.AsError(err)
		if e.Code != frames.CodeBusy || e.RetryAfter == 0 || e.Reason != "inbox_full" || strings.Contains(e.Message+e.LLMMessage, "nats") {
			t.Fatalf("after %d inputs: %v, want BUSY in words", stored, err)
		}
		other := dial(t, mesh, "s2")
		other.start()
		other.until("idle 0")
	})
}

// A job that its owner released and has not acknowledged yet wakes nobody: the
// wake-up waits for it to go.
func TestReleasedJobStillStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t, bustest.WithAckWait(time.Hour))
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		job := working(t, c, l)
		meta, err := job.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		l.answer(s1, "done")
		l.update(s1, func(s *session.State) ([]session.Change, error) { return s.Release(l.owner, meta.Sequence.Stream, nil) })
		c.must(frames.Text("two"))
		c.until("user: two")
		time.Sleep(10 * time.Second)
		if err := job.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		next := l.job()
		if waited := time.Since(begun); waited > 6*time.Second {
			t.Errorf("the next job came after %v", waited)
		}
		if at, err := next.Metadata(); err != nil || at.Sequence.Stream == meta.Sequence.Stream {
			t.Errorf("the same job again, %v", err)
		}
		idle(t, mesh)
	})
}

// One job a session, however much input it has.
func TestOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		c.start(frames.Text("one"))
		for range 5 {
			c.must(frames.Param("temperature", 1))
		}
		synctest.Wait()
		stream, err := mesh.JetStream(t, "admin").Stream(t.Context(), "WB_RUN")
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != 1 {
			t.Errorf("%d jobs", n)
		}
		l.job()
		idle(t, mesh)
	})
}

// A reader that asks for the head puts a lost job right.
func TestGetPostsALostJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		c.start(frames.Text("one"))
		c.until("thinking 1")
		if err := l.job().DoubleAck(t.Context()); err != nil { // lost: nobody took the session
			t.Fatal(err)
		}
		c.get()
		l.job()
	})
}
