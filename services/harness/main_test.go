package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/services/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin runs a harness until stop, or the test's end.
func begin(t *testing.T, mesh *bustest.Mesh) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	env := app.Env{
		Identity: "harness", Prefix: mesh.Prefix(), NATS: mesh.Connect(t, "harness"),
		Log: slog.New(slog.DiscardHandler), Work: context.Background(),
	}
	ready, done := make(chan struct{}), make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = harness.New(harness.Config{}).Run(ctx, env, func() { close(ready) })
	}()
	select {
	case <-ready:
	case <-done:
		t.Fatalf("the harness did not start: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		if <-done; err != nil {
			t.Errorf("the harness did not drain: %v", err)
		}
	})
	return func() { cancel(); <-done }
}

// client is a caller with its readers.
type client struct {
	t    *testing.T
	conn *bus.Conn
	sid  string

	mu      sync.Mutex
	changed chan struct{}
	seen    map[[2]uint64]frames.Frame
	enc     map[frames.Encoding]int
	copies  int
}

func dial(t *testing.T, mesh *bustest.Mesh, sid string) *client {
	t.Helper()
	c := &client{t: t, conn: connect(t, mesh, "me"), sid: sid, changed: make(chan struct{}, 1),
		seen: map[[2]uint64]frames.Frame{}, enc: map[frames.Encoding]int{}}
	if _, err := c.conn.NATS().Subscribe(c.conn.Out("me", sid), c.hear); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func connect(t *testing.T, mesh *bustest.Mesh, identity string) *bus.Conn {
	t.Helper()
	conn, err := bus.New(mesh.Connect(t, identity), identity, bus.WithPrefix(mesh.Prefix()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func (c *client) hear(m *nats.Msg) {
	msg, err := frames.Decode(m.Data)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enc[msg.Encoding]++
	c.keep(msg.Frames)
}

func (c *client) keep(fs []frames.Frame) {
	for _, f := range fs {
		at := [2]uint64{f.Entry, uint64(f.Part)}
		if _, twice := c.seen[at]; twice {
			c.copies++
		}
		c.seen[at] = f
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// join reads what was published before the client came.
func (c *client) join() {
	c.t.Helper()
	for after, more := uint64(0), true; more; {
		q := frames.Meta(map[string]any{"op": "history", "sid": c.sid, "after": after, "limit": 3, "frames": true})
		got, err := c.conn.Request(c.t.Context(), c.conn.Sessions("me"), &q)
		if err != nil {
			c.t.Fatal(err)
		}
		page := got[len(got)-1].Content.Lookup("page")
		after, _ = page.Lookup("after").Uint64()
		more, _ = page.Lookup("more").Bool()
		c.mu.Lock()
		for _, f := range got[:len(got)-1] {
			m, err := frames.Decode(f.Content.Lookup("frame"))
			if err != nil {
				c.t.Error(err)
			}
			c.keep(m.Frames)
		}
		c.mu.Unlock()
	}
}

// frames gives the durable frames up to the first gap.
func (c *client) frames() []frames.Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []frames.Frame
	for entry, part := uint64(1), uint64(1); ; {
		f, ok := c.seen[[2]uint64{entry, part}]
		if !ok {
			return out
		}
		out = append(out, f)
		if part++; f.Last {
			entry, part = entry+1, 1
		}
	}
}

// until waits for a frame whose summary is the text and gives all summaries.
func (c *client) until(text string) []string {
	c.t.Helper()
	deadline := time.After(time.Minute)
	for {
		got := summary(c.frames())
		if slices.Contains(got, text) {
			return got
		}
		select {
		case <-c.changed:
		case <-deadline:
			c.t.Fatalf("no %q in %q", text, got)
		}
	}
}

// send sends one message of input and gives the id that was accepted.
func (c *client) send(fs ...frames.Frame) (string, error) {
	c.t.Helper()
	answer, err := c.conn.Request(c.t.Context(), c.conn.In("me", c.sid), pointers(fs)...)
	if err != nil {
		return "", err
	}
	id, _ := answer[0].Content.Lookup("accepted").Text()
	return id, nil
}

func (c *client) must(fs ...frames.Frame) string {
	c.t.Helper()
	id, err := c.send(fs...)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// start sends a session's parameters and START.
func (c *client) start(more ...frames.Frame) {
	c.t.Helper()
	c.must(append([]frames.Frame{frames.Param("workspace", "demo"), frames.Param("task", "look"),
		frames.Param("model", "scripted/demo"), frames.Start()}, more...)...)
}

// ask asks on wb.ses and gives the contents of the answer as JSON.
func (c *client) ask(content map[string]any) ([]string, error) {
	c.t.Helper()
	q := frames.Meta(content)
	answer, err := c.conn.Request(c.t.Context(), c.conn.Sessions("me"), &q)
	out := make([]string, 0, len(answer))
	for _, f := range answer {
		text, jerr := f.Content.JSON()
		if jerr != nil {
			c.t.Fatal(jerr)
		}
		out = append(out, string(text))
	}
	return out, err
}

func (c *client) get() map[string]any {
	c.t.Helper()
	got, err := c.ask(map[string]any{"op": "get", "sid": c.sid})
	if err != nil {
		c.t.Fatal(err)
	}
	var out struct {
		Session map[string]any `json:"session"`
	}
	if err := json.Unmarshal([]byte(got[0]), &out); err != nil {
		c.t.Fatal(err)
	}
	return out.Session
}

func pointers(fs []frames.Frame) []*frames.Frame {
	out := make([]*frames.Frame, len(fs))
	for i := range fs {
		out[i] = &fs[i]
	}
	return out
}

func summary(fs []frames.Frame) []string {
	out := make([]string, 0, len(fs))
	for i := range fs {
		out = append(out, summaryOf(&fs[i]))
	}
	return out
}

func summaryOf(f *frames.Frame) string {
	switch f.Type {
	case frames.TypeMeta:
		if !f.Content.Lookup("applied").Absent() {
			return "applied"
		}
		status, _ := f.Content.Lookup("state").Lookup("status").Text()
		turn, _ := f.Content.Lookup("state").Lookup("currentTurn").Int64()
		return fmt.Sprintf("%s %d", status, turn)
	case frames.TypeText:
		return f.Metadata.Text("role") + ": " + f.Text()
	case frames.TypeError:
		return strings.TrimSpace(f.Err().Error() + " " + f.Metadata.Text("inputId"))
	case frames.TypeEnd:
		return "END " + f.Reason()
	}
	return string(f.Type)
}

// loop is what a loop has to do with a harness.
type loop struct {
	t     *testing.T
	conn  *bus.Conn
	store *session.Store
	jobs  jetstream.Consumer
	owner session.Owner
	woken chan uint64
}

func newLoop(t *testing.T, mesh *bustest.Mesh) *loop {
	t.Helper()
	js := mesh.JetStream(t, "loop")
	store, err := session.Open(t.Context(), js, mesh.Prefix())
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := js.Consumer(t.Context(), "WB_RUN", "loop")
	if err != nil {
		t.Fatal(err)
	}
	return &loop{t: t, conn: connect(t, mesh, "loop"), store: store, jobs: jobs, woken: make(chan uint64, 100),
		owner: session.Owner{Nonce: "nonce", Identity: "loop", Instance: "i1"}}
}

// listen answers wake-ups, as long as answers is true.
func (l *loop) listen(answers bool) *bus.Subscription {
	l.t.Helper()
	sub, err := l.conn.Handle(context.Background(), l.conn.Inst("loop", l.owner.Instance), "", func(_ context.Context, r *bus.Request) {
		_, n, ok := session.WakeOf(&r.Frames[0])
		if !ok {
			l.t.Errorf("no wake-up: %+v", r.Frames[0])
		}
		select {
		case l.woken <- n:
		default:
		}
		if answers {
			_ = r.End(frames.EndCompleted)
		}
	})
	if err == nil {
		err = l.conn.Flush(l.t.Context())
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return sub
}

// job waits for the next job.
func (l *loop) job() jetstream.Msg {
	l.t.Helper()
	m, err := l.jobs.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		l.t.Fatalf("no job: %v", err)
	}
	return m
}

func (l *loop) update(key session.Key, tr session.Transition) {
	l.t.Helper()
	head, err := l.store.Update(l.t.Context(), key, tr)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.store.Publish(l.t.Context(), l.conn, &head.Entry); err != nil {
		l.t.Fatal(err)
	}
}

func (l *loop) take(key session.Key) {
	l.t.Helper()
	l.update(key, func(s *session.State) ([]session.Change, error) { return s.Take(l.owner) })
}

// answer ends the turn with a text.
func (l *loop) answer(key session.Key, text string) {
	l.t.Helper()
	l.update(key, func(s *session.State) ([]session.Change, error) {
		var a session.Answer
		a.Message.Text = text
		return s.Assistant(l.owner, a)
	})
}

// sortedKeys writes each line's JSON with sorted keys.
func sortedKeys(lines string) string {
	var out []string
	for line := range strings.Lines(lines) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return line
		}
		data, err := json.Marshal(v)
		if err != nil {
			return line
		}
		out = append(out, string(data))
	}
	return strings.Join(out, "\n")
}
