package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// together does n calls at once and gives their results.
func (w *world) together(n int, change ...func(i int, c *dispatch.Call)) []*frames.ToolResult {
	w.t.Helper()
	out := make([]*frames.ToolResult, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c := call(fmt.Sprint(w.next.Add(1)))
			for _, f := range change {
				f(i, &c)
			}
			out[i] = w.d.Do(w.t.Context(), c)
		})
	}
	wg.Wait()
	return out
}

func allFine(t *testing.T, results []*frames.ToolResult) {
	t.Helper()
	for _, res := range results {
		if res.Err != nil {
			t.Errorf("got %v", res.Err)
		}
	}
}

func (w *world) holdsNothing() {
	w.t.Helper()
	synctest.Wait() // a result is given a moment before its call is forgotten
	if h := w.d.Held(); h != (dispatch.Held{Lanes: h.Lanes}) {
		w.t.Errorf("it holds %+v", h)
	}
}

func busy(reason string) func(*bus.Request) {
	return func(q *bus.Request) {
		_ = q.End(frames.EndError, frames.FailedResult(frames.NewError(frames.CodeBusy, "no").WithReason(reason)))
	}
}

// All of the calls that found nobody go elsewhere, not only the first.
func TestInstanceThatIsGoneUnderLoad(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		d := frames.Declaration{Name: "echo"}
		a, b := w.serve("a", d, ok("a")), w.serve("b", d, ok("b"))
		a.vanish()
		allFine(t, w.together(100))
		if b.served() != 100 {
			t.Errorf("b ran %d", b.served())
		}
		w.holdsNothing()
	})
}

// An instance that is full is left alone for a moment, however many calls wait.
func TestFullInstanceIsNotAskedAgainAndAgain(t *testing.T) {
	inBubble(t, dispatch.Config{QueueWait: time.Second}, func(t *testing.T, w *world) {
		a := w.serve("a", frames.Declaration{Name: "echo", Concurrency: 4}, busy("busy"))
		for _, res := range w.together(200) {
			wantCode(t, res, frames.CodeBusy)
			if res.Attempts != 0 {
				t.Errorf("%d attempts of a call that never started", res.Attempts)
			}
		}
		if n := a.served(); n < 10 || n > 4*45 {
			t.Errorf("it was asked %d times in a second", n)
		}
		w.holdsNothing()
	})
}

func TestDrainingInstanceGetsNoMoreCalls(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		a := w.serve("a", frames.Declaration{Name: "echo"}, busy("draining"))
		w.serve("b", frames.Declaration{Name: "echo"}, ok("b"))
		for range 20 {
			allFine(t, w.together(1))
			<-time.After(100 * time.Millisecond)
		}
		if n := a.served(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	})
}

// A queue that is full of calls for one workspace holds up no other.
func TestFullQueueOfOneWorkspace(t *testing.T) {
	inBubble(t, dispatch.Config{QueueLimit: 3, QueueWait: time.Hour}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		one, two := echo, echo
		one.Keys, two.Keys = []string{"one"}, []string{"two"}
		w.serve("a", one, func(q *bus.Request) {
			<-release
			ok("a")(q)
		})
		w.serve("b", two, ok("b"))
		in := func(name string) func(int, *dispatch.Call) {
			return func(_ int, c *dispatch.Call) { c.Workspace = name }
		}
		var wg sync.WaitGroup
		wg.Go(func() { allFine(t, w.together(4, in("one"))) })
		synctest.Wait()
		wantCode(t, w.together(1, in("one"))[0], frames.CodeBusy)
		allFine(t, w.together(1, in("two")))
		close(release)
		wg.Wait()
		w.holdsNothing()
	})
}

// The call cannot be published: it was not sent, and its slot is free again.
func TestCallWithoutAConnection(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		a := w.serve("a", echo, ok("a"))
		w.line.Cut()
		synctest.Wait()
		for _, res := range w.together(5) {
			wantCode(t, res, frames.CodeUnavailable)
			if res.Err.Effect != frames.EffectNone {
				t.Errorf("effect %s", res.Err.Effect)
			}
		}
		w.holdsNothing()
		w.line.Mend()
		<-time.After(4 * time.Second)
		a.alive()
		allFine(t, w.together(5))
	})
}

