package dispatch_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a mesh with a dispatcher and what is needed to serve tools by hand.
type world struct {
	t    *testing.T
	mesh *bustest.Mesh
	conn *bus.Conn
	line *bustest.Line // the dispatcher's
	d    *dispatch.Following
	next atomic.Int64 // call id
}

// inBubble runs a test in virtual time with a mesh and a dispatcher on it.
// before runs when the mesh is up and the dispatcher is not.
func inBubble(t *testing.T, cfg dispatch.Config, test func(t *testing.T, w *world), before ...func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, mesh: bustest.Start(t)}
		for _, f := range before {
			f(w)
		}
		w.line = w.mesh.Line(t, "router")
		w.conn = w.connect("router", w.line.Option())
		if cfg.Log == nil {
			cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		}
		d, err := dispatch.Follow(t.Context(), t.Context(), w.conn, cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.d = d
		t.Cleanup(d.Stop)
		test(t, w)
	})
}

func (w *world) connect(identity string, opts ...nats.Option) *bus.Conn {
	w.t.Helper()
	c, err := bus.New(w.mesh.Connect(w.t, identity, opts...), identity)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// fake is an instance of one tool that answers as the test says.
type fake struct {
	w    *world
	id   string
	conn *bus.Conn
	decl frames.Declaration
	subs []*bus.Subscription

	mu      sync.Mutex
	calls   []string
	cancels []string
}

// serve announces a tool on an instance of the identity local; handle answers
// its calls, each on its own goroutine.
func (w *world) serve(id string, decl frames.Declaration, handle func(q *bus.Request)) *fake {
	w.t.Helper()
	f := w.instance(id, decl)
	f.on(f.conn.InstTool("local", id, decl.Name), "", func(_ context.Context, q *bus.Request) {
		f.mu.Lock()
		f.calls = append(f.calls, q.First(frames.TypeToolCall).ToolCallID)
		f.mu.Unlock()
		handle(q)
	})
	f.announce()
	synctest.Wait()
	return f
}

// raw announces a tool whose calls are answered by hand.
func (w *world) raw(id string, decl frames.Declaration, answer func(nc *nats.Conn, m *nats.Msg)) *fake {
	w.t.Helper()
	f := w.unheard(id, decl, answer)
	synctest.Wait()
	return f
}

// unheard is raw that does not wait until all have heard of the tool.
func (w *world) unheard(id string, decl frames.Declaration, answer func(nc *nats.Conn, m *nats.Msg)) *fake {
	w.t.Helper()
	f := w.instance(id, decl)
	nc := f.conn.NATS()
	_, err := nc.Subscribe(f.conn.InstTool("local", id, decl.Name), func(m *nats.Msg) { answer(nc, m) })
	f.must(err)
	f.announce()
	return f
}

// plain serves a tool without an instance.
func (w *world) plain(name string, handle func(q *bus.Request)) *fake {
	w.t.Helper()
	f := &fake{w: w, conn: w.connect("local"), decl: frames.Declaration{Name: name}}
	f.on(f.conn.Tool(name), bus.QueueTools, func(_ context.Context, q *bus.Request) { handle(q) })
	f.on(f.conn.Describe(), "", func(_ context.Context, q *bus.Request) {
		_ = q.End(frames.EndCompleted, frames.Description(&f.decl))
	})
	f.must(f.conn.Flush(w.t.Context()))
	return f
}

// stop ends the subscriptions at once; what was taken is answered all the same.
func (f *fake) stop() {
	f.w.t.Helper()
	for _, s := range f.subs {
		go func() { _ = s.Drain(f.w.t.Context()) }()
	}
	synctest.Wait()
}

func (w *world) instance(id string, decl frames.Declaration) *fake {
	w.t.Helper()
	f := &fake{w: w, id: id, conn: w.connect("local"), decl: decl}
	f.on(f.conn.Inst("local", id), "", func(_ context.Context, q *bus.Request) {
		if c := q.First(frames.TypeCancel); c != nil {
			f.mu.Lock()
			f.cancels = append(f.cancels, c.ToolCallID)
			f.mu.Unlock()
		}
	})
	return f
}

func (f *fake) on(subject, queue string, h bus.Handler) {
	f.w.t.Helper()
	s, err := f.conn.Handle(f.w.t.Context(), subject, queue, h, bus.WithWorkers(64))
	f.must(err)
	f.subs = append(f.subs, s)
}

func (f *fake) announce() {
	f.w.t.Helper()
	f.must(f.conn.Flush(f.w.t.Context()))
	if err := f.decl.Check(); err != nil {
		f.w.t.Fatal(err)
	}
	d := frames.Description(&f.decl)
	f.must(f.conn.Publish(f.w.t.Context(), f.conn.AnnounceTool("local", f.id, f.decl.Name), frames.Msgpack, &d))
	f.alive()
}

func (f *fake) alive() {
	m := frames.Meta(map[string]any{"alive": true})
	f.must(f.conn.Publish(f.w.t.Context(), f.conn.Announce("local", f.id), frames.Msgpack, &m))
	f.must(f.conn.Flush(f.w.t.Context()))
}

// end says that the instance takes no more calls.
func (f *fake) end() {
	e := frames.End(frames.EndDrained)
	f.must(f.conn.Publish(f.w.t.Context(), f.conn.Announce("local", f.id), frames.Msgpack, &e))
	f.must(f.conn.Flush(f.w.t.Context()))
}

// vanish takes the instance off the bus without a word.
func (f *fake) vanish() {
	for _, s := range f.subs {
		f.must(s.Drain(f.w.t.Context()))
	}
	f.must(f.conn.Flush(f.w.t.Context()))
}

func (f *fake) must(err error) {
	f.w.t.Helper()
	if err != nil {
		f.w.t.Fatal(err)
	}
}

func (f *fake) served() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fake) cancelled() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.cancels...)
}

// ok answers {"by": id}.
func ok(id string) func(q *bus.Request) {
	return func(q *bus.Request) {
		_ = q.End(frames.EndCompleted, frames.Result(&frames.ToolResult{Result: []byte(`{"by":"` + id + `"}`)}))
	}
}

func call(id string) dispatch.Call {
	return dispatch.Call{ID: id, Caller: "me", Tool: "echo", Arguments: []byte(`{}`)}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// plainRaw serves a tool without an instance that answers with bytes.
func (w *world) plainRaw(name, answer string) {
	w.t.Helper()
	f := &fake{w: w, conn: w.connect("local"), decl: frames.Declaration{Name: name}}
	nc := f.conn.NATS()
	_, err := nc.QueueSubscribe(f.conn.Tool(name), bus.QueueTools, func(m *nats.Msg) { _ = nc.Publish(m.Reply, []byte(answer)) })
	f.must(err)
	f.on(f.conn.Describe(), "", func(_ context.Context, q *bus.Request) {
		_ = q.End(frames.EndCompleted, frames.Description(&f.decl))
	})
	f.must(f.conn.Flush(w.t.Context()))
}
