package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// hear gives what an identity publishes on wb.announce, by subject.
type heard struct {
	mu   sync.Mutex
	list []string
	last map[string]frames.Frame
}

func (r *rig) hear() *heard {
	r.t.Helper()
	h := &heard{last: map[string]frames.Frame{}}
	nc := r.mesh.Connect(r.t, "observer")
	_, err := nc.Subscribe("wb.announce.>", func(m *nats.Msg) {
		msg, err := frames.Decode(m.Data)
		if err != nil || len(msg.Frames) != 1 {
			r.t.Errorf("announcement on %s: %v", m.Subject, err)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = append(h.list, fmt.Sprintf("%s %s", m.Subject, msg.Frames[0].Type))
		h.last[m.Subject] = msg.Frames[0]
	})
	must(r.t, err)
	must(r.t, nc.FlushWithContext(within(r.t, 10*time.Second)))
	return h
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// take gives what was heard since, and forgets it.
func (h *heard) take() string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := strings.Join(h.list, "\n")
	h.list = nil
	return s
}

func (h *heard) frame(subject string) *frames.Frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.last[subject]
	return &f
}

// contract: P13, P14, W35, E17, W33
func TestAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		started, release := blocking(t, s, "b", tool.Keys("w1"))
		must(t, tool.Add(s, "a", give(1), tool.Keys("w1", "w0"), tool.Concurrency(2)))
		r := setup(t)
		h := r.hear()
		srv := r.serve(s, "i1")
		const at = "wb.announce.local.i1"
		declared := at + ".b DESCRIPTION\n" + at + ".a DESCRIPTION\n"
		if got, want := h.take(), declared+at+" META"; got != want {
			t.Errorf("at the start:\n%s", got)
		}
		d, err := frames.DeclarationFrom(h.frame(at + ".a").Content)
		if err != nil || d.Identity != "local" || d.Instance != "i1" || d.Service != "test" || d.Digest != s.Declarations()[1].Digest {
			t.Errorf("declaration %+v, %v", d, err)
		}

		f := frames.Call("b", nil)
		p := srv.start("b", &f)
		<-started
		time.Sleep(11 * time.Second)
		if got, want := h.take(), at+" META\n"+at+" META"; got != want {
			t.Errorf("in 11 s:\n%s", got)
		}
		alive, err := h.frame(at).Content.JSON()
		must(t, err)
		if want := `{"alive":true,"keys":["w0","w1"],"tools":{"a":{"inFlight":0,"slots":2},"b":{"inFlight":1,"slots":16}}}`; string(alive) != want {
			t.Errorf("alive %s", alive)
		}
		time.Sleep(4 * time.Minute)
		if got := h.take(); strings.Count(got, "DESCRIPTION") != 2 || strings.Count(got, "META") != 48 {
			t.Errorf("in 4 min:\n%s", got)
		}

		must(t, tool.Add(s, "c", give(3)))
		if got := h.take(); !strings.Contains(got, at+".c DESCRIPTION") || !strings.HasSuffix(got, at+" META") {
			t.Errorf("after another tool was added:\n%s", got)
		}
		if a := srv.call("c", "{}"); string(a.result.Result) != "3" {
			t.Errorf("the tool that was added: %v", a.result.Err)
		}
		close(release)
		p.end()
		must(t, srv.end())
		if got := h.take(); got != at+" END" || h.frame(at).Reason() != "drained" {
			t.Errorf("at the end:\n%s", got)
		}
	})
}

