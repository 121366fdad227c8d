package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/modelbus"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/harness"
	"github.com/weavebus/weavebus/services/loop"
)

// world is a whole mesh: a harness, a loop, and a model that plays what the test says.
type world struct {
	t    *testing.T
	mesh *bustest.Mesh
	*client.Client

	mu       sync.Mutex
	requests []*provider.Request
	play     func(req *provider.Request) []provider.Event
}

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, mesh: bustest.Start(t)}
		w.Client = w.dial()
		w.model()
		test(t, w)
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// dial gives another process of the caller me.
func (w *world) dial() *client.Client {
	w.t.Helper()
	conn := connect(w.t, w.mesh, "me")
	w.t.Cleanup(conn.Close)
	return client.New(conn)
}

// model serves the provider fake.
func (w *world) model() {
	w.t.Helper()
	conn := connect(w.t, w.mesh, "llm")
	w.t.Cleanup(conn.Close)
	_, err := conn.Handle(w.t.Context(), conn.LLM("fake"), bus.QueueLLM, func(_ context.Context, q *bus.Request) {
		req, err := modelbus.ReadRequest("fake", &q.Message)
		if err != nil {
			w.t.Error(err)
			return
		}
		w.mu.Lock()
		w.requests = append(w.requests, req)
		w.mu.Unlock()
		for _, e := range w.play(req) {
			_ = q.Send(modelbus.EventFrame(e))
		}
		_ = q.End(frames.EndCompleted)
	}, bus.WithWorkers(16))
	w.must(err)
	w.must(conn.Flush(w.t.Context()))
}

func (w *world) asked() []*provider.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*provider.Request(nil), w.requests...)
}

// says gives a model's answer of a text and calls: "name args".
func says(text string, calls ...string) []provider.Event {
	out, stop := []provider.Event{provider.Text{Text: text}}, provider.StopDone
	if len(calls) > 0 {
		stop = provider.StopToolCalls
	}
	for i, c := range calls {
		name, args, _ := strings.Cut(c, " ")
		out = append(out, provider.NewToolCall(fmt.Sprintf("m%d", i), name, args, stop))
	}
	return append(out, provider.Stop{Reason: stop, Usage: provider.Usage{InputTokens: 8, OutputTokens: 2, TotalTokens: 10}})
}

// rounds plays answers by the rounds since the last user text, as a model does that
// is asked again.
func rounds(answers ...[]provider.Event) func(*provider.Request) []provider.Event {
	return func(req *provider.Request) []provider.Event {
		n := 0
		for _, m := range req.Messages {
			switch {
			case m.Role == provider.RoleUser:
				n = 0
			case len(m.Calls) > 0:
				n++
			}
		}
		return answers[min(n, len(answers)-1)]
	}
}

// process is a running service.
type process struct {
	conn       *nats.Conn
	stop, kill context.CancelFunc
	done       chan struct{}
}

// crash takes it off the bus without a word.
func (p *process) crash() {
	p.conn.Close()
	p.kill()
	<-p.done
}

var errCrash = errors.New("crash")

func (w *world) serve(s app.Service) *process {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	work, kill := context.WithCancelCause(context.WithoutCancel(w.t.Context()))
	conn := w.mesh.Connect(w.t, s.Identity, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	p := &process{conn: conn, stop: stop, kill: func() { stop(); kill(errCrash) }, done: make(chan struct{})}
	env := app.Env{Identity: s.Identity, Prefix: "wb", NATS: conn, Work: work, Log: slog.New(slog.DiscardHandler)}
	ready := make(chan struct{})
	var err error
	go func() {
		defer close(p.done)
		err = s.Run(ctx, env, func() { close(ready) })
	}()
	select {
	case <-ready:
	case <-p.done:
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		stop()
		select {
		case <-p.done:
		case <-time.After(time.Second): // virtual time
			p.kill()
			<-p.done
		}
		<-time.After(time.Second) // what the connection drains meanwhile
	})
	return p
}

func (w *world) loop() *process    { w.t.Helper(); return w.serve(loop.New(loop.Config{})) }
func (w *world) harness() *process { w.t.Helper(); return w.serve(harness.New(harness.Config{})) }

