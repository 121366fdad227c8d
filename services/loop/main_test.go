package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/modelbus"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a mesh with a model, tools and loops.
type rig struct {
	t    *testing.T
	mesh *bustest.Mesh
	me   *bus.Conn

	mu       sync.Mutex
	requests []*provider.Request
	// play answers a model request; n counts them from 1.
	play func(ctx context.Context, n int, req *provider.Request) ([]provider.Event, error)
}

func inBubble(t *testing.T, test func(t *testing.T, r *rig), opts ...bustest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, mesh: bustest.Start(t, opts...)}
		r.me = r.connect("me")
		r.adapter()
		test(t, r)
	})
}

func (r *rig) connect(identity string) *bus.Conn {
	r.t.Helper()
	c, err := bus.New(r.mesh.Connect(r.t, identity), identity)
	r.must(err)
	r.t.Cleanup(c.Close)
	return c
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// adapter serves the provider fake, which plays what the test says.
func (r *rig) adapter() {
	r.t.Helper()
	conn := r.connect("llm")
	_, err := conn.Handle(r.t.Context(), conn.LLM("fake"), bus.QueueLLM, func(ctx context.Context, q *bus.Request) {
		req, err := modelbus.ReadRequest("fake", &q.Message)
		if err != nil {
			r.t.Error(err)
			return
		}
		r.mu.Lock()
		r.requests = append(r.requests, req)
		n := len(r.requests)
		r.mu.Unlock()
		events, err := r.play(ctx, n, req)
		if err != nil {
			_ = q.Fail(err)
			return
		}
		for _, e := range events {
			_ = q.Send(modelbus.EventFrame(e))
		}
		_ = q.End(frames.EndCompleted)
	}, bus.WithWorkers(16))
	r.must(err)
	r.must(conn.Flush(r.t.Context()))
}

func (r *rig) asked() []*provider.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*provider.Request(nil), r.requests...)
}

// answer gives the events of a text and of calls: "name args".
func answer(text string, calls ...string) []provider.Event {
	stop := provider.StopDone
	if len(calls) > 0 {
		stop = provider.StopToolCalls
	}
	var out []provider.Event
	for _, word := range strings.SplitAfter(text, " ") {
		if word != "" {
			out = append(out, provider.Text{Text: word})
		}
	}
	for i, c := range calls {
		name, args, _ := strings.Cut(c, " ")
		out = append(out, provider.NewToolCall(fmt.Sprintf("m%d", i), name, args, stop))
	}
	return append(out, provider.Stop{Reason: stop, Usage: provider.Usage{InputTokens: 8, OutputTokens: 2, TotalTokens: 10}})
}

// script plays answers by the number of rounds that the messages hold since the
// last user text, as a model does that is asked again after a restart.
func script(answers ...[]provider.Event) func(context.Context, int, *provider.Request) ([]provider.Event, error) {
	return func(_ context.Context, _ int, req *provider.Request) ([]provider.Event, error) {
		round := 0
		for _, m := range req.Messages {
			switch {
			case m.Role == provider.RoleUser:
				round = 0
			case len(m.Calls) > 0:
				round++
			}
		}
		if round >= len(answers) {
			return nil, frames.NewError(frames.CodeInternal, "round %d was not expected", round)
		}
		return answers[round], nil
	}
}

// process is a running service; stop asks it to drain, kill ends its work, and
// crash takes it off the bus without a word.
type process struct {
	conn       *nats.Conn
	stop, kill context.CancelFunc
	done       chan struct{}
	err        error
}

func (p *process) crash() {
	p.conn.Close()
	p.stop()
	p.kill()
	<-p.done
}

// end stops the service, hard where it does not end by itself.
func (p *process) end() {
	p.stop()
	select {
	case <-p.done:
	case <-time.After(time.Second): // virtual time
		p.kill()
		<-p.done
	}
	<-time.After(time.Second) // what the connection drains meanwhile
}

var errHard = errors.New("the soft stop is over")

