package dispatch_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// floor runs calls that end when the test says so, and shows which run.
type floor struct {
	mu   sync.Mutex
	runs map[string]chan struct{}
}

func newFloor() *floor { return &floor{runs: map[string]chan struct{}{}} }

func (f *floor) handle(q *bus.Request) {
	id, done := q.Frames[0].ToolCallID, make(chan struct{})
	f.mu.Lock()
	f.runs[id] = done
	f.mu.Unlock()
	<-done
	ok("a")(q)
}

func (f *floor) end(id string) {
	f.mu.Lock()
	close(f.runs[id])
	delete(f.runs, id)
	f.mu.Unlock()
	synctest.Wait()
}

// endAll ends what runs until nothing does.
func (f *floor) endAll() {
	for len(f.running()) > 0 {
		f.end(f.running()[0])
	}
}

func (f *floor) running() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for id := range f.runs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// begin starts calls in their order; the results are gathered.
func (w *world) begin(out chan<- *frames.ToolResult, calls ...dispatch.Call) {
	w.t.Helper()
	for _, c := range calls {
		p, err := w.d.Prepare(w.t.Context(), c)
		if err != nil {
			w.t.Fatal(err)
		}
		w.d.Start(w.t.Context(), p, func(res *frames.ToolResult) { out <- res })
		synctest.Wait()
	}
}

func with(id, args string) dispatch.Call {
	c := call(id)
	c.Arguments = []byte(args)
	return c
}

// A tool that runs a loop that calls the tool again never waits for itself,
// however few slots it has; deeper than 4 is refused.
//
// contract: P77
func TestNestedCallsHaveSlotsOfTheirOwn(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		a := w.serve("a", echo, func(q *bus.Request) {
			m := q.Frames[0].Metadata
			c := call(q.Frames[0].ToolCallID + "-again")
			c.Depth = int(m.Int("depth")) + 1
			res := w.d.Do(t.Context(), c)
			if c.Depth > dispatch.MaxDepth {
				if res.Err == nil || res.Err.Code != frames.CodeLimit || res.Err.Effect != frames.EffectNone {
					t.Errorf("depth %d: %v", c.Depth, res.Err)
				}
			} else if res.Err != nil {
				t.Errorf("depth %d: %v", c.Depth, res.Err)
			}
			ok("a")(q)
		})
		start := time.Now()
		allFine(t, w.together(1))
		if took := time.Since(start); took != 0 || a.served() != 5 {
			t.Errorf("%d calls in %v", a.served(), took)
		}
		bad := call("below")
		bad.Depth = -1
		wantCode(t, w.d.Do(t.Context(), bad), frames.CodeLimit)
		w.holdsNothing()
	})
}

// Calls with the same value of the argument that lockKey names run one at a time,
// in their order; others are not held up by them.
func TestLockKey(t *testing.T) {
	d := frames.Declaration{Name: "echo", Concurrency: 16, LockKey: "path"}
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		f, out := newFloor(), make(chan *frames.ToolResult, 16)
		w.serve("a", d, f.handle)
		w.begin(out,
			with("a1", `{"path":"a"}`), with("a2", `{ "path" : "\u0061" }`), with("a3", `{"path":"a","x":1}`),
			with("b1", `{"path":"b"}`), with("o1", `{"path":{"x":1,"y":[2]}}`), with("o2", `{"path":{"y":[2],"x":1}}`),
			with("n1", `{}`), with("n2", `{"path":null}`), with("n3", `{}`))
		if got := f.running(); !cmp.Equal(got, []string{"a1", "b1", "n1", "n2", "n3", "o1"}) {
			t.Errorf("at first %v run", got)
		}
		f.end("a1")
		f.end("o1")
		if got := f.running(); !cmp.Equal(got, []string{"a2", "b1", "n1", "n2", "n3", "o2"}) {
			t.Errorf("then %v run", got)
		}
		f.endAll()
		for range 9 {
			allFine(t, []*frames.ToolResult{<-out})
		}
		w.holdsNothing()
	})
}

// A lock is one of a workspace, and one of a depth: a tool never waits for the
// lock of the call that it runs for.
func TestLockKeyOfAWorkspaceAndADepth(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		f, out := newFloor(), make(chan *frames.ToolResult, 16)
		for _, name := range []string{"one", "two"} {
			w.serve(name, frames.Declaration{Name: "echo", LockKey: "path", Keys: []string{name}}, f.handle)
		}
		at := func(id, workspace string, depth int) dispatch.Call {
			c := with(id, `{"path":"a"}`)
			c.Workspace, c.Depth = workspace, depth
			return c
		}
		w.begin(out, at("1", "one", 0), at("2", "two", 0), at("3", "one", 1), at("4", "one", 1), at("5", "two", 0))
		if got := f.running(); !cmp.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("%v run", got)
		}
		f.endAll()
		w.holdsNothing()
	})
}

// A call that holds a lock and waits for nobody ends as others do; those behind
// it go on.
func TestLockOfACallThatEndsBadly(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		ms := int64(1000)
		d := frames.Declaration{Name: "echo", LockKey: "path", TimeoutMs: &ms}
		s := inTurn(func(q *bus.Request) {
			<-time.After(3 * time.Second)
			ok("late")(q)
		}, ok("a"))
		w.serve("a", d, s.handle)
		out := make(chan *frames.ToolResult, 3)
		start := time.Now()
		w.begin(out, with("1", `{"path":"a"}`), with("2", `{"path":"a"}`), with("3", `{"path":"a"}`))
		w.d.Cancel("me", "2")
		wantCode(t, <-out, frames.CodeCancelled)
		wantCode(t, <-out, frames.CodeTimeout)
		allFine(t, []*frames.ToolResult{<-out})
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the lock was free after %v, want when the tool had ended", took)
		}
		w.holdsNothing()
	})
}