// The dispatcher's own connection is closed: what runs may run on.
func TestConnectionThatIsClosed(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.serve("a", frames.Declaration{Name: "echo"}, func(*bus.Request) {})
		go func() {
			synctest.Wait()
			w.conn.Close()
		}()
		for _, res := range w.together(3) {
			wantCode(t, res, frames.CodeInterrupted)
			if res.Err.Effect != frames.EffectUnknown || res.Err.Retryable {
				t.Errorf("got %+v", res.Err)
			}
		}
		wantCode(t, w.together(1)[0], frames.CodeUnavailable)
		w.holdsNothing()
	})
}

// A draining instance announces nothing more. As long as its call says that it
// runs, it is not given up.
func TestLongCallOnADrainingInstance(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		var a *fake
		ms := time.Hour.Milliseconds()
		a = w.serve("a", frames.Declaration{Name: "echo", TimeoutMs: &ms}, func(q *bus.Request) {
			a.end()
			for range 20 {
				<-time.After(5 * time.Second)
				_ = q.Send(frames.Tick())
			}
			ok("a")(q)
		})
		start := time.Now()
		allFine(t, w.together(1))
		if took := time.Since(start); took != 100*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// It stops to say so: it is given up then.
func TestDrainingInstanceThatDies(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		var a *fake
		ms := time.Hour.Milliseconds()
		a = w.serve("a", frames.Declaration{Name: "echo", TimeoutMs: &ms}, func(q *bus.Request) {
			a.end()
			for range 10 {
				<-time.After(5 * time.Second)
				_ = q.Send(frames.Tick())
			}
		})
		start := time.Now()
		wantCode(t, w.together(1)[0], frames.CodeInterrupted)
		if took := time.Since(start); took != 65*time.Second {
			t.Errorf("it took %v", took)
		}
		w.holdsNothing()
	})
}

// A plain service that nobody hears of any more may just be busy, or stop after
// what it has. Its calls end by themselves.
//
// contract: P50
func TestPlainServiceThatStopsListening(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		first := w.plain("echo", func(q *bus.Request) {
			<-release
			ok("echo")(q)
		})
		w.plain("other", ok("other"))
		<-time.After(31 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { allFine(t, w.together(1)) })
		synctest.Wait()
		first.stop()
		wantCode(t, w.together(1)[0], frames.CodeUnavailable)
		allFine(t, w.together(1, func(_ int, c *dispatch.Call) { c.Tool = "other" }))
		<-time.After(10 * time.Second)
		close(release)
		wg.Wait()
		w.holdsNothing()
	})
}

// The tool refuses a call that was cancelled meanwhile: it never ran.
func TestCancelledCallThatIsRefused(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		a := w.serve("a", frames.Declaration{Name: "echo"}, func(q *bus.Request) {
			<-release
			busy("busy")(q)
		})
		out := make(chan *frames.ToolResult, 1)
		go func() { out <- w.d.Do(t.Context(), call("1")) }()
		synctest.Wait()
		w.d.Cancel("me", "1")
		close(release)
		res := <-out
		wantCode(t, res, frames.CodeCancelled)
		if res.Err.Effect != frames.EffectNone || a.served() != 1 {
			t.Errorf("effect %s, asked %d times", res.Err.Effect, a.served())
		}
		w.holdsNothing()
	})
}

// The tool says that it was cancelled; the caller is told why, and what the tool
// says of its effect.
func TestDeadlineOfTheCaller(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		var a *fake
		a = w.serve("a", frames.Declaration{Name: "echo"}, func(q *bus.Request) {
			for len(a.cancelled()) == 0 {
				<-time.After(10 * time.Millisecond)
			}
			said := frames.Cancelled("echo").With(func(e *frames.Error) { e.Effect = frames.EffectNone })
			_ = q.End(frames.EndCancelled, frames.FailedResult(said))
		})
		res := w.d.Do(within(t, time.Second), call("1"))
		wantCode(t, res, frames.CodeTimeout)
		if res.Err.Message != "Tool echo timed out after 1000ms" || res.Err.Effect != frames.EffectNone {
			t.Errorf("got %+v", res.Err)
		}
	})
}

// A call that was cancelled while it waited never runs.
func TestCancelOfAQueuedCall(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		a := w.serve("a", echo, func(q *bus.Request) {
			<-release
			ok("a")(q)
		})
		out := make(chan *frames.ToolResult, 2)
		go func() { out <- w.d.Do(t.Context(), call("1")) }()
		synctest.Wait()
		go func() { out <- w.d.Do(t.Context(), call("2")) }()
		synctest.Wait()
		w.d.Cancel("me", "2")
		res := <-out
		wantCode(t, res, frames.CodeCancelled)
		if res.Err.Effect != frames.EffectNone || res.Attempts != 0 {
			t.Errorf("got %+v", res)
		}
		close(release)
		allFine(t, []*frames.ToolResult{<-out})
		if a.served() != 1 {
			t.Errorf("it ran %d", a.served())
		}
	})
}

