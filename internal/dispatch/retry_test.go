package dispatch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// tries answers the attempts of a call one after the other, the last answer
// again and again, and notes which attempts there were.
type tries struct {
	mu      sync.Mutex
	answers []func(q *bus.Request)
	seen    []int64
	at      []time.Time
}

func inTurn(answers ...func(q *bus.Request)) *tries { return &tries{answers: answers} }

func (s *tries) handle(q *bus.Request) {
	s.mu.Lock()
	answer := s.answers[min(len(s.seen), len(s.answers)-1)]
	s.seen = append(s.seen, q.Frames[0].Metadata.Int("attempt"))
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
	answer(q)
}

func (s *tries) attempts() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func fails(err *frames.Error) func(q *bus.Request) {
	return func(q *bus.Request) { _ = q.End(frames.EndError, frames.FailedResult(err)) }
}

func failure(code frames.Code, change ...func(*frames.Error)) *frames.Error {
	e := frames.NewError(code, "it failed")
	for _, f := range change {
		f(e)
	}
	return e
}

func retryable(e *frames.Error) { e.Retryable = true }
func noEffect(e *frames.Error)  { e.Effect = frames.EffectNone }

// says answers with JSON text.
func says(text string) func(q *bus.Request) {
	return func(q *bus.Request) {
		m, err := frames.Decode([]byte(text))
		if err != nil {
			panic(err)
		}
		_ = q.End(frames.EndError, m.Frames...)
	}
}

func retrying(change ...func(*frames.Declaration)) frames.Declaration {
	ms := int64(1000)
	d := frames.Declaration{Name: "echo", Retries: 2, TimeoutMs: &ms}
	for _, f := range change {
		f(&d)
	}
	return d
}

func replaySafe(d *frames.Declaration) { d.Replay = frames.ReplaySafe }
func idempotent(d *frames.Declaration) { d.Annotations.Idempotent = true }

// Attempts beyond the first are made as the tool declares, counted from 0 for the
// tool, and only the result says how many there were.
//
// contract: W7, W11, W14, W21
func TestRetriesUntilItWorks(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		s := inTurn(fails(failure(frames.CodeExecution, retryable, noEffect)), fails(failure(frames.CodeExecution, retryable, noEffect)), ok("a"))
		w.serve("a", retrying(), s.handle)
		res := w.d.Do(t.Context(), call("1"))
		if res.Err != nil || res.Attempts != 3 || !cmp.Equal(s.attempts(), []int64{0, 1, 2}) {
			t.Errorf("%v after %d attempts, seen %v", res.Err, res.Attempts, s.attempts())
		}
		if n := w.d.Stats().Retries; n != 2 {
			t.Errorf("%d retries counted", n)
		}
		w.holdsNothing()
	})
}

