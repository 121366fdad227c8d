package router_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a mesh with a raw client me and a router.
type world struct {
	t      *testing.T
	mesh   *bustest.Mesh
	me     *nats.Conn
	router *role
	line   *bustest.Line // the routers'
	log    *logged
	ended  chan string // call ids, as tools are told to stop
}

// inBubble runs a test in virtual time, with what serve puts on the mesh before
// the router comes.
func inBubble(t *testing.T, test func(t *testing.T, w *world), serve ...func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, f := range serve {
			f(w)
		}
		w.router = w.route(router.Config{})
		test(t, w)
	})
}

// newWorld makes a mesh without a router. Who you are may serve tools too.
func newWorld(t *testing.T, opts ...bustest.Option) *world {
	t.Helper()
	m := bustest.Start(t, append(opts, bustest.WithIdentity("you", natsd.RoleClient, natsd.RoleTool))...)
	return &world{t: t, mesh: m, me: m.Connect(t, "me"), line: m.Line(t, "router"), log: &logged{}, ended: make(chan string, 16)}
}

func emptyEnv() app.Env { return app.Env{} }

// role is a service that runs until it is stopped, or the test ends.
type role struct {
	t      *testing.T
	cancel context.CancelFunc
	cut    context.CancelFunc
	once   sync.Once
	done   chan error
}

// route runs a router, which knows all tools that there are before.
func (w *world) route(cfg router.Config) *role {
	w.t.Helper()
	s := router.New(cfg)
	defer func() { <-time.After(300 * time.Millisecond) }()
	return w.run(w.mesh.Connect(w.t, s.Identity, w.line.Option()), func(ctx, work context.Context, nc *nats.Conn, ready func()) error {
		env := app.Env{Identity: s.Identity, Prefix: "wb", NATS: nc, Log: slog.New(w.log), Work: work}
		return s.Run(ctx, env, ready)
	})
}

// serve runs an instance of tools.
func (w *world) serve(id string, s *tool.Set) *role {
	w.t.Helper()
	return w.run(w.mesh.Connect(w.t, "local"), func(ctx, work context.Context, nc *nats.Conn, ready func()) error {
		conn, err := bus.New(nc, "local")
		if err != nil {
			return err
		}
		defer conn.Close()
		return tool.Serve(ctx, conn, s, tool.Instance(id), tool.OnReady(ready), tool.WorkContext(work), tool.Logger(slog.New(slog.DiscardHandler)))
	})
}

func (w *world) run(nc *nats.Conn, run func(ctx, work context.Context, nc *nats.Conn, ready func()) error) *role {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	work, cut := context.WithCancel(context.Background())
	r := &role{t: w.t, cancel: cancel, cut: cut, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() { r.done <- run(ctx, work, nc, sync.OnceFunc(func() { close(ready) })) }()
	w.t.Cleanup(func() {
		r.stop()
		cut()
	})
	select {
	case <-ready:
	case err := <-r.done:
		w.t.Fatalf("%s: %v", nc.Opts.Name, err)
	}
	return r
}

// stop drains the service, and gives how long that took.
func (r *role) stop() (took time.Duration) {
	r.t.Helper()
	r.once.Do(func() {
		start := time.Now()
		r.cancel()
		if err := <-r.done; err != nil {
			r.t.Errorf("drain: %v", err)
		}
		took = time.Since(start)
	})
	return took
}

// holdsNothing stops a router, which has no call to wait for. The drain of a
// subscription looks each 100 ms whether it is done.
func (r *role) holdsNothing() {
	r.t.Helper()
	if took := r.stop(); took > time.Second {
		r.t.Errorf("drained in %v", took)
	}
}

// logged keeps what a router logs as a warning or worse.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

func (l *logged) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logged) WithGroup(string) slog.Handler      { return l }

func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// set makes a set of one tool from a declaration.
func set(t *testing.T, d frames.Declaration, run tool.Handler) *tool.Set {
	t.Helper()
	s := tool.NewSet("test")
	add(t, s, d, run)
	return s
}

func add(t *testing.T, s *tool.Set, d frames.Declaration, run tool.Handler) {
	t.Helper()
	if err := s.AddRaw(d, run); err != nil {
		t.Fatal(err)
	}
}

// gives answers with a value.
func gives(value string) tool.Handler {
	return func(context.Context, *tool.Call) (*frames.ToolResult, error) {
		return &frames.ToolResult{Result: json.RawMessage(value)}, nil
	}
}

// untilStopped runs until its context ends, and tells of each end.
func untilStopped(ended chan<- string) tool.Handler {
	return func(ctx context.Context, c *tool.Call) (*frames.ToolResult, error) {
		<-ctx.Done()
		ended <- c.ID
		return nil, ctx.Err()
	}
}