// An answer is missing: nobody knows what the tool does now, so it is told to
// stop, and its slot is held until it does.
func TestMissingAnswer(t *testing.T) {
	inBubble(t, dispatch.Config{QueueWait: time.Second}, func(t *testing.T, w *world) {
		a := w.raw("a", echo, func(nc *nats.Conn, m *nats.Msg) {
			f := frames.Text("two")
			f.Seq = 2
			data, _ := frames.Encode(frames.Msgpack, &f)
			_ = nc.Publish(m.Reply, data)
		})
		start := time.Now()
		res := w.d.Do(t.Context(), call("1"))
		wantCode(t, res, frames.CodeNoResult)
		if took := time.Since(start); took != 0 || res.Err.Effect != frames.EffectUnknown {
			t.Errorf("after %v: %+v", took, res.Err)
		}
		synctest.Wait()
		if got := a.cancelled(); len(got) != 1 {
			t.Errorf("CANCEL reached the tool for %v", got)
		}
		wantCode(t, w.d.Do(t.Context(), call("2")), frames.CodeBusy)
		<-time.After(30 * time.Second)
		w.holdsNothing()
	})
}

// A call may be cancelled before it comes to the queue, and before it is
// published when it has its slot already: then it is not sent.
func TestCancelBeforeTheCallIsSent(t *testing.T) {
	for name, start := range map[string]func(*dispatch.Dispatcher, *dispatch.Prepared, func(*frames.ToolResult)){
		"before the queue": (*dispatch.Dispatcher).CancelBeforeTheQueue, "before it is sent": (*dispatch.Dispatcher).CancelBeforeItIsSent,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				a := w.serve("a", echo, ok("a"))
				p, err := w.d.Prepare(t.Context(), call("1"))
				if err != nil {
					t.Fatal(err)
				}
				var results []*frames.ToolResult
				start(w.d.Dispatcher, p, func(res *frames.ToolResult) { results = append(results, res) })
				if len(results) != 1 || results[0].Err.Code != frames.CodeCancelled || results[0].Err.Effect != frames.EffectNone {
					t.Errorf("results %+v", results)
				}
				<-time.After(time.Minute)
				if a.served() != 0 {
					t.Error("it was sent")
				}
				w.holdsNothing()
			})
		})
	}
}

// What stands behind END belongs to nobody, least of all to the next attempt.
func TestFramesBehindEnd(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		no := frames.FailedResult(frames.NewError(frames.CodeBusy, "no"))
		w.raw("a", echo, func(nc *nats.Conn, m *nats.Msg) {
			end, text := frames.End(frames.EndError), frames.Text("more")
			no.Seq, end.Seq, text.Seq = 1, 2, 7
			data, _ := frames.Encode(frames.Msgpack, &no, &end, &text, &end)
			_ = nc.Publish(m.Reply, data)
			_ = nc.Publish(m.Reply, data)
		})
		w.serve("b", echo, ok("b"))
		for range 10 {
			allFine(t, w.together(1))
		}
	})
}

// A second answer is counted, and changes nothing.
//
// contract: P52, A11, B14
func TestSecondAnswer(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.raw("a", echo, func(nc *nats.Conn, m *nats.Msg) {
			for _, value := range []string{"1", "2"} {
				res, end := frames.Result(&frames.ToolResult{Result: []byte(value)}), frames.End(frames.EndCompleted)
				data, _ := frames.Encode(frames.Msgpack, &res, &end)
				_ = nc.Publish(m.Reply, data)
			}
		})
		res := w.d.Do(t.Context(), call("1"))
		if res.Err != nil || string(res.Result) != "1" {
			t.Errorf("got %s, %v", res.Result, res.Err)
		}
		synctest.Wait()
		if n := w.conn.Stats().LateAnswers; n != 1 {
			t.Errorf("%d were counted", n)
		}
	})
}