// Whether another attempt follows is asked of the error's type, its effect and
// the tool's declaration, never of its text.
//
// contract: W20, B27, S27, B34
func TestWhatIsRetried(t *testing.T) {
	silence := func(*bus.Request) {}
	onlyEnd := func(q *bus.Request) { _ = q.End(frames.EndCompleted) }
	unsaid := says(`{"type":"TOOL_RESULT","content":{"isError":true,"error":{"code":"EXECUTION","message":"it failed"}}}`)
	text := says(`{"type":"TOOL_RESULT","content":{"isError":true,"error":"it failed"}}`)
	for name, c := range map[string]struct {
		decl     frames.Declaration
		answer   func(q *bus.Request)
		attempts int
		code     frames.Code
	}{
		"retryable without effect":   {retrying(), fails(failure("EXECUTION", retryable, noEffect)), 3, "EXECUTION"},
		"retryable, may have acted":  {retrying(), fails(failure("EXECUTION", retryable)), 1, "EXECUTION"},
		"the same of a safe tool":    {retrying(replaySafe), fails(failure("EXECUTION", retryable)), 3, "EXECUTION"},
		"the same of an idempotent":  {retrying(idempotent), fails(failure("EXECUTION", retryable)), 3, "EXECUTION"},
		"the same of a reading one":  {retrying(func(d *frames.Declaration) { d.Annotations.ReadOnly = true }), fails(failure("EXECUTION", retryable)), 3, "EXECUTION"},
		"said to be no use":          {retrying(replaySafe), fails(failure("EXECUTION", noEffect)), 1, "EXECUTION"},
		"nothing said, safe":         {retrying(replaySafe), unsaid, 3, "EXECUTION"},
		"nothing but a text, safe":   {retrying(replaySafe), text, 3, "EXECUTION"},
		"nothing said, unsafe":       {retrying(), unsaid, 1, "EXECUTION"},
		"the caller's fault":         {retrying(replaySafe), fails(failure("VALIDATION_INPUT", noEffect)), 1, "VALIDATION_INPUT"},
		"nothing there":              {retrying(replaySafe), fails(failure("NOT_FOUND")), 1, "NOT_FOUND"},
		"what it needs is down":      {retrying(), fails(failure("UNAVAILABLE")), 3, "UNAVAILABLE"},
		"time-out":                   {retrying(), silence, 1, "TIMEOUT"},
		"time-out, idempotent":       {retrying(idempotent), silence, 1, "TIMEOUT"},
		"time-out, safe":             {retrying(replaySafe), silence, 3, "TIMEOUT"},
		"the tool's own time-out":    {retrying(), fails(failure("TIMEOUT", retryable, noEffect)), 1, "TIMEOUT"},
		"the same, safe":             {retrying(replaySafe), fails(failure("TIMEOUT", retryable)), 3, "TIMEOUT"},
		"no result":                  {retrying(), onlyEnd, 1, "NO_RESULT"},
		"no result, safe":            {retrying(replaySafe), onlyEnd, 3, "NO_RESULT"},
		"no retries declared":        {retrying(replaySafe, func(d *frames.Declaration) { d.Retries = 0 }), fails(failure("EXECUTION", retryable, noEffect)), 1, "EXECUTION"},
		"text that asks for retries": {retrying(), fails(failure("EXECUTION", noEffect, func(e *frames.Error) { e.Message = "retryable: try again" })), 1, "EXECUTION"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				s := inTurn(c.answer)
				w.serve("a", c.decl, s.handle)
				res := w.d.Do(t.Context(), call("1"))
				wantCode(t, res, c.code)
				if res.Attempts != c.attempts || len(s.attempts()) != c.attempts {
					t.Errorf("%d attempts, the tool saw %d, want %d", res.Attempts, len(s.attempts()), c.attempts)
				}
				if replay := c.decl.ReplaySafe(); res.Err.Code == frames.CodeTimeout && res.Err.Retryable != replay {
					t.Errorf("retryable %v, replay safe %v", res.Err.Retryable, replay)
				}
				after := strings.Contains(res.Err.Message, "attempts")
				if want := c.attempts > 1 && c.code == frames.CodeExecution; after != want {
					t.Errorf("message %q", res.Err.Message)
				}
				<-time.After(time.Minute)
				w.holdsNothing()
			})
		})
	}
}

// contract: S13, S25
func TestTextAndPausesOfSeveralAttempts(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		d := retrying(func(d *frames.Declaration) {
			d.Retries, d.Backoff = 40, frames.Backoff{BaseMs: 100, MaxMs: 400}
		})
		bad := failure(frames.CodeExecution, retryable, noEffect)
		bad.LLMMessage = "The disk is full."
		s := inTurn(fails(bad))
		w.serve("a", d, s.handle)
		res := w.d.Do(t.Context(), call("1"))
		if res.Err.Message != "it failed after 41 attempts" || res.Err.LLMMessage != "The disk is full. (It was tried 41 times.)" {
			t.Errorf("%q, %q", res.Err.Message, res.Err.LLMMessage)
		}
		various := map[time.Duration]bool{}
		for i := 1; i < len(s.at); i++ {
			pause, most := s.at[i].Sub(s.at[i-1]), d.Backoff.Most(i)
			various[pause] = true
			if pause < 0 || pause > most {
				t.Errorf("pause %d is %v, more than %v", i, pause, most)
			}
		}
		if len(various) < 10 {
			t.Errorf("the pauses are no random ones: %v", various)
		}
	})
}

// A tool that says when to come again is not asked before.
func TestRetryAfterIsHeeded(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		s := inTurn(fails(failure(frames.CodeExecution, retryable, noEffect, func(e *frames.Error) { e.RetryAfter = 7 * time.Second })), ok("a"))
		w.serve("a", retrying(), s.handle)
		allFine(t, w.together(1))
		if pause := s.at[1].Sub(s.at[0]); pause != 7*time.Second {
			t.Errorf("paused %v", pause)
		}
	})
}

