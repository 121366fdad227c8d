package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/loop"
)

// twoKinds serves a safe and an unsafe tool that take a time, and counts their runs.
func (r *rig) twoKinds(d time.Duration) (safe, unsafe *atomic.Int32) {
	r.tools(func(s *tool.Set) {
		safe = r.counted(s, frames.Declaration{Name: "safe", Replay: frames.ReplaySafe}, after(d))
		unsafe = r.counted(s, frames.Declaration{Name: "unsafe"}, after(d))
	})
	return safe, unsafe
}

// contract: E2, E3, E4
// case: WS-H01
func TestLoopThatDiesIsTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		safe, unsafe := r.twoKinds(20 * time.Second)
		first := r.loop(loop.Config{})
		r.play = script(answer("", "safe {}", "unsafe {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		synctest.Wait()
		if safe.Load() != 1 || unsafe.Load() != 1 {
			t.Fatal("the calls do not run")
		}
		before := h.head().State.Epoch
		first.crash()
		r.loop(loop.Config{})
		h.await("META idle 1", 1)
		h.settled()
		r.want(h.turn(), `
			TEXT go
			META thinking 1
			META applied
			TOOL_CALL safe
			TOOL_CALL unsafe
			META usage
			META executing 1
			META applied
			TOOL_RESULT unsafe INTERRUPTED
			TOOL_RESULT safe {}
			META thinking 1
			TEXT done
			META usage
			META idle 1
			META applied`)
		if safe.Load() != 2 || unsafe.Load() != 1 {
			t.Errorf("safe ran %d times, unsafe %d times", safe.Load(), unsafe.Load())
		}
		if s := h.head().State; s.Epoch != before+1 || s.Round != 0 {
			t.Errorf("epoch %d after %d", s.Epoch, before)
		}
		h.check()
		asked := r.asked()
		if m := asked[len(asked)-1].Messages; len(m) != 5 || m[3].IsError || !m[4].IsError || !strings.Contains(m[4].Text, "may have run, and may still") {
			t.Errorf("the model sees %+v", m)
		}
	})
}

func TestLoopThatDiesWhileTheModelSpeaks(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		first := r.loop(loop.Config{})
		r.play = func(_ context.Context, n int, _ *provider.Request) ([]provider.Event, error) {
			if n == 1 {
				<-time.After(3 * time.Second) // virtual time
			}
			return answer("once"), nil
		}
		h := r.session("s1")
		h.say("go")
		h.await("META applied", 1)
		<-time.After(time.Second) // virtual time: the loop knows all tools, and has asked
		first.crash()
		r.loop(loop.Config{})
		h.await("META idle 1", 1)
		h.settled()
		if got := strings.Count(strings.Join(h.turn(), "\n"), "TEXT once"); got != 1 || len(r.asked()) != 2 {
			t.Errorf("answered %d times, the model was asked %d times", got, len(r.asked()))
		}
		h.check()
	})
}

// A soft stop ends at the end of a round, and the next loop goes on at once.
func TestStopAndStartGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, unsafe := r.twoKinds(3 * time.Second)
		first := r.loop(loop.Config{})
		r.play = script(answer("", "unsafe {}", "unsafe {}"), answer("", "unsafe {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		synctest.Wait()
		first.stop()
		if <-first.done; first.err != nil {
			t.Fatal(first.err)
		}
		if s := h.head().State; len(s.Pending) != 0 || s.Status != session.Thinking || s.Owner == nil || len(r.asked()) != 1 {
			t.Errorf("left %s with %d pending, owner %v, %d requests", s.Status, len(s.Pending), s.Owner, len(r.asked()))
		}
		start := time.Now()
		r.loop(loop.Config{})
		h.await("META executing 1", 2)
		if took := time.Since(start); took > time.Second {
			t.Errorf("went on after %v: the job waited for its ack wait", took)
		}
		h.await("META idle 1", 1)
		h.settled()
		if got := strings.Join(h.turn(), "\n"); unsafe.Load() != 3 || strings.Contains(got, "INTERRUPTED") {
			t.Errorf("%d calls ran:\n%s", unsafe.Load(), got)
		}
		h.check()
	})
}