func (r *rig) loop(cfg loop.Config) *process {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	work, kill := context.WithCancelCause(context.WithoutCancel(r.t.Context()))
	p := &process{
		conn: r.mesh.Connect(r.t, "loop", nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})),
		stop: stop, kill: func() { kill(errHard) }, done: make(chan struct{}),
	}
	env := app.Env{Identity: "loop", Prefix: "wb", NATS: p.conn, Work: work, Log: slog.New(slog.NewTextHandler(logTo{r.t}, nil))}
	ready := make(chan struct{})
	go func() {
		defer close(p.done)
		p.err = loop.New(cfg).Run(ctx, env, func() { close(ready) })
	}()
	select {
	case <-ready:
	case <-p.done:
		r.t.Fatal(p.err)
	}
	r.t.Cleanup(p.end)
	return p
}

// logTo shows a service's log with a test that fails.
type logTo struct{ t *testing.T }

func (l logTo) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", b)
	}
	return len(b), nil
}

// handler runs a call of a test's tool.
type handler = func(ctx context.Context, args json.RawMessage) (any, error)

// tools serves tools on the instance a until the test's end, or until the function
// it gives is called.
func (r *rig) tools(add func(s *tool.Set)) (stop func()) {
	r.t.Helper()
	set := tool.NewSet("test")
	add(set)
	conn := r.connect("local")
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ready, done := make(chan struct{}), make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = tool.Serve(ctx, conn, set, tool.Instance("a"), tool.OnReady(func() { close(ready) }), tool.Logger(slog.New(slog.DiscardHandler)))
	}()
	select {
	case <-ready:
	case <-done:
		r.t.Fatal(err)
	}
	stop = func() {
		cancel()
		if <-done; err != nil {
			r.t.Errorf("tools: %v", err)
		}
	}
	r.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// add adds a tool whose arguments may be anything.
func (r *rig) add(s *tool.Set, decl frames.Declaration, run handler) {
	r.t.Helper()
	r.must(s.AddRaw(decl, func(ctx context.Context, c *tool.Call) (*frames.ToolResult, error) {
		out, err := run(ctx, c.Arguments)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(out)
		return &frames.ToolResult{Result: text}, err
	}))
}

var anything = json.RawMessage(`{"type":"object"}`)

// after gives a handler that takes a time and answers with its arguments.
func after(d time.Duration) handler {
	return func(ctx context.Context, args json.RawMessage) (any, error) {
		select {
		case <-time.After(d): // virtual time
			return args, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func brief(f *frames.Frame) string {
	words := []string{string(f.Type)}
	if f.Name != "" {
		words = append(words, f.Name)
	}
	switch f.Type {
	case frames.TypeText, frames.TypeThinking:
		words = append(words, f.Text())
	case frames.TypeToolResult:
		res, err := f.Result()
		switch {
		case err != nil:
			words = append(words, err.Error())
		case res.Err != nil:
			words = append(words, string(res.Err.Code))
		default:
			words = append(words, string(res.Result))
		}
	case frames.TypeError:
		words = append(words, string(frames.ErrorFrom(f.Content).Code))
	case frames.TypeEnd:
		words = append(words, f.Reason())
	case frames.TypeMeta:
		state := f.Content.Lookup("state")
		if status, ok := state.Lookup("status").Text(); ok {
			turn, _ := state.Lookup("currentTurn").Int64()
			words = append(words, status, fmt.Sprint(turn))
		} else {
			for k := range f.Content.Pairs() {
				words = append(words, k)
			}
		}
	case frames.TypeProgress:
		op, _ := f.Content.Lookup("operation").Text()
		words = append(words, op)
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

func (r *rig) want(got []string, want string) {
	r.t.Helper()
	text := strings.Join(got, "\n")
	if want = strings.ReplaceAll(strings.TrimSpace(want), "\t", ""); text != want {
		r.t.Errorf("got:\n%s\n\nwant:\n%s", text, want)
	}
}