// Between two attempts a call ends with its caller's context, at once.
//
// contract: S25
func TestCancelBetweenAttempts(t *testing.T) {
	for name, effect := range map[string]frames.Effect{"none": frames.EffectNone, "unknown": frames.EffectUnknown} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				bad := failure(frames.CodeExecution, retryable, func(e *frames.Error) { e.Effect, e.RetryAfter = effect, time.Minute })
				s := inTurn(fails(bad))
				w.serve("a", retrying(replaySafe), s.handle)
				start := time.Now()
				res := w.d.Do(within(t, 3*time.Second), call("1"))
				wantCode(t, res, frames.CodeTimeout)
				if took := time.Since(start); took != 3*time.Second || res.Err.Effect != effect || len(s.attempts()) != 1 {
					t.Errorf("after %v: effect %s, %d attempts", took, res.Err.Effect, len(s.attempts()))
				}
				<-time.After(2 * time.Minute)
				if len(s.attempts()) != 1 {
					t.Error("the tool was called again")
				}
				w.holdsNothing()
			})
		})
	}
}

// Each attempt has the tool's time-out, all together the caller's, or the one
// that the tool declares for all.
//
// contract: S26
func TestBudgetOfAllAttempts(t *testing.T) {
	silence := func(*bus.Request) {}
	endless := func(d *frames.Declaration) { d.Retries, d.Backoff.MaxMs = 50, 1 }
	for name, c := range map[string]struct {
		decl    frames.Declaration
		timeout time.Duration
		took    time.Duration
		message string
	}{
		"the caller's":          {retrying(replaySafe, endless), 3500 * time.Millisecond, 3500 * time.Millisecond, "Tool echo timed out after 3500ms"},
		"shorter than one":      {retrying(replaySafe, endless), 300 * time.Millisecond, 300 * time.Millisecond, "Tool echo timed out after 300ms"},
		"the tool's":            {retrying(replaySafe, endless, func(d *frames.Declaration) { d.Backoff.TotalMs = 2500 }), 0, 2500 * time.Millisecond, "Tool echo timed out after 2500ms"},
		"the shorter of both":   {retrying(replaySafe, endless, func(d *frames.Declaration) { d.Backoff.TotalMs = 2500 }), time.Hour, 2500 * time.Millisecond, "Tool echo timed out after 2500ms"},
		"a longer one does not": {retrying(replaySafe, func(d *frames.Declaration) { d.Retries, d.Backoff.MaxMs = 1, 1 }), time.Minute, 2 * time.Second, "Tool echo timed out after 1000ms"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				w.serve("a", c.decl, silence)
				start := time.Now()
				q := call("1")
				q.Timeout = c.timeout
				res := w.d.Do(t.Context(), q)
				wantCode(t, res, frames.CodeTimeout)
				if took := time.Since(start); took < c.took || took > c.took+10*time.Millisecond || res.Err.Message != c.message {
					t.Errorf("%q after %v, want %q after %v", res.Err.Message, took, c.message, c.took)
				}
			})
		})
	}
}

// A retry that finds no instance in time ends with what the attempt before said.
func TestRetryThatFindsNoInstance(t *testing.T) {
	for name, then := range map[string]func(w *world, a *fake){
		"gone": func(_ *world, a *fake) { a.vanish() },
		"full": func(w *world, _ *fake) {
			go w.d.Do(w.t.Context(), call("other"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{QueueWait: 10 * time.Second}, func(t *testing.T, w *world) {
				d := retrying(func(d *frames.Declaration) { d.Concurrency, d.TimeoutMs = 1, new(int64) })
				later := failure(frames.CodeExecution, retryable, noEffect, func(e *frames.Error) { e.RetryAfter = time.Second })
				s := inTurn(fails(later), func(*bus.Request) {})
				a := w.serve("a", d, s.handle)
				out := make(chan *frames.ToolResult, 1)
				go func() { out <- w.d.Do(t.Context(), call("1")) }()
				synctest.Wait()
				then(w, a)
				res := <-out
				wantCode(t, res, frames.CodeExecution)
				if res.Attempts != 1 || res.Err.Message != "it failed" || res.Instance != "a" {
					t.Errorf("got %+v, %v", res, res.Err)
				}
				w.d.Cancel("me", "other")
				<-time.After(time.Minute)
			})
		})
	}
}

