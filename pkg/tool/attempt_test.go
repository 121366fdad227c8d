package tool_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// stage is a tool whose calls run until the test ends them, or they are stopped.
type stage struct {
	mu   sync.Mutex
	runs map[string]chan struct{} // by id and attempt
	seen []tool.Info
}

func staged(t *testing.T, s *tool.Set, name string, opts ...tool.Option) *stage {
	t.Helper()
	st := &stage{runs: map[string]chan struct{}{}}
	must(t, tool.Add(s, name, func(ctx context.Context, _ struct{}) (string, error) {
		info, done := tool.CallInfo(ctx), make(chan struct{})
		st.mu.Lock()
		st.seen = append(st.seen, info)
		st.runs[key(info)] = done
		st.mu.Unlock()
		defer func() {
			st.mu.Lock()
			defer st.mu.Unlock()
			delete(st.runs, key(info))
		}()
		select {
		case <-done:
			return "done", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}, opts...))
	return st
}

func key(i tool.Info) string { return i.ID + "/" + string(rune('0'+i.Attempt)) }

func (s *stage) running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for k := range s.runs {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (s *stage) end(k string) {
	s.mu.Lock()
	close(s.runs[k])
	s.mu.Unlock()
	synctest.Wait()
}

func (s *service) begin(name, id string, meta ...frames.Option) *pending {
	s.r.t.Helper()
	f := frames.Call(name, []byte(`{}`), append(meta, frames.WithCall(id, name))...)
	p := s.start(name, &f)
	synctest.Wait()
	return p
}

func wantRunning(t *testing.T, s *stage, want ...string) {
	t.Helper()
	if got := s.running(); !slices.Equal(got, want) {
		t.Errorf("%v run, want %v", got, want)
	}
}

var ahead = frames.WithMeta("ahead", true)

// A full instance holds one call that was sent ahead, and starts it in the place
// of one that ends; its time runs from then on.
func TestCallThatWasSentAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		st := staged(t, s, "x", tool.Concurrency(1), tool.Timeout(time.Second))
		srv := setup(t).serve(s, "i1")
		a, b := srv.begin("x", "a"), srv.begin("x", "b", ahead)
		if got := srv.begin("x", "c", ahead).end(); got.code() != frames.CodeBusy {
			t.Errorf("a second one ahead: %v", got.result.Err)
		}
		wantRunning(t, st, "a/0")
		<-time.After(90 * time.Millisecond)
		st.end("a/0")
		wantRunning(t, st, "b/0")
		if got := a.end(); got.code() != "" {
			t.Error(got.result.Err)
		}
		start := time.Now()
		if got := b.end(); got.code() != frames.CodeTimeout || time.Since(start) != time.Second {
			t.Errorf("%v after %v", got.result.Err, time.Since(start))
		}
		if got := srv.call("x", "{}", ahead, frames.WithMeta("timeoutMs", 10)); got.code() != frames.CodeTimeout {
			t.Errorf("with a free slot: %v", got.result.Err)
		}
	})
}

// It waits for a moment only, and may be told to stop meanwhile: in no case it
// has run then.
func TestCallThatWaitsAheadInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		st := staged(t, s, "x", tool.Concurrency(1))
		srv := setup(t).serve(s, "i1")
		a := srv.begin("x", "a")
		start := time.Now()
		got := srv.begin("x", "b", ahead).end()
		if took := time.Since(start); got.code() != frames.CodeBusy || got.result.Err.Effect != frames.EffectNone || took != 100*time.Millisecond {
			t.Errorf("%v after %v", got.result.Err, took)
		}
		c := srv.begin("x", "c", ahead)
		f := frames.Cancel("c", "x")
		if _, err := srv.control(f); err != nil {
			t.Error(err)
		}
		if got := c.end(); got.code() != frames.CodeCancelled || got.result.Err.Effect != frames.EffectNone {
			t.Errorf("cancelled: %+v", got.result.Err)
		}
		if state := srv.whoRuns("c"); state != "unknown" {
			t.Errorf("state %q of a call that did not run", state)
		}
		d := srv.begin("x", "d", ahead)
		ended := make(chan error, 1)
		go func() { ended <- srv.end() }()
		if got := d.end(); got.code() != frames.CodeBusy {
			t.Errorf("at the drain: %v", got.result.Err)
		}
		st.end("a/0")
		a.end()
		must(t, <-ended)
		if len(st.seen) != 1 {
			t.Errorf("%d calls ran", len(st.seen))
		}
	})
}

// A tool that runs a loop that calls the tool again does not take a slot from
// itself.
func TestSlotsOfEachDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		st := staged(t, s, "x", tool.Concurrency(1))
		srv := setup(t).serve(s, "i1")
		var open []*pending
		for depth := range 5 {
			open = append(open, srv.begin("x", string(rune('a'+depth)), frames.WithMeta("depth", depth)))
		}
		wantRunning(t, st, "a/0", "b/0", "c/0", "d/0", "e/0")
		if got := srv.call("x", "{}", frames.WithMeta("depth", 4)); got.code() != frames.CodeBusy {
			t.Errorf("a second one of a depth: %v", got.result.Err)
		}
		for _, depth := range []int{5, 1 << 40} {
			got := srv.call("x", "{}", frames.WithMeta("depth", depth))
			if got.code() != frames.CodeLimit || got.result.Err.Effect != frames.EffectNone {
				t.Errorf("depth %d: %v", depth, got.result.Err)
			}
		}
		for _, k := range st.running() {
			st.end(k)
		}
		for _, p := range open {
			p.end()
		}
	})
}

