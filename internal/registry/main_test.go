package registry_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a mesh with tool identities local and other, and a registry that a
// router follows.
type rig struct {
	*registry.Registry
	t    *testing.T
	mesh *bustest.Mesh
	conn *bus.Conn
	line *bustest.Line
	stop context.CancelFunc
	done chan error
}

// inBubble runs a test in virtual time. The registry follows after before ran.
func inBubble(t *testing.T, test func(t *testing.T, r *rig), before ...func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, mesh: bustest.Start(t, bustest.WithIdentity("other", natsd.RoleTool))}
		for _, f := range before {
			f(r)
		}
		r.line = r.mesh.Line(t, "router")
		r.conn = r.connect("router", r.line.Option())
		r.Registry = registry.New(r.conn, registry.Config{Log: slog.New(slog.DiscardHandler)})
		r.follow()
		test(t, r)
	})
}

// follow runs the registry until the test's end, and waits until it is ready.
func (r *rig) follow() {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.done = stop, make(chan error, 1)
	ready := make(chan struct{})
	go func() { r.done <- r.Run(ctx, func() { close(ready) }) }()
	r.t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-r.done:
		r.t.Fatal(err)
	}
}

func (r *rig) connect(identity string, opts ...nats.Option) *bus.Conn {
	r.t.Helper()
	c, err := bus.New(r.mesh.Connect(r.t, identity, opts...), identity)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// announcer is an instance that announces tools by hand.
type announcer struct {
	r    *rig
	conn *bus.Conn
	id   string
}

func (r *rig) announcer(identity, id string) *announcer {
	r.t.Helper()
	return &announcer{r: r, conn: r.connect(identity), id: id}
}

func (a *announcer) identity() string { return a.conn.Identity() }

// declare announces tools, with what change does to each declaration.
func (a *announcer) declare(tools []string, change ...func(*frames.Declaration)) {
	a.r.t.Helper()
	for _, name := range tools {
		d := &frames.Declaration{Name: name}
		for _, f := range change {
			f(d)
		}
		f := frames.Description(d)
		a.publish(a.conn.AnnounceTool(a.identity(), a.id, name), f)
	}
	a.flush()
}

func (a *announcer) alive(tools ...string) {
	a.r.t.Helper()
	names := map[string]any{}
	for _, t := range tools {
		names[t] = map[string]any{"slots": 1}
	}
	a.publish(a.conn.Announce(a.identity(), a.id), frames.Meta(map[string]any{"alive": true, "tools": names}))
	a.flush()
}

func (a *announcer) end() {
	a.r.t.Helper()
	a.publish(a.conn.Announce(a.identity(), a.id), frames.End(frames.EndDrained))
	a.flush()
}

func (a *announcer) publish(subject string, f frames.Frame) {
	a.r.t.Helper()
	must(a.r.t, a.conn.Publish(a.r.t.Context(), subject, frames.Msgpack, &f))
}

// flush waits until everybody has heard what was announced.
func (a *announcer) flush() {
	a.r.t.Helper()
	must(a.r.t, a.conn.Flush(a.r.t.Context()))
	synctest.Wait()
}

func version(v string) func(*frames.Declaration) {
	return func(d *frames.Declaration) { d.Version = v }
}

// shows gives a tool as "version: instances", "" for one that is not known.
func (r *rig) shows(tool string) string { return shown(r.Get(tool)) }

func shown(t *registry.Tool) string {
	if t == nil {
		return ""
	}
	ids := make([]string, 0, len(t.Instances))
	for _, s := range t.Instances {
		ids = append(ids, strings.Trim(s.Instance.Identity+"/"+s.Instance.ID, "/"))
	}
	return strings.TrimSpace(t.Version + ": " + strings.Join(ids, " "))
}

// plain serves DESCRIBE as a service without an SDK does.
type plain struct {
	sub *bus.Subscription

	mu    sync.Mutex
	asked []string
}

func (r *rig) plain(identity string, declare ...*frames.Declaration) *plain {
	r.t.Helper()
	p, c := &plain{}, r.connect(identity)
	var err error
	p.sub, err = c.Handle(r.t.Context(), c.Describe(), "", func(_ context.Context, q *bus.Request) {
		name := q.First(frames.TypeDescribe).Name
		p.mu.Lock()
		p.asked = append(p.asked, name)
		p.mu.Unlock()
		var fs []frames.Frame
		for _, d := range declare {
			if name == "" || name == d.Name {
				fs = append(fs, frames.Description(d))
			}
		}
		_ = q.End(frames.EndCompleted, fs...)
	})
	must(r.t, err)
	must(r.t, c.Flush(r.t.Context()))
	return p
}

// answerDescribe answers each DESCRIBE with a message as it is written.
func (r *rig) answerDescribe(identity, message string) {
	r.t.Helper()
	c := r.connect(identity)
	_, err := c.NATS().Subscribe(c.Describe(), func(m *nats.Msg) { _ = m.Respond([]byte(message)) })
	must(r.t, err)
	must(r.t, c.Flush(r.t.Context()))
}

// questions gives the names that were asked for since the last time.
func (p *plain) questions() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func declaration(name string) *frames.Declaration { return &frames.Declaration{Name: name} }