// The result of an attempt that was given up is no answer to the next one, and
// what it still says goes to nobody.
//
// contract: B7, P25, S28
func TestLateResultOfAnAttempt(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		s := inTurn(func(q *bus.Request) {
			<-time.After(1100 * time.Millisecond)
			_ = q.Send(frames.Text("late"))
			ok("late")(q)
		}, func(q *bus.Request) {
			<-time.After(500 * time.Millisecond)
			_ = q.Send(frames.Text("second"))
			ok("second")(q)
		})
		d := retrying(replaySafe, func(d *frames.Declaration) { d.Backoff.MaxMs = 1 })
		a := w.serve("a", d, s.handle)
		var texts []string
		c := call("1")
		c.OnFrame = func(f *frames.Frame) { texts = append(texts, f.Text()) }
		res := w.d.Do(t.Context(), c)
		if res.Err != nil || string(res.Result) != `{"by":"second"}` || res.Attempts != 2 {
			t.Errorf("got %s, %v after %d", res.Result, res.Err, res.Attempts)
		}
		if !cmp.Equal(texts, []string{"second"}) || w.d.Stats().LateResults != 1 {
			t.Errorf("texts %v, %d late", texts, w.d.Stats().LateResults)
		}
		if got := a.cancelled(); len(got) != 1 {
			t.Errorf("CANCEL reached the tool for %v", got)
		}
		w.holdsNothing()
	})
}

// A safe call whose instance dies goes to another one; where it may have acted it
// does not.
func TestRetryOfAnInstanceThatDies(t *testing.T) {
	for name, c := range map[string]struct {
		decl frames.Declaration
		code frames.Code
	}{"safe": {retrying(replaySafe, forAnHour), ""}, "unsafe": {retrying(forAnHour), "INTERRUPTED"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				a := w.serve("a", c.decl, func(*bus.Request) {})
				out := make(chan *frames.ToolResult, 1)
				go func() { out <- w.d.Do(t.Context(), call("1")) }()
				synctest.Wait()
				b := w.serve("b", c.decl, ok("b"))
				a.vanish()
				for range 5 {
					<-time.After(5 * time.Second)
					b.alive()
				}
				res := <-out
				if frames.CodeOf(errOf(res)) != c.code {
					t.Errorf("got %v", res.Err)
				}
				if c.code == "" && (res.Attempts != 2 || res.Instance != "b") {
					t.Errorf("got %+v", res)
				}
				w.holdsNothing()
			})
		})
	}
}

func forAnHour(d *frames.Declaration) { d.TimeoutMs = new(int64) }

func errOf(res *frames.ToolResult) error {
	if res.Err == nil {
		return nil
	}
	return res.Err
}

// speaking says something each 900 ms, n times, and nothing more.
func speaking(f frames.Frame, n int) func(q *bus.Request) {
	return func(q *bus.Request) {
		for range n {
			<-time.After(900 * time.Millisecond)
			_ = q.Send(f)
		}
	}
}