// What a set cannot take tools from is told at once, and with each sign of life.
//
// contract: S37
func TestSkippedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		r := setup(t)
		h := r.hear()
		r.serve(s, "i1")
		h.take()
		skipped := func() string {
			t.Helper()
			synctest.Wait()
			if got := h.take(); got != "wb.announce.local.i1 META" {
				t.Errorf("announced %q", got)
			}
			text, err := h.frame("wb.announce.local.i1").Content.Lookup("skipped").JSON()
			must(t, err)
			return string(text)
		}
		s.SetSkipped([]tool.Skipped{{Source: "b.yaml", Reason: "line 3"}})
		if got := skipped(); got != `[{"source":"b.yaml","reason":"line 3"}]` {
			t.Errorf("skipped %s", got)
		}
		s.SetSkipped([]tool.Skipped{{Source: "b.yaml", Reason: "line 3"}})
		if synctest.Wait(); h.take() != "" {
			t.Error("the same was told again")
		}
		time.Sleep(6 * time.Second)
		if got := skipped(); !strings.Contains(got, "b.yaml") {
			t.Errorf("later it skipped %s", got)
		}
		many := make([]tool.Skipped, 100)
		for i := range many {
			many[i] = tool.Skipped{Source: strings.Repeat("s", 1000), Reason: strings.Repeat("r", 1000)}
		}
		s.SetSkipped(many)
		if got := skipped(); strings.Count(got, "source") != 32 || len(got) > 32*700 {
			t.Errorf("many are %d, in %d bytes", strings.Count(got, "source"), len(got))
		}
		s.SetSkipped(nil)
		if got := skipped(); got != "null" {
			t.Errorf("at last it skipped %s", got)
		}
	})
}

// contract: P14, P24, E17
func TestDescribe(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "a", search))
	must(t, tool.Add(s, "b", give(1)))
	r := setup(t)
	srv := r.serve(s, "i1")
	names := func(fs []frames.Frame, err error) string {
		must(t, err)
		var all []string
		for _, f := range fs {
			d, err := frames.DeclarationFrom(f.Content)
			must(t, err)
			all = append(all, string(f.Type)+" "+d.Name+"@"+d.Instance)
		}
		return strings.Join(all, ", ")
	}
	for name, want := range map[string]string{"": "DESCRIPTION a@i1, DESCRIPTION b@i1", "b": "DESCRIPTION b@i1", "c": ""} {
		if got := names(srv.control(frames.Describe(name))); got != want {
			t.Errorf("DESCRIBE %q of the instance: %s", name, got)
		}
		if got := names(r.ask(r.caller.Describe(), frames.Describe(name))); got != want {
			t.Errorf("DESCRIBE %q of all: %s", name, got)
		}
	}
	for _, subject := range []string{r.caller.Describe(), r.caller.Inst("local", "i1"), r.caller.CtlTool("a")} {
		_, err := r.ask(subject, frames.Tick())
		if frames.CodeOf(err) != frames.CodeBadFrame || !strings.Contains(err.Error(), "Unknown frame type: TICK") {
			t.Errorf("TICK on %s: %v", subject, err)
		}
	}
}

// Declarations of any number and size fit their messages.
func TestDescribeManyTools(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	for i := range 200 {
		d := raw(fmt.Sprintf("t%d", i))
		d.Schema = json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 60<<10) + `"}`)
		must(t, s.AddRaw(d, nothing))
	}
	fs, err := setup(t).serve(s, "i1").control(frames.Describe(""))
	if err != nil || len(fs) != 200 {
		t.Errorf("%d declarations, %v", len(fs), err)
	}
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	started, release := blocking(t, s, "x")
	r := setup(t)
	srv := r.serve(s, "i1")
	fs, err := srv.control(frames.Meta(map[string]any{}))
	must(t, err)
	if alive, _ := fs[0].Content.Lookup("alive").Bool(); !alive {
		t.Errorf("answer %+v", fs)
	}
	f := frames.Call("x", nil, frames.WithCall("c1", "x"))
	p := srv.start("x", &f)
	<-started
	got := []string{srv.whoRuns("c1"), srv.whoRuns("c2")}
	close(release)
	p.end()
	if diff := cmp.Diff([]string{"running", "unknown"}, got); diff != "" {
		t.Error(diff)
	}
	must(t, srv.end())
	if _, err := srv.control(frames.Meta(map[string]any{})); frames.CodeOf(err) != frames.CodeUnavailable {
		t.Errorf("of an instance that is gone: %v, want UNAVAILABLE", err)
	}
}

// While it drains an instance refuses new calls, answers for those that run, and
// ends when they have.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		started, release := blocking(t, s, "x")
		r := setup(t)
		srv, other := r.serve(s, "i1"), r.serve(s, "i2")
		f := frames.Call("x", nil, frames.WithCall("c1", "x"))
		p := srv.start("x", &f)
		<-started
		srv.stop()
		synctest.Wait()
		a := srv.call("x", "{}")
		if e := a.result.Err; e == nil || e.Code != "BUSY" || e.Reason != "draining" || e.Effect != "none" || !e.Retryable {
			t.Errorf("call of a draining instance: %+v", e)
		}
		if got := srv.whoRuns("c1"); got != "running" {
			t.Errorf("whoRuns: %s", got)
		}
		close(release)
		if a := p.end(); string(a.result.Result) != "1" {
			t.Errorf("running call: %v", a.result.Err)
		}
		if err := srv.end(); err != nil {
			t.Errorf("Serve gave %v, want nil", err)
		}
		if a := other.call("x", "{}"); a.code() != "" {
			t.Errorf("the other instance: %v", a.result.Err)
		}
	})
}

