package dispatch_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// queueLimit and queueSlots bound the queue of the property below.
const (
	queueLimit = 6
	queueSlots = 2
)

// shop is one tool with its instances, the calls that run there, and what became
// of the others.
type shop struct {
	*world
	rt   *rapid.T
	decl frames.Declaration

	instances map[string]*fake
	next      int
	begun     []begun
	refused   int

	mu      sync.Mutex
	step    int
	inside  map[string]work // by call id
	first   map[string]int  // in which step a call was first seen at an instance
	results map[string]int
}

type begun struct {
	id   string
	free bool // of locks
}

type work struct {
	instance, lock string
	answer         chan func(*bus.Request)
}

// handle notes a call and answers as it is told.
func (s *shop) handle(instance string, q *bus.Request) {
	f := &q.Frames[0]
	args, _ := f.Arguments()
	w := work{instance, string(args), make(chan func(*bus.Request), 1)}
	s.mu.Lock()
	if _, seen := s.first[f.ToolCallID]; !seen {
		s.first[f.ToolCallID] = s.step
	}
	s.inside[f.ToolCallID] = w
	s.mu.Unlock()
	(<-w.answer)(q)
}

func (s *shop) open() {
	id := fmt.Sprint("i-", s.next)
	s.next++
	s.instances[id] = s.serve(id, s.decl, func(q *bus.Request) { s.handle(id, q) })
}

// close takes an instance away as one that drains does: what runs there goes on.
func (s *shop) close() {
	if len(s.instances) < 2 {
		return
	}
	id := s.pick(slices.Sorted(maps.Keys(s.instances)))
	s.instances[id].end()
	delete(s.instances, id)
}

func (s *shop) pick(of []string) string { return rapid.SampledFrom(of).Draw(s.rt, "which") }

func (s *shop) start() {
	id := fmt.Sprint(s.decl.Name, "-", len(s.begun))
	lock := rapid.SampledFrom([]string{`{}`, `{}`, `{"path":"a"}`, `{"path":"b"}`}).Draw(s.rt, "arguments")
	c := call(id)
	c.Tool, c.Arguments = s.decl.Name, []byte(lock)
	p, err := s.d.Prepare(s.t.Context(), c)
	if err != nil {
		s.rt.Fatalf("prepare: %v", err)
	}
	s.begun = append(s.begun, begun{id, lock == `{}`})
	s.d.Start(s.t.Context(), p, func(*frames.ToolResult) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.results[id]++
	})
}

func (s *shop) busyIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.inside))
}

// answer ends one of the calls that run, in one of the ways in which calls end.
func (s *shop) answer(with func(*bus.Request)) {
	if ids := s.busyIDs(); len(ids) > 0 {
		s.settle(s.pick(ids), with)
	}
}

func (s *shop) settle(id string, with func(*bus.Request)) {
	s.mu.Lock()
	w := s.inside[id]
	delete(s.inside, id)
	s.mu.Unlock()
	w.answer <- with
}

func (s *shop) cancel() {
	if len(s.begun) > 0 {
		s.d.Cancel("me", rapid.SampledFrom(s.begun).Draw(s.rt, "cancelled").id)
	}
}

// check holds what must hold at every moment in which nothing moves.
func (s *shop) check() {
	synctest.Wait()
	h := s.d.Held()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step++
	if h.Queued > queueLimit+s.refused { // one that was refused may come back to a full queue
		s.rt.Fatalf("%d calls wait", h.Queued)
	}
	loads, locks := map[string]int{}, map[string]string{}
	for id, w := range s.inside {
		loads[w.instance]++
		if other := locks[w.lock]; other != "" && w.lock != `{}` {
			s.rt.Fatalf("%s and %s run together", id, other)
		}
		locks[w.lock] = id
	}
	for id, n := range loads {
		if n > queueSlots+1 { // one may be ahead
			s.rt.Fatalf("%d calls run on %s", n, id)
		}
	}
	for id, n := range s.results {
		if n > 1 {
			s.rt.Fatalf("%s has %d results", id, n)
		}
	}
}

// checkOrder holds calls that no lock holds up to the order of their starts: one
// that came to an instance did so no earlier than those before it.
func (s *shop) checkOrder() {
	last := begun{}
	for _, b := range s.begun {
		at, seen := s.first[b.id]
		if !b.free || !seen {
			continue
		}
		if before, ok := s.first[last.id]; ok && at < before {
			s.rt.Fatalf("%s came in step %d, %s in step %d", b.id, at, last.id, before)
		}
		last = b
	}
}

// run does things at random.
func (s *shop) run() {
	again := fails(failure(frames.CodeExecution, retryable))
	steps := []func(){
		s.start, s.start, s.start, s.open, s.close, s.cancel,
		func() { s.answer(ok("x")) }, func() { s.answer(ok("x")) }, func() { s.answer(again) },
		func() {
			s.refused++
			s.answer(busy("busy"))
		},
		func() { <-time.After(30 * time.Millisecond) },
	}
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(steps)-1), 1, 60).Draw(s.rt, "steps") {
		steps[i]()
		s.check()
	}
}

// finish lets everything end: each call has its one result then.
func (s *shop) finish() {
	for quiet := 0; quiet < 3; quiet++ {
		for _, id := range s.busyIDs() {
			s.settle(id, ok("x"))
			quiet = 0
		}
		<-time.After(30 * time.Millisecond)
		s.check()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.begun {
		if s.results[b.id] != 1 {
			s.rt.Fatalf("%s has %d results", b.id, s.results[b.id])
		}
	}
	s.checkOrder()
	if h := s.d.Held(); h != (dispatch.Held{Lanes: h.Lanes}) {
		s.rt.Fatalf("it holds %+v", h)
	}
}

// timeless is a test without a deadline, which a bubble does not have.
type timeless struct{ rapid.TB }

// Whatever becomes of calls and instances: no call is lost or has two results,
// calls of a lock run one at a time, instances have no more than they can hold,
// the queue is bounded, and first come is first served.
func TestQueue(t *testing.T) {
	inBubble(t, dispatch.Config{QueueLimit: queueLimit, QueueWait: time.Minute, CancelGrace: 10 * time.Millisecond}, func(t *testing.T, w *world) {
		n := 0
		rapid.Check(timeless{t}, func(rt *rapid.T) {
			n++
			s := &shop{
				world: w, rt: rt, instances: map[string]*fake{}, inside: map[string]work{}, first: map[string]int{}, results: map[string]int{},
				decl: frames.Declaration{
					Name: fmt.Sprint("tool-", n), Concurrency: queueSlots, LockKey: "path", Retries: 1, Replay: frames.ReplaySafe,
					Backoff: frames.Backoff{MaxMs: 1},
				},
			}
			s.open()
			s.run()
			s.finish()
		})
	})
}