// plain serves wb.tool.<name> as a tool without an SDK does: messages by hand.
func (w *world) plain(name string, declaration string, answer func(m *nats.Msg)) {
	w.t.Helper()
	nc := w.mesh.Connect(w.t, "local")
	w.subscribe(nc, "wb.describe", "", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"type":"DESCRIPTION","content":` + declaration + `}{"type":"END","content":{"reason":"completed"}}`))
	})
	w.subscribe(nc, "wb.tool."+name, "wb", answer)
	w.flush(nc)
}

func (w *world) subscribe(nc *nats.Conn, subject, queue string, h nats.MsgHandler) *nats.Subscription {
	w.t.Helper()
	sub, err := nc.QueueSubscribe(subject, queue, h)
	if err != nil {
		w.t.Fatal(err)
	}
	return sub
}

func (w *world) flush(nc *nats.Conn) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// exchange is what comes back on one inbox.
type exchange struct {
	w    *world
	sub  *nats.Subscription
	got  chan *nats.Msg
	raw  []string // messages as they came
	all  []frames.Frame
	over bool
}

// send publishes a request with an inbox of its own.
func (w *world) send(nc *nats.Conn, subject, data string) *exchange {
	w.t.Helper()
	x := &exchange{w: w, got: make(chan *nats.Msg, 4096)}
	inbox := nc.NewInbox()
	x.sub = w.subscribe(nc, inbox, "", func(m *nats.Msg) { x.got <- m })
	if err := nc.PublishRequest(subject, inbox, []byte(data)); err != nil {
		w.t.Fatal(err)
	}
	return x
}

// next reads one message.
func (x *exchange) next() []frames.Frame {
	x.w.t.Helper()
	select {
	case m := <-x.got:
		x.raw = append(x.raw, string(m.Data))
		msg, err := frames.Decode(m.Data)
		if err != nil {
			x.w.t.Fatalf("answer %q: %v", m.Data, err)
		}
		x.all = append(x.all, msg.Frames...)
		x.over = msg.Frames[len(msg.Frames)-1].Type == frames.TypeEnd
		return msg.Frames
	case <-time.After(2 * time.Minute):
		x.w.t.Fatalf("no END after %d frames", len(x.all))
		return nil
	}
}

// read reads to END, checks the numbers, and waits for what should not come.
func (x *exchange) read() []frames.Frame {
	x.w.t.Helper()
	for !x.over {
		x.next()
	}
	synctest.Wait()
	if n := len(x.got); n > 0 {
		x.w.t.Errorf("%d messages behind END", n)
	}
	seq := uint64(0)
	for _, f := range x.all {
		if f.Type == frames.TypeTick {
			continue
		}
		if seq++; f.Seq != seq {
			x.w.t.Errorf("%s has number %d, want %d", f.Type, f.Seq, seq)
		}
	}
	return x.all
}

// result reads a call's exchange to its end.
func (x *exchange) result() (frames.Frame, *frames.ToolResult) {
	x.w.t.Helper()
	all := x.read()
	if len(all) < 2 || all[len(all)-2].Type != frames.TypeToolResult {
		x.w.t.Fatalf("no TOOL_RESULT before END: %v", all)
	}
	f := all[len(all)-2]
	res, err := f.Result()
	if err != nil {
		x.w.t.Fatal(err)
	}
	return f, res
}

// failure reads a call's exchange that ends in an error of the code.
func (x *exchange) failure(code frames.Code) *frames.Error {
	x.w.t.Helper()
	_, res := x.result()
	if res.Err == nil || res.Err.Code != code {
		x.w.t.Fatalf("got %s, %v, want %s", res.Result, res.Err, code)
	}
	if reason, want := x.all[len(x.all)-1].Reason(), endOf(code); reason != want {
		x.w.t.Errorf("END %s, want %s", reason, want)
	}
	return res.Err
}

func endOf(code frames.Code) string {
	if code == frames.CodeCancelled {
		return frames.EndCancelled
	}
	return frames.EndError
}

// call sends a TOOL_CALL as me, in JSON; more are fields of the frame.
func (w *world) call(name, args string, more ...string) *exchange {
	w.t.Helper()
	fields := append([]string{`"type":"TOOL_CALL"`, `"content":{"arguments":` + args + `}`}, more...)
	return w.send(w.me, "wb.call.me."+name, "{"+strings.Join(fields, ",")+"}")
}

// pack encodes frames as msgpack.
func pack(t *testing.T, fs ...frames.Frame) string {
	t.Helper()
	ptrs := make([]*frames.Frame, len(fs))
	for i := range fs {
		ptrs[i] = &fs[i]
	}
	data, err := frames.Encode(frames.Msgpack, ptrs...)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