// Calls that outlast the drain are INTERRUPTED, as they are when the work
// context ends; a handler that heeds nothing is named.
//
// contract: W10, P13
func TestHardStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		started, _ := blocking(t, s, "x", tool.ReplaySafe())
		deaf, wake := make(chan struct{}), make(chan struct{})
		must(t, tool.Add(s, "deaf", func(context.Context, struct{}) (int, error) { close(deaf); <-wake; return 1, nil }))
		defer close(wake)
		r := setup(t)
		work, stopWork := context.WithCancelCause(context.Background())
		defer stopWork(nil)
		byDrain := r.serve(s, "i1", tool.DrainTimeout(7*time.Second))
		byWork := r.serve(s, "i2", tool.WorkContext(work))
		for _, srv := range []*service{byDrain, byWork} {
			f := frames.Call("x", nil)
			p := srv.start("x", &f)
			<-started
			srv.stop()
			time.Sleep(5 * time.Second)
			before := time.Now()
			if srv == byWork {
				stopWork(fmt.Errorf("soft stop is over"))
			}
			e := p.end().result.Err
			if e == nil || e.Code != frames.CodeInterrupted || e.Effect != frames.EffectUnknown || !e.Retryable {
				t.Errorf("%s: %+v", srv.id, e)
			}
			if took, want := time.Since(before), map[*service]time.Duration{byDrain: 2 * time.Second}[srv]; took < want || took > want+time.Second {
				t.Errorf("%s: ended after %v, want %v", srv.id, took, want)
			}
			must(t, srv.end())
		}
		last := r.serve(s, "i3", tool.DrainTimeout(0))
		f := frames.Call("deaf", nil)
		p := last.start("deaf", &f)
		<-deaf
		err := last.end()
		if frames.CodeOf(err) != frames.CodeTimeout || !strings.Contains(err.Error(), "1 calls did not end although they were told to, of deaf") {
			t.Errorf("Serve gave %v", err)
		}
		if a := p.end(); a.code() != frames.CodeInterrupted {
			t.Errorf("deaf: %v", a.result.Err)
		}
		last.err = nil
	})
}

// Without the role nothing is served, and the error says so.
func TestServeIsDenied(t *testing.T) {
	t.Parallel()
	r := setup(t)
	s := tool.NewSet("test")
	must(t, tool.Add(s, "x", give(1)))
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	conn := r.connect("me", quiet)
	err := tool.Serve(within(t, 10*time.Second), conn, s, tool.Logger(slog.New(slog.DiscardHandler)))
	if frames.CodeOf(err) != frames.CodeDenied || !strings.Contains(err.Error(), "identity me may not serve tools") {
		t.Errorf("err = %v, want DENIED", err)
	}
}

func TestServeRefusesOptions(t *testing.T) {
	t.Parallel()
	conn := setup(t).connect("local")
	for _, o := range []tool.ServeOption{tool.DrainTimeout(-1), tool.Instance("a.b")} {
		if err := tool.Serve(t.Context(), conn, tool.NewSet("test"), o); frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("err = %v", err)
		}
	}
}

// A connection that is lost for good ends the service.
func TestServeEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		conn := r.connect("local")
		s := tool.NewSet("test")
		must(t, tool.Add(s, "x", give(1)))
		done, ready := make(chan error, 1), make(chan struct{})
		go func() {
			done <- tool.Serve(context.Background(), conn, s, tool.OnReady(func() { close(ready) }), tool.Logger(slog.New(slog.DiscardHandler)))
		}()
		<-ready
		conn.NATS().Close()
		if err := <-done; frames.CodeOf(err) != frames.CodeUnavailable {
			t.Errorf("err = %v, want UNAVAILABLE", err)
		}
	})
}