// meshTools serves tools as a service of the mesh.
func (w *world) meshTools(add func(s *tool.Set)) {
	w.t.Helper()
	set := tool.NewSet("test")
	add(set)
	conn := connect(w.t, w.mesh, "local")
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := tool.Serve(ctx, conn, set, tool.OnReady(func() { close(ready) }), tool.Logger(slog.New(slog.DiscardHandler))); err != nil {
			w.t.Error(err)
		}
	}()
	<-ready
	w.t.Cleanup(func() {
		cancel()
		<-done
		conn.Close()
	})
	synctest.Wait()
}

// session begins a session of the model fake, or of one outside where model is empty.
func (w *world) session(c *client.Client, model string, more ...frames.Frame) *chat {
	w.t.Helper()
	s, err := c.Session(w.t.Context(), "s1")
	w.must(err)
	ch := &chat{w: w, s: s, arrived: make(chan struct{}, 1)}
	begin := []frames.Frame{frames.Param("workspace", "w"), frames.Param("task", "t")}
	if model != "" {
		begin = append(begin, frames.Param("model", model))
	}
	_, err = s.Send(w.t.Context(), append(append(begin, more...), frames.Start())...)
	w.must(err)
	ch.read()
	return ch
}

// chat is a session with what was read of it.
type chat struct {
	w *world
	s *client.Session

	mu      sync.Mutex
	frames  []frames.Frame // durable ones
	arrived chan struct{}
}

func (c *chat) read() {
	ctx, cancel := context.WithCancel(c.w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for f, err := range c.s.Frames(ctx, 0) {
			if err != nil {
				return
			}
			if f.Entry == 0 {
				continue
			}
			c.mu.Lock()
			c.frames = append(c.frames, f)
			c.mu.Unlock()
			select {
			case c.arrived <- struct{}{}:
			default:
			}
		}
	}()
	c.w.t.Cleanup(func() {
		cancel()
		<-done
		_ = c.s.Close()
	})
}

func (c *chat) send(fs ...frames.Frame) {
	c.w.t.Helper()
	_, err := c.s.Send(c.w.t.Context(), fs...)
	c.w.must(err)
}

func (c *chat) lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for i := range c.frames {
		if line := lineOf(&c.frames[i]); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// until waits for a line, for the n-th time, and gives all lines behind START.
func (c *chat) until(want string, n int) string {
	c.w.t.Helper()
	timeout := time.After(20 * time.Minute) // virtual time
	for {
		lines, count := c.lines(), 0
		for _, line := range lines {
			if line == want {
				count++
			}
		}
		if count >= n {
			return strings.Join(lines, "\n")
		}
		select {
		case <-c.arrived:
		case <-timeout:
			c.w.t.Fatalf("no %q:\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// lineOf writes a durable frame short; repeated and incidental ones not at all.
func lineOf(f *frames.Frame) string {
	switch f.Type {
	case frames.TypeText:
		return f.Metadata.Text("role") + ": " + f.Text()
	case frames.TypeToolCall:
		return "call " + f.Name
	case frames.TypeToolResult:
		res, err := f.Result()
		switch {
		case err != nil:
			return err.Error()
		case res.Err != nil:
			return strings.TrimSpace(fmt.Sprintf("result %s %s %s", f.Name, res.Err.Code, res.Err.Reason))
		}
		return "result " + f.Name + " " + string(res.Result)
	case frames.TypeError:
		e := frames.ErrorFrom(f.Content)
		return strings.TrimSpace(fmt.Sprint(e.Code, " ", e.Reason))
	case frames.TypeEnd:
		return "END " + f.Reason()
	case frames.TypeMeta:
		status, _ := f.Content.Lookup("state").Lookup("status").Text()
		return status
	}
	return ""
}

// want compares what happened behind the last user text, without repeated states.
func (c *chat) want(got, want string) {
	c.w.t.Helper()
	if i := strings.LastIndex(got, "user: "); i >= 0 {
		got = got[i:]
	}
	var lines []string
	for line := range strings.Lines(got) {
		if line = strings.TrimSpace(line); len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	}
	if got, want = strings.Join(lines, "\n"), strings.ReplaceAll(strings.TrimSpace(want), "\t", ""); got != want {
		c.w.t.Errorf("got:\n%s\n\nwant:\n%s", got, want)
	}
}
