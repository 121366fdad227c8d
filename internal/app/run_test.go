package app_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal keeps what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) addf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.lines
	j.lines = nil
	return out
}

// worker is a service that is ready after a second and drains for a while.
func (j *journal) worker(name string, stage app.Stage, drain time.Duration) app.Service {
	return app.Service{Name: name, Stage: stage, Run: func(ctx context.Context, env app.Env, ready func()) error {
		j.addf("start %s", name)
		<-time.After(time.Second)
		ready()
		ready() // more calls do nothing
		<-ctx.Done()
		j.addf("drain %s", name)
		select {
		case <-time.After(drain):
			j.addf("end %s", name)
		case <-env.Work.Done():
			j.addf("cut %s: %v", name, context.Cause(env.Work))
		}
		return nil
	}}
}

// run is a Run in the background of a bubble.
type run struct {
	signals chan os.Signal
	cancel  context.CancelFunc
	result  chan error
}

// begin starts cfg; the signals are the test's.
func begin(t *testing.T, cfg app.Config, services ...app.Service) *run {
	t.Helper()
	r := &run{signals: make(chan os.Signal, 2), result: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r.cancel = cancel
	cfg.Signals, cfg.Services = r.signals, services
	go func() { r.result <- app.Run(ctx, cfg) }()
	return r
}

func (r *run) signal() { r.signals <- syscall.SIGTERM }

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantError(t *testing.T, err error, code frames.Code, exit int, says string) {
	t.Helper()
	if frames.CodeOf(err) != code || app.ExitCode(err) != exit || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("err = %v (exit %d), want %s, exit %d, that says %q", err, app.ExitCode(err), code, exit, says)
	}
}

// Dependents start last, each stage when the one below is ready, and stop first.
func TestStagesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		isReady := func() { j.addf("all ready after %v", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))) }
		r := begin(t, app.Config{OnReady: isReady},
			j.worker("entry", app.StageEntry, time.Second), j.worker("nats", app.StageNATS, 0),
			j.worker("router", app.StageRouter, time.Second), j.worker("loop", app.StageLoop, time.Second),
			j.worker("tools", app.StageTools, time.Second), j.worker("harness", app.StageHarness, time.Second))
		<-time.After(10 * time.Second)
		want(t, "start", j.take(), []string{"start nats", "start harness", "start tools", "start router",
			"start loop", "start entry", "all ready after 6s"})
		r.signal()
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		want(t, "stop", j.take(), []string{"drain entry", "end entry", "drain loop", "end loop", "drain router",
			"end router", "drain tools", "end tools", "drain harness", "end harness", "drain nats", "end nats"})
	})
}

// Services of one stage start and drain side by side.
func TestOneStageTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		r := begin(t, app.Config{}, j.worker("a", app.StageTools, 9*time.Second), j.worker("b", app.StageTools, 9*time.Second))
		<-time.After(time.Minute)
		start := time.Now()
		r.cancel() // the end of the context is as good as a signal
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		want(t, "drained in", time.Since(start), 9*time.Second)
	})
}

// The work goes on for the soft stop, over all stages, and is then cancelled.
func TestSoftStopIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		r := begin(t, app.Config{}, j.worker("entry", app.StageEntry, 15*time.Second), j.worker("router", app.StageRouter, 15*time.Second))
		<-time.After(time.Minute)
		j.take()
		start := time.Now()
		r.signal()
		err := <-r.result
		wantError(t, err, frames.CodeInterrupted, 3, "work of router was cancelled: hard stop: soft stop is over")
		want(t, "stopped in", time.Since(start), 20*time.Second)
		want(t, "stop", j.take(), []string{"drain entry", "end entry", "drain router", "cut router: hard stop: soft stop is over"})
	})
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		r := begin(t, app.Config{}, j.worker("entry", app.StageEntry, time.Hour), j.worker("router", app.StageRouter, time.Hour))
		<-time.After(time.Minute)
		start := time.Now()
		r.signal()
		synctest.Wait()
		r.signal()
		err := <-r.result
		wantError(t, err, frames.CodeInterrupted, 3, "work of entry, router was cancelled: hard stop: second signal")
		if !errors.Is(err, app.ErrHardStop) {
			t.Errorf("%v does not wrap ErrHardStop", err)
		}
		want(t, "stopped in", time.Since(start), time.Duration(0))
	})
}

// A service that does not even return is left behind.
func TestStubbornService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stubborn := app.Service{Name: "stubborn", Stage: app.StageTools, Run: func(_ context.Context, _ app.Env, ready func()) error {
			ready()
			<-release
			return nil
		}}
		r := begin(t, app.Config{SoftStop: time.Second, HardStop: 3 * time.Second}, stubborn)
		synctest.Wait()
		start := time.Now()
		r.signal()
		wantError(t, <-r.result, frames.CodeInterrupted, 3, "work of stubborn")
		want(t, "stopped in", time.Since(start), 4*time.Second)
		close(release)
	})
}

func TestSignalDuringStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		r := begin(t, app.Config{OnReady: func() { j.addf("ready") }},
			j.worker("harness", app.StageHarness, 0), j.worker("router", app.StageRouter, 0))
		synctest.Wait()
		r.signal()
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		want(t, "events", j.take(), []string{"start harness", "drain harness", "end harness"})
	})
}