// The wait for an instance is told apart from the run.
//
// contract: S31, W14
func TestQueueWaitAndRunTime(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.serve("a", echo, func(q *bus.Request) {
			<-time.After(2 * time.Second)
			ok("a")(q)
		})
		out := make(chan *frames.ToolResult, 3)
		w.begin(out, call("1"), call("2"), call("3"))
		for i := range 3 {
			res := <-out
			if want := time.Duration(i) * 2 * time.Second; res.Queue != want || res.Duration != 2*time.Second || res.Err != nil {
				t.Errorf("call %d waited %v and ran %v: %v", i, res.Queue, res.Duration, res.Err)
			}
		}
	})
}

// What a call is told that found no place is when there may be one: after the
// calls before it, by what calls took so far.
//
// contract: S7
func TestBusySaysWhen(t *testing.T) {
	for name, before := range map[string]int{"by calls that ended": 1, "by those that run": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{QueueLimit: 3}, func(t *testing.T, w *world) {
				w.serve("a", echo, func(q *bus.Request) {
					<-time.After(4 * time.Second)
					ok("a")(q)
				})
				out := make(chan *frames.ToolResult, 8)
				for i := range before {
					w.begin(out, call(fmt.Sprint("before-", i)))
					<-out
				}
				w.begin(out, call("1"), call("2"), call("3"), call("4"))
				<-time.After(4*time.Second - 1)
				w.begin(out, call("5"))
				res := <-out
				wantCode(t, res, frames.CodeBusy)
				if after := res.Err.RetryAfter; after < 15*time.Second || after > 16*time.Second || !res.Err.Retryable || res.Err.Effect != frames.EffectNone {
					t.Errorf("retry after %v: %+v", after, res.Err)
				}
				for range 4 {
					<-out
				}
			})
		})
	}
}

// warm shows the dispatcher how long the tool's calls run.
func (w *world) warm(n int) {
	w.t.Helper()
	for range n {
		allFine(w.t, w.together(1))
	}
}

// A tool whose calls are short and steady gets one call more than it has slots:
// it has it when the slot is free. One whose calls are not does not.
func TestOneAhead(t *testing.T) {
	for name, c := range map[string]struct {
		takes func(i int) time.Duration
		sent  int
	}{
		"short and steady":    {func(int) time.Duration { return 5 * time.Millisecond }, 2},
		"long":                {func(int) time.Duration { return 20 * time.Millisecond }, 1},
		"some of them long":   {func(i int) time.Duration { return time.Duration(1+9*(i%10/9)) * 5 * time.Millisecond }, 1},
		"one long a time ago": {func(i int) time.Duration { return time.Duration(1+100*(1-min(i, 1))) * time.Millisecond }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				var f *floor
				n := 0
				a := w.serve("a", echo, func(q *bus.Request) {
					if f != nil {
						f.handle(q)
						return
					}
					takes := c.takes(n)
					n++
					<-time.After(takes)
					ok("a")(q)
				})
				w.warm(80)
				f = newFloor()
				out, before := make(chan *frames.ToolResult, 8), a.served()
				w.begin(out, call("x1"), call("x2"), call("x3"), call("x4"))
				if got := a.served() - before; got != c.sent {
					t.Errorf("%d calls were sent, want %d", got, c.sent)
				}
				if c.sent == 2 {
					w.checkAhead(f, out)
				}
				f.endAll()
				w.holdsNothing()
			})
		})
	}
}

// checkAhead ends the call before the one that was sent ahead: that one runs from
// then on.
func (w *world) checkAhead(f *floor, out <-chan *frames.ToolResult) {
	w.t.Helper()
	<-time.After(time.Second)
	f.end("x1")
	first := <-out
	<-time.After(3 * time.Second)
	f.end("x2")
	res := <-out
	if first.Queue != 0 || first.Duration != time.Second || res.Queue != time.Second || res.Duration != 3*time.Second {
		w.t.Errorf("x1 waited %v and ran %v, x2 waited %v and ran %v", first.Queue, first.Duration, res.Queue, res.Duration)
	}
}

// An instance that does not hold calls ahead refuses them, which is no attempt and
// does not make it rest.
func TestOneAheadThatIsRefused(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		var mu sync.Mutex
		running, refused := 0, 0
		w.serve("a", echo, func(q *bus.Request) {
			mu.Lock()
			if running > 0 && q.First(frames.TypeToolCall).Metadata.Bool("ahead") {
				refused++
				mu.Unlock()
				busy("busy")(q)
				return
			}
			running++ // one that was sent ahead may overtake the call before it
			mu.Unlock()
			<-time.After(5 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			ok("a")(q)
		})
		w.warm(40)
		for _, res := range w.together(50) {
			if res.Err != nil || res.Attempts != 1 {
				t.Errorf("%d attempts: %v", res.Attempts, res.Err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if refused != 1 { // then none is sent ahead for a second
			t.Errorf("%d were refused", refused)
		}
		w.holdsNothing()
	})
}