// contract: A11
func TestNothingFollowsTheResult(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		ms := int64(50)
		d := frames.Declaration{Name: "echo", TimeoutMs: &ms}
		w.serve("a", d, func(q *bus.Request) {
			for range 100 {
				_ = q.Send(frames.Text("x"))
				<-time.After(time.Millisecond)
			}
			ok("a")(q)
		})
		var over, late atomic.Int32
		var wg sync.WaitGroup
		for i := range 20 {
			c := call(fmt.Sprint(i))
			done := false // OnFrame and done never run side by side, nor in this order
			c.OnFrame = func(*frames.Frame) {
				if done {
					late.Add(1)
				}
			}
			p, err := w.d.Prepare(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			wg.Add(1)
			w.d.Start(t.Context(), p, func(*frames.ToolResult) {
				done = true
				over.Add(1)
				wg.Done()
			})
		}
		wg.Wait()
		<-time.After(time.Minute)
		if over.Load() != 20 || late.Load() != 0 {
			t.Errorf("%d results, %d frames behind them", over.Load(), late.Load())
		}
		w.holdsNothing()
	})
}

// In a rolling update a call may run on the newer declaration: that one's
// schema counts for its result.
func TestResultOfANewerDeclaration(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		old, newer := echo, echo
		old.OutputSchema = []byte(`{"type":"string"}`)
		newer.OutputSchema = []byte(`{"type":"object","required":["by"]}`)
		a := w.serve("a", old, func(q *bus.Request) {
			<-release
			_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{Result: []byte(`"a"`)}))
		})
		var wg sync.WaitGroup
		wg.Go(func() { allFine(t, w.together(3)) })
		synctest.Wait()
		<-time.After(time.Second)
		b := w.serve("b", newer, ok("b"))
		close(release)
		wg.Wait()
		if a.served() != 1 || b.served() != 2 {
			t.Errorf("a ran %d, b ran %d", a.served(), b.served())
		}
	})
}

func TestBytesOfArgumentsAreBounded(t *testing.T) {
	inBubble(t, dispatch.Config{MaxBytes: 1000}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.serve("a", frames.Declaration{Name: "echo"}, func(q *bus.Request) {
			<-release
			ok("a")(q)
		})
		long := func(_ int, c *dispatch.Call) { c.Arguments = []byte(`{"x":"` + strings.Repeat("x", 400) + `"}`) }
		var wg sync.WaitGroup
		wg.Go(func() { allFine(t, w.together(2, long)) })
		synctest.Wait()
		wantCode(t, w.together(1, long)[0], frames.CodeBusy)
		close(release)
		wg.Wait()
		allFine(t, w.together(1, long))
		w.holdsNothing()
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.serve("a", frames.Declaration{Name: "echo"}, func(q *bus.Request) {
			<-time.After(3 * time.Second)
			ok("a")(q)
		})
		var wg sync.WaitGroup
		wg.Go(func() { allFine(t, w.together(3)) })
		synctest.Wait()
		start := time.Now()
		w.d.Drain(t.Context())
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("drained in %v", took)
		}
		wg.Wait()

		wg.Go(func() {
			for _, res := range w.together(3) {
				wantCode(t, res, frames.CodeInterrupted)
			}
		})
		synctest.Wait()
		w.d.Drain(within(t, time.Second))
		wantCode(t, w.together(1)[0], frames.CodeUnavailable)
		wg.Wait()
		<-time.After(30 * time.Second)
		w.holdsNothing()
	})
}

// The lane of a tool that is no more goes when the tool is forgotten.
func TestLanesOfForgottenTools(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		for i := range 20 {
			d := echo
			d.Name = fmt.Sprint("tool-", i)
			f := w.serve(fmt.Sprint(i), d, ok("x"))
			allFine(t, w.together(1, func(_ int, c *dispatch.Call) { c.Tool = d.Name }))
			f.end()
		}
		if n := w.d.Held().Lanes; n != 20 {
			t.Errorf("%d lanes", n)
		}
		<-time.After(11 * time.Minute)
		if n := w.d.Held().Lanes; n != 0 {
			t.Errorf("%d lanes", n)
		}
	})
}

func TestFollowThatIsGivenUp(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := dispatch.Follow(ended, t.Context(), w.connect("loop"), dispatch.Config{})
		wantErr(t, err, frames.CodeCancelled)
		_, err = dispatch.Follow(t.Context(), ended, w.connect("loop"), dispatch.Config{})
		wantErr(t, err, frames.CodeCancelled)
	})
}

func wantErr(t *testing.T, err error, code frames.Code) {
	t.Helper()
	if frames.CodeOf(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
}