// A later attempt starts beside one before it that was told to stop and has not;
// CANCEL means the attempt that it names.
//
// contract: W11
func TestAttemptsBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		st := staged(t, s, "x")
		srv := setup(t).serve(s, "i1")
		attempt := func(n int) frames.Option { return frames.WithMeta("attempt", n) }
		first, second, third := srv.begin("x", "a"), srv.begin("x", "a", attempt(1)), srv.begin("x", "a", attempt(2))
		for _, n := range []int{0, 2} {
			if got := srv.begin("x", "a", attempt(n)).end(); got.code() != frames.CodeConflict || got.result.Err.Effect != frames.EffectNone {
				t.Errorf("attempt %d again: %v", n, got.result.Err)
			}
		}
		cancel := frames.Cancel("a", "x", attempt(1))
		if _, err := srv.control(cancel); err != nil {
			t.Error(err)
		}
		if got := second.end(); got.code() != frames.CodeCancelled {
			t.Error(got.result.Err)
		}
		wantRunning(t, st, "a/0", "a/2")
		st.end("a/2")
		if got := third.end(); got.code() != "" || got.result.Attempts != 3 {
			t.Errorf("%+v", got.result)
		}
		if state := srv.whoRuns("a"); state != "running" {
			t.Errorf("state %q", state)
		}
		cancel = frames.Cancel("a", "x")
		if _, err := srv.control(cancel); err != nil {
			t.Error(err)
		}
		if got := first.end(); got.code() != frames.CodeCancelled {
			t.Error(got.result.Err)
		}
		if state := srv.whoRuns("a"); state != "done" {
			t.Errorf("state %q", state)
		}
		wantRunning(t, st)
	})
}

// An instance says that it works often enough for the idle time-out of its tool.
//
// contract: F1
func TestTicksOfAnImpatientTool(t *testing.T) {
	for idle, most := range map[time.Duration]time.Duration{
		0: 5 * time.Second, time.Minute: 5 * time.Second, 3 * time.Second: time.Second, 300 * time.Millisecond: 100 * time.Millisecond, time.Millisecond: 50 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := tool.NewSet("test")
			staged(t, s, "x", tool.IdleTimeout(idle), tool.Timeout(10*most+time.Millisecond))
			a := setup(t).serve(s, "i1").call("x", "{}")
			ticks := 0
			for _, f := range a.frames {
				if f.Type == frames.TypeTick {
					ticks++
				}
			}
			if ticks != 10 {
				t.Errorf("idle time-out %v: %d TICKs in 10 times %v", idle, ticks, most)
			}
		})
	}
}

// A tool without a time-out of its own runs as long as its dispatcher says.
//
// contract: W12
func TestTimeoutOfTheDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		staged(t, s, "x")
		srv := setup(t).serve(s, "i1")
		for ms, want := range map[int]string{45_000: "45000ms", 500: "500ms", 0: "30000ms", -5: "30000ms", 1 << 50: "3600000ms"} {
			e := srv.call("x", "{}", frames.WithMeta("timeoutMs", ms)).result.Err
			if e == nil || e.Message != "Tool x timed out after "+want {
				t.Errorf("timeoutMs %d: %v, want %s", ms, e, want)
			}
		}
	})
}

// A tool that declares retries means them for errors that say nothing of it.
//
// contract: W21
func TestErrorsOfAToolWithRetries(t *testing.T) {
	t.Parallel()
	plain := errors.New("the line was cut")
	errs := map[string]struct {
		err       error
		retryable bool
		effect    frames.Effect
	}{
		"plain":     {plain, true, frames.EffectUnknown},
		"said":      {tool.Fail("no_use", "no use"), false, frames.EffectUnknown},
		"retryable": {tool.Retryable(tool.Fail("later", "later")), true, frames.EffectUnknown},
		"harmless":  {tool.Retryable(tool.NoEffect(plain)), true, frames.EffectNone},
		"foreign":   {frames.NewError(frames.CodeConflict, "x"), false, frames.EffectNone},
	}
	if tool.NoEffect(nil) != nil {
		t.Error("no error became one")
	}
	s := tool.NewSet("test")
	for name, c := range errs {
		must(t, tool.Add(s, name[:3], func(context.Context, struct{}) (string, error) { return "", c.err }, tool.Retries(2, frames.Backoff{})))
	}
	srv := setup(t).serve(s, "i1")
	for name, c := range errs {
		if e := srv.call(name[:3], "{}").result.Err; e.Retryable != c.retryable || e.Effect != c.effect {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestOptionsOfAttempts(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "x", search, tool.Retries(3, frames.Backoff{BaseMs: 10}), tool.IdleTimeout(2*time.Second), tool.LockKey("query")))
	d := s.Declarations()[0]
	if d.Retries != 3 || d.Backoff.BaseMs != 10 || d.IdleTimeoutMs != 2000 || d.LockKey != "query" {
		t.Errorf("%+v", d)
	}
	for name, opt := range map[string]tool.Option{
		"retries": tool.Retries(101, frames.Backoff{}), "fewer": tool.Retries(-1, frames.Backoff{}),
		"backoff": tool.Retries(1, frames.Backoff{MaxMs: -1}), "idle": tool.IdleTimeout(-time.Second), "fraction": tool.IdleTimeout(time.Microsecond),
	} {
		if err := tool.Add(s, "y", search, opt); frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}