// A failure takes the others down in order and is named.
func TestFailure(t *testing.T) {
	t.Parallel()
	refused := frames.NewError(frames.CodeDenied, "no key")
	tests := map[string]struct {
		run  func(context.Context, app.Env, func()) error
		code frames.Code
		exit int
		says string
	}{
		"with a code": {func(context.Context, app.Env, func()) error { return fmt.Errorf("open: %w", refused) },
			frames.CodeDenied, 5, "broken: no key"},
		"without a code": {func(context.Context, app.Env, func()) error { return errors.New("oh") },
			frames.CodeInternal, 1, "broken: oh"},
		"ended by itself": {func(context.Context, app.Env, func()) error { return nil },
			frames.CodeInternal, 1, "broken: ended by itself"},
		"panic": {func(context.Context, app.Env, func()) error { panic("boom") },
			frames.CodeInternal, 1, "broken: panic: boom"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				broken := app.Service{Name: "broken", Stage: app.StageRouter, Run: func(ctx context.Context, env app.Env, ready func()) error {
					ready()
					<-time.After(time.Minute)
					return tt.run(ctx, env, ready)
				}}
				r := begin(t, app.Config{}, broken, j.worker("entry", app.StageEntry, time.Second), j.worker("harness", app.StageHarness, time.Second))
				wantError(t, <-r.result, tt.code, tt.exit, tt.says)
				want(t, "events", j.take(), []string{"start harness", "start entry", "drain entry", "end entry", "drain harness", "end harness"})
			})
		})
	}
}

// The first failure counts, and dependents of a service that cannot start never do.
func TestFailureAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		broken := app.Service{Name: "broken", Stage: app.StageHarness, Run: func(context.Context, app.Env, func()) error {
			<-time.After(time.Minute)
			return frames.NewError(frames.CodeUnavailable, "no stream")
		}}
		bad := app.Service{Name: "bad", Stage: app.StageNATS, Run: func(ctx context.Context, _ app.Env, ready func()) error {
			ready()
			<-ctx.Done()
			return errors.New("second failure")
		}}
		r := begin(t, app.Config{}, broken, bad, j.worker("router", app.StageRouter, 0))
		wantError(t, <-r.result, frames.CodeUnavailable, 4, "broken: no stream")
		want(t, "events", j.take(), []string(nil))
	})
}

// An error while draining is a failure too.
func TestFailureWhileDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		svc := app.Service{Name: "store", Stage: app.StageNATS, Run: func(ctx context.Context, _ app.Env, ready func()) error {
			ready()
			<-ctx.Done()
			return errors.New("not closed")
		}}
		r := begin(t, app.Config{}, svc)
		synctest.Wait()
		r.signal()
		wantError(t, <-r.result, frames.CodeInternal, 1, "store: not closed")
	})
}

func TestOneShotEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		command := app.Service{Name: "call", Stage: app.StageEntry, OneShot: true, Run: func(_ context.Context, _ app.Env, ready func()) error {
			ready()
			j.addf("call")
			return nil
		}}
		r := begin(t, app.Config{}, command, j.worker("router", app.StageRouter, time.Second))
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		want(t, "events", j.take(), []string{"start router", "call", "drain router", "end router"})
	})
}

func TestPanicIsLoggedWithItsStack(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := app.Config{
		Log: slog.New(slog.NewTextHandler(&out, nil)),
		Services: []app.Service{{Name: "broken", Stage: app.StageTools, Run: func(context.Context, app.Env, func()) error {
			panic("boom")
		}}},
	}
	wantError(t, app.Run(t.Context(), cfg), frames.CodeInternal, 1, "broken: panic: boom")
	if log := out.String(); !strings.Contains(log, "service=broken value=boom stack=") || !strings.Contains(log, "run_test.go") {
		t.Errorf("log:\n%s", log)
	}
}

func TestWrongConfig(t *testing.T) {
	t.Parallel()
	idle := func(context.Context, app.Env, func()) error { return nil }
	ok := app.Service{Name: "a", Stage: app.StageTools, Run: idle}
	tests := map[string]app.Config{
		"none given":    {},
		"twice":         {Services: []app.Service{ok, ok}},
		"no name":       {Services: []app.Service{{Stage: app.StageTools, Run: idle}}},
		"no Run":        {Services: []app.Service{{Name: "a", Stage: app.StageTools}}},
		"unknown stage": {Services: []app.Service{{Name: "a", Run: idle}}},
		"Connect":       {Services: []app.Service{{Name: "a", Stage: app.StageTools, Run: idle, Identity: "me"}}},
		"SoftStop":      {Services: []app.Service{ok}, SoftStop: -1},
		"AdminAddr":     {Services: []app.Service{ok}, AdminAddr: "nowhere"},
	}
	for says, cfg := range tests {
		wantError(t, app.Run(t.Context(), cfg), frames.CodeValidationInput, 1, says)
	}
}

// Who watches the stop hears of each stage as it is asked to end.
func TestOnDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var asked [][]string
		r := begin(t, app.Config{OnDrain: func(services []string) { asked = append(asked, services) }},
			j.worker("harness", app.StageHarness, time.Second), j.worker("router", app.StageRouter, 0), j.worker("llm", app.StageTools, 0))
		<-time.After(time.Minute)
		r.signal()
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		want(t, "asked to end", asked, [][]string{{"router"}, {"llm"}, {"harness"}})
	})
}
