package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

var echo = frames.Declaration{Name: "echo", Concurrency: 1}

func wantCode(t *testing.T, res *frames.ToolResult, code frames.Code) {
	t.Helper()
	if res.Err == nil || res.Err.Code != code {
		t.Fatalf("got %s %v, want %s", res.Result, res.Err, code)
	}
}

// contract: P80
func TestCallReachesTheTool(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.serve("a", echo, ok("a"))
		res := w.d.Do(t.Context(), call("1"))
		if res.Err != nil || string(res.Result) != `{"by":"a"}` || res.Instance != "a" || res.Attempts != 1 {
			t.Fatalf("got %+v", res)
		}
		missing := call("2")
		missing.Tool = "ecko"
		wantCode(t, w.d.Do(t.Context(), missing), frames.CodeNotFound)
	})
}

func TestCatalogueBeforeTheDispatcher(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		if res := w.d.Do(t.Context(), call("1")); res.Err != nil {
			t.Fatal(res.Err)
		}
	}, func(w *world) { w.serve("a", echo, ok("a")) })
}

// A tool without an SDK: a queue group and an answer to DESCRIBE.
func TestPlainServiceIsFoundByName(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		c := w.connect("local")
		f := &fake{w: w, conn: c}
		f.on(c.Tool("echo"), bus.QueueTools, func(_ context.Context, q *bus.Request) { ok("plain")(q) })
		f.on(c.Describe(), "", func(_ context.Context, q *bus.Request) {
			d := echo
			_ = d.Check()
			_ = q.End(frames.EndCompleted, frames.Description(&d))
		})
		f.must(c.Flush(t.Context()))
		start := time.Now()
		if res := w.d.Do(t.Context(), call("1")); res.Err != nil {
			t.Fatal(res.Err)
		}
		if d := time.Since(start); d > 300*time.Millisecond {
			t.Fatalf("found after %v", d)
		}
	})
}

func TestLeastLoadedInstanceAndQueue(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		slow := func(q *bus.Request) {
			<-release
			ok("x")(q)
		}
		a, b := w.serve("a", echo, slow), w.serve("b", echo, slow)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if res := w.d.Do(t.Context(), call(fmt.Sprint(i))); res.Err != nil {
					t.Error(res.Err)
				}
			})
		}
		synctest.Wait()
		if a.served() != 1 || b.served() != 1 {
			t.Errorf("with one slot each: a ran %d, b ran %d", a.served(), b.served())
		}
		close(release)
		wg.Wait()
		if a.served()+b.served() != 5 {
			t.Errorf("a ran %d, b ran %d", a.served(), b.served())
		}
	})
}

func TestBusyAtTheBounds(t *testing.T) {
	inBubble(t, dispatch.Config{QueueLimit: 1, QueueWait: time.Second}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		defer close(release)
		w.serve("a", echo, func(q *bus.Request) { <-release })
		results := make(chan *frames.ToolResult, 3)
		for i := range 3 {
			go func() { results <- w.d.Do(t.Context(), call(fmt.Sprint(i))) }()
			synctest.Wait()
		}
		wantCode(t, <-results, frames.CodeBusy) // the queue is full
		start := time.Now()
		res := <-results // waited too long
		wantCode(t, res, frames.CodeBusy)
		if waited := time.Since(start); waited != time.Second || res.Err.RetryAfter == 0 {
			t.Errorf("waited %v, retry after %v", waited, res.Err.RetryAfter)
		}
		w.d.Cancel("me", "0")
		wantCode(t, <-results, frames.CodeCancelled)
	})
}

func TestRefusedBeforeTheStartGoesElsewhere(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		a := w.serve("a", echo, func(q *bus.Request) {
			_ = q.End(frames.EndError, frames.FailedResult(frames.NewError(frames.CodeBusy, "draining").WithReason("draining")))
		})
		w.serve("b", echo, ok("b"))
		for i := range 4 {
			res := w.d.Do(t.Context(), call(fmt.Sprint(i)))
			if res.Err != nil || string(res.Result) != `{"by":"b"}` || res.Attempts != 1 {
				t.Fatalf("got %s %v", res.Result, res.Err)
			}
		}
		if a.served() == 0 {
			t.Fatal("the busy instance was never asked: the test shows nothing")
		}
	})
}