func TestHardStopLeavesTheSessionToTheNextLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		safe, unsafe := r.twoKinds(20 * time.Second)
		first := r.loop(loop.Config{})
		r.play = script(answer("", "safe {}", "unsafe {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		synctest.Wait()
		first.stop()
		synctest.Wait()
		first.kill()
		<-first.done
		if s := h.head().State; len(s.Pending) != 2 || s.Owner == nil {
			t.Errorf("left with %d pending, owner %v", len(s.Pending), s.Owner)
		}
		r.loop(loop.Config{})
		h.await("META idle 1", 1)
		h.settled()
		if got := strings.Join(h.turn(), "\n"); !strings.Contains(got, "TOOL_RESULT unsafe INTERRUPTED") || safe.Load() != 2 || unsafe.Load() != 1 {
			t.Errorf("safe ran %d times, unsafe %d times:\n%s", safe.Load(), unsafe.Load(), got)
		}
		h.check()
	})
}

// A cancel that nobody worked on ends the turn when somebody does.
func TestCancelIsKeptForTheNextOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, unsafe := r.twoKinds(20 * time.Second)
		first := r.loop(loop.Config{})
		r.play = script(answer("", "unsafe {}"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		synctest.Wait()
		first.crash()
		h.input(frames.NewFrame(frames.TypeCancel, nil))
		r.loop(loop.Config{})
		h.await("META idle 1", 1)
		h.settled()
		got := strings.Join(h.turn(), "\n")
		if !strings.Contains(got, "TOOL_RESULT unsafe CANCELLED") || unsafe.Load() != 1 || h.head().State.Reason != frames.EndCancelled {
			t.Errorf("%d calls ran:\n%s", unsafe.Load(), got)
		}
		h.check()
	})
}

// The lease outlives many ack waits: a long call runs once, in one loop.
func TestLongCallsKeepTheirLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var runs *atomic.Int32
		forever := int64(0)
		r.tools(func(s *tool.Set) {
			runs = r.counted(s, frames.Declaration{Name: "unsafe", TimeoutMs: &forever}, after(5*time.Minute))
		})
		r.loop(loop.Config{})
		r.loop(loop.Config{})
		r.play = script(answer("", "unsafe {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		if s := h.head().State; runs.Load() != 1 || s.Epoch != 2 {
			t.Errorf("ran %d times, epoch %d", runs.Load(), s.Epoch)
		}
		h.check()
	})
}

// A loop that finds another owner keeps and shows nothing any more.
func TestLostSessionIsLeftAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, unsafe := r.twoKinds(25 * time.Second)
		r.loop(loop.Config{})
		r.play = script(answer("", "unsafe {}"), answer("", "unsafe {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		thief := session.Owner{Nonce: "other", Identity: "loop", Instance: "elsewhere"}
		head, err := h.store.Update(t.Context(), h.key, func(s *session.State) ([]session.Change, error) { return s.Take(thief) })
		r.must(err)
		<-time.After(21 * time.Second) // the lease looks
		shown := len(h.live()) + len(h.durable())
		<-time.After(10 * time.Second) // the call ends
		if after := h.head(); after.N != head.N || len(h.live())+len(h.durable()) != shown {
			t.Errorf("entry %d after %d, %d frames after %d", after.N, head.N, len(h.live())+len(h.durable()), shown)
		}
		if unsafe.Load() != 1 || len(r.asked()) != 1 {
			t.Errorf("%d calls ran, %d requests", unsafe.Load(), len(r.asked()))
		}
	}, bustest.WithAckWait(time.Minute))
}