// What a tool says refreshes its idle time-out, never the total one.
//
// contract: F1, B22
func TestIdleTimeout(t *testing.T) {
	idle := func(total int64) frames.Declaration {
		return frames.Declaration{Name: "echo", IdleTimeoutMs: 1000, TimeoutMs: &total}
	}
	progress := frames.Progress(map[string]any{"progress": 1})
	for name, c := range map[string]struct {
		total  int64
		handle func(q *bus.Request)
		took   time.Duration
		text   string
		reason string
	}{
		"silent":     {60_000, func(*bus.Request) {}, time.Second, "1000ms", "idle"},
		"TICK":       {60_000, speaking(frames.Tick(), 5), 5500 * time.Millisecond, "1000ms", "idle"},
		"PROGRESS":   {60_000, speaking(progress, 5), 5500 * time.Millisecond, "1000ms", "idle"},
		"TEXT":       {60_000, speaking(frames.Text("x"), 5), 5500 * time.Millisecond, "1000ms", "idle"},
		"total":      {3000, speaking(frames.Tick(), 50), 3 * time.Second, "3000ms", ""},
		"total less": {700, func(*bus.Request) {}, 700 * time.Millisecond, "700ms", ""},
		"none":       {0, speaking(frames.Tick(), 5000), time.Hour, "3600000ms", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				a := w.serve("a", idle(c.total), c.handle)
				beating := make(chan struct{})
				go func() {
					for {
						select {
						case <-beating:
							return
						case <-time.After(5 * time.Second):
							a.alive()
						}
					}
				}()
				start := time.Now()
				res := w.d.Do(t.Context(), call("1"))
				wantCode(t, res, frames.CodeTimeout)
				if took := time.Since(start); took != c.took || res.Err.Message != "Tool echo timed out after "+c.text || res.Err.Reason != c.reason {
					t.Errorf("%q (%s) after %v", res.Err.Message, res.Err.Reason, took)
				}
				close(beating)
				synctest.Wait()
				if got := a.cancelled(); len(got) != 1 {
					t.Errorf("CANCEL reached the tool for %v", got)
				}
				<-time.After(2 * time.Hour)
			})
		})
	}
}

// A tool that declares no time-out has the dispatcher's; one that declares 0 has
// none but the ceiling.
//
// contract: W12, B25, B22, A34, A15
func TestDefaultTimeoutOfTheDispatcher(t *testing.T) {
	silence := func(*bus.Request) {}
	for name, c := range map[string]struct {
		cfg  dispatch.Config
		ms   *int64
		want time.Duration
	}{
		"neither":    {dispatch.Config{}, nil, 30 * time.Second},
		"configured": {dispatch.Config{DefaultTimeout: 7 * time.Second}, nil, 7 * time.Second},
		"longer":     {dispatch.Config{DefaultTimeout: 7 * time.Minute}, nil, 7 * time.Minute},
		"declared":   {dispatch.Config{DefaultTimeout: 7 * time.Second}, new(int64(9000)), 9 * time.Second},
		"none":       {dispatch.Config{DefaultTimeout: 7 * time.Second}, new(int64(0)), time.Hour},
		"above":      {dispatch.Config{}, new(int64(1 << 50)), time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.cfg, func(t *testing.T, w *world) {
				w.plain("other", silence)
				p := w.plain("echo", silence)
				p.decl.TimeoutMs = c.ms
				start := time.Now()
				res := w.d.Do(t.Context(), call("1"))
				wantCode(t, res, frames.CodeTimeout)
				if took := time.Since(start).Truncate(time.Second); took != c.want {
					t.Errorf("after %v, want %v", took, c.want)
				}
				if want := fmt.Sprintf("Tool echo timed out after %dms", c.want.Milliseconds()); res.Err.Message != want {
					t.Errorf("%q", res.Err.Message)
				}
			})
		})
	}
	for _, bad := range []time.Duration{-1, time.Hour + 1} {
		if err := (dispatch.Config{DefaultTimeout: bad}).Validate(); err == nil || !strings.Contains(err.Error(), "DefaultTimeout") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// The tool's own time-out is the call's error, with the caller's right to repeat
// it decided by the declaration alone.
//
// contract: A34, B27
func TestTimeoutInTheTool(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		w.serve("a", frames.Declaration{Name: "echo"}, fails(frames.Timeout("echo", time.Second).WithReplay(true)))
		res := w.d.Do(t.Context(), call("1"))
		wantCode(t, res, frames.CodeTimeout)
		if res.Err.Retryable || res.Err.Message != "Tool echo timed out after 1000ms" {
			t.Errorf("%+v", res.Err)
		}
	})
}

// The connection comes back between two attempts.
func TestRetryOverAReconnect(t *testing.T) {
	inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
		d := retrying(func(d *frames.Declaration) { d.Retries, d.Backoff = 20, frames.Backoff{BaseMs: 2000, MaxMs: 2000} })
		a := w.serve("a", d, ok("a"))
		w.line.Cut()
		synctest.Wait()
		go func() {
			<-time.After(3 * time.Second)
			w.line.Mend()
			for range 10 {
				<-time.After(4 * time.Second)
				a.alive()
			}
		}()
		allFine(t, w.together(1))
		<-time.After(time.Minute)
	})
}