// contract: P21, A10, B4
func TestTimeoutIsAnsweredAtOnceAndCancels(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		ms := int64(700)
		d := echo
		d.TimeoutMs = &ms
		release := make(chan struct{})
		defer close(release)
		a := w.serve("a", d, func(q *bus.Request) { <-release })
		start := time.Now()
		res := w.d.Do(t.Context(), call("1"))
		wantCode(t, res, frames.CodeTimeout)
		if took := time.Since(start); took != 700*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
		if want := "Tool echo timed out after 700ms"; res.Err.Message != want || res.Err.Retryable {
			t.Errorf("got %q, retryable %v", res.Err.Message, res.Err.Retryable)
		}
		synctest.Wait()
		if got := a.cancelled(); len(got) != 1 || got[0] != "1" {
			t.Errorf("CANCEL reached the tool for %v", got)
		}
	})
}

func TestCallerThatGivesUpCancels(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		a := w.serve("a", echo, func(q *bus.Request) {})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		wantCode(t, w.d.Do(ctx, call("1")), frames.CodeCancelled)
		if got := a.cancelled(); len(got) != 1 {
			t.Errorf("CANCEL reached the tool for %v", got)
		}
	})
}

// A cause whose code says that nothing happened is not believed of a call that
// its tool has: it may have acted.
func TestStoppedCallMayHaveActed(t *testing.T) {
	for name, serve := range map[string]func(q *bus.Request){
		"silent":   func(*bus.Request) {},
		"only END": func(q *bus.Request) { <-time.After(time.Second); _ = q.End(frames.EndCancelled) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{CancelGrace: 2 * time.Second}, func(t *testing.T, w *world) {
				w.serve("a", echo, serve)
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					synctest.Wait()
					cancel(frames.NewError(frames.CodeLimit, "the time is used up"))
				}()
				res := w.d.Do(ctx, call("1"))
				wantCode(t, res, frames.CodeLimit)
				if res.Err.Effect != frames.EffectUnknown {
					t.Errorf("effect %s", res.Err.Effect)
				}
			})
		})
	}
}

func TestInstanceThatDies(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		a := w.serve("a", echo, func(q *bus.Request) {})
		go func() {
			synctest.Wait()
			a.vanish()
		}()
		start := time.Now()
		res := w.d.Do(t.Context(), call("1"))
		wantCode(t, res, frames.CodeInterrupted)
		if took := time.Since(start); took > 21*time.Second {
			t.Errorf("seen after %v", took)
		}
		wantCode(t, w.d.Do(t.Context(), call("2")), frames.CodeUnavailable)
	})
}

func TestInstanceThatIsGoneBeforeTheCall(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		a := w.serve("a", echo, ok("a"))
		w.serve("b", echo, ok("b"))
		a.vanish()
		for i := range 3 {
			if res := w.d.Do(within(t, time.Second), call(fmt.Sprint(i))); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
	})
}

// contract: A9, B21
func TestEndWithoutResult(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.serve("a", echo, func(q *bus.Request) { _ = q.End(frames.EndCompleted) })
		wantCode(t, w.d.Do(t.Context(), call("1")), frames.CodeNoResult)
	})
}

func TestSameIdTwiceIsRefused(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.serve("a", frames.Declaration{Name: "echo"}, func(q *bus.Request) {})
		first := make(chan *frames.ToolResult)
		go func() { first <- w.d.Do(t.Context(), call("1")) }()
		synctest.Wait()
		wantCode(t, w.d.Do(t.Context(), call("1")), frames.CodeConflict)
		w.d.Cancel("me", "1")
		wantCode(t, <-first, frames.CodeCancelled)
	})
}

func TestWorkspacesHaveOwners(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		for _, name := range []string{"one", "two"} {
			d := echo
			d.Keys = []string{name, frames.PathKey("/srv/" + name)}
			w.serve("i-"+name, d, ok(name))
		}
		for _, c := range []struct{ workspace, by string }{{"one", "one"}, {"two", "two"}, {"/srv/two", "two"}} {
			q := call("c" + c.by)
			q.Workspace = c.workspace
			if res := w.d.Do(t.Context(), q); res.Err != nil || string(res.Result) != `{"by":"`+c.by+`"}` {
				t.Errorf("%s: got %s %v", c.workspace, res.Result, res.Err)
			}
		}
		wantCode(t, w.d.Do(t.Context(), call("none")), frames.CodeValidationInput)
		q := call("gone")
		q.Workspace = "three"
		wantCode(t, w.d.Do(t.Context(), q), frames.CodeNotFound)
	})
}

func TestConfirmationIsDenied(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		d := echo
		d.Annotations.RequiresConfirmation = true
		w.serve("a", d, ok("a"))
		res := w.d.Do(t.Context(), call("1"))
		wantCode(t, res, frames.CodeDenied)
		if res.Err.Reason != "approval_required" {
			t.Errorf("reason %q", res.Err.Reason)
		}
	})
}