// A job that was lost is posted anew, and who gets it takes the session over.
func TestJobThatIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		safe, _ := r.twoKinds(20 * time.Second)
		r.loop(loop.Config{})
		r.play = script(answer("", "safe {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		stream, err := r.mesh.JetStream(t, "admin").Stream(t.Context(), "WB_RUN")
		r.must(err)
		r.must(stream.Purge(t.Context(), jetstream.WithPurgeSubject("wb.run.me.s1")))
		h.await("META idle 1", 1)
		h.settled()
		if s := h.head().State; s.Epoch != 3 || safe.Load() != 2 {
			t.Errorf("epoch %d, the call ran %d times", s.Epoch, safe.Load())
		}
		h.check()
	})
}

func TestSessionThatIsDeletedWhileItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.twoKinds(8 * time.Second)
		r.loop(loop.Config{})
		r.play = script(answer("", "safe {}"), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		r.must(h.store.Delete(t.Context(), h.key))
		<-time.After(time.Minute) // the job is delivered again, and acknowledged
		n, err := h.jobs.Standing(t.Context(), h.key)
		if r.must(err); n != 0 || len(r.asked()) != 1 {
			t.Errorf("job %d stands, %d requests", n, len(r.asked()))
		}
	})
}

func TestJobsWithoutWork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		r.play = script(answer("done"))
		h := r.session("s1")
		_, err := h.jobs.Post(t.Context(), h.key) // the session is idle
		r.must(err)
		h.settled()
		if head := h.head(); head.N != 1 {
			t.Errorf("a job without work wrote entry %d", head.N)
		}
		if got := briefs(h.durable()); len(got) == 0 || got[len(got)-1] != "META idle 0" {
			t.Errorf("the head is not shown again: %q", got)
		}
		_, err = h.jobs.Post(t.Context(), session.Key{Caller: "me", SID: "nosuch"})
		r.must(err)
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
	})
}

func TestManySessionsOnTwoLoops(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, unsafe := r.twoKinds(time.Second)
		cfg := loop.Config{Sessions: 3}
		r.loop(cfg)
		r.loop(cfg)
		r.play = script(answer("", "unsafe {}", "unsafe {}"), answer("", "unsafe {}"), answer("done"))
		const n = 12
		all := make([]*harness, n)
		for i := range all {
			all[i] = r.session(fmt.Sprint("s", i))
		}
		var said sync.WaitGroup
		for _, h := range all {
			said.Go(func() { h.say("go") })
		}
		said.Wait()
		instances := map[string]bool{}
		for _, h := range all {
			h.await("META idle 1", 1)
			h.settled()
			h.check()
			entries, _, err := h.store.History(t.Context(), h.key, 0, 100)
			r.must(err)
			for _, e := range entries {
				if o := e.State.Owner; o != nil {
					instances[o.Instance] = true
				}
			}
		}
		if unsafe.Load() != 3*n || len(instances) != 2 {
			t.Errorf("%d calls of %d sessions, by %d loops", unsafe.Load(), n, len(instances))
		}
	})
}

// Work that comes while a job without work is acknowledged is not lost.
func TestWorkThatComesAsTheJobIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		r.play = script(answer("done"))
		h := r.session("s1")
		for i := range 20 {
			if _, err := h.jobs.Post(t.Context(), h.key); err != nil {
				t.Fatal(err)
			}
			h.say("go") // finds the job standing, or gone
			h.await(fmt.Sprint("META idle ", i+1), 1)
		}
		h.settled()
		h.check()
	})
}

func TestToolThatDiesIsToldToTheModel(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		stop := r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything}, func(ctx context.Context, _ json.RawMessage) (any, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "f {}"), answer("it died"))
		h := r.session("s1")
		h.say("go")
		h.await("META executing 1", 1)
		synctest.Wait()
		go stop()
		h.await("META idle 1", 1)
		if got := strings.Join(h.turn(), "\n"); !strings.Contains(got, "TEXT it died") {
			t.Errorf("got:\n%s", got)
		}
		h.settled()
		h.check()
	})
}
