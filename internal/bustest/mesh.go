package bustest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/natsd"
)

// deadline bounds each step of starting and stopping.
const deadline = 30 * time.Second

// Mesh is a running server with the mesh's streams.
type Mesh struct {
	server *natsd.Server
	cfg    natsd.Config
	assets assets.Config
	bare   bool

	mu    sync.Mutex
	conns []*nats.Conn
	ended bool
}

// Option changes how [Start] makes a mesh.
type Option func(*Mesh)

// WithPrefix sets the mesh's prefix. Default: "wb".
func WithPrefix(prefix string) Option { return func(m *Mesh) { m.cfg.Prefix = prefix } }

// WithListener opens a free port on 127.0.0.1 for clients outside the process;
// not in a bubble. Default: in-process only.
func WithListener() Option { return func(m *Mesh) { m.cfg.InProcessOnly = false } }

// WithIdentity adds an identity to those of every embedded server.
func WithIdentity(name string, roles ...natsd.Role) Option {
	return func(m *Mesh) {
		m.cfg.Identities = append(m.cfg.Identities, natsd.Identity{Name: name, Roles: roles})
	}
}

// WithAckWait sets the ack wait of the durable consumers. Default: 5 s.
func WithAckWait(d time.Duration) Option { return func(m *Mesh) { m.assets.AckWait = d } }

// WithoutAssets makes no streams. Default: all of them.
func WithoutAssets() Option { return func(m *Mesh) { m.bare = true } }

// Start runs a mesh until the test's end, which closes the connections that are
// still open; a server that does not stop fails the test.
func Start(t testing.TB, opts ...Option) *Mesh {
	t.Helper()
	m := &Mesh{cfg: natsd.Config{
		InProcessOnly: true,
		SyncInterval:  time.Minute, // a test survives no power loss
		Prefix:        assets.DefaultPrefix,
	}}
	for _, opt := range opts {
		opt(m)
	}
	if m.cfg.StateDir == "" {
		m.cfg.StateDir = privateDir(t)
	}
	m.assets.Prefix = m.cfg.Prefix
	if inBubble() {
		requireSequential(t)
		t.Cleanup(leaveBubble)
	}
	t.Cleanup(func() { m.stop(t) })
	m.start(t)
	return m
}

// Prefix gives the mesh's prefix.
func (m *Mesh) Prefix() string { return m.cfg.Prefix }

// Server gives the server, e.g. for its URL and seed files.
func (m *Mesh) Server() *natsd.Server { return m.server }

// Connect connects as an identity of the mesh; opts come last. An asynchronous
// error on the connection fails the test, unless opts set an error handler.
func (m *Mesh) Connect(t testing.TB, identity string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	base, err := m.server.ConnectOptions(identity)
	if err != nil {
		t.Fatalf("bustest: %v", err)
	}
	base = append(base, nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ErrorHandler(m.report(t)))
	nc, err := nats.Connect("", append(base, opts...)...)
	if err != nil {
		t.Fatalf("bustest: connect as %s: %v", identity, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, nc)
	return nc
}

// JetStream connects as an identity and gives its JetStream.
func (m *Mesh) JetStream(t testing.TB, identity string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(m.Connect(t, identity))
	if err != nil {
		t.Fatalf("bustest: %v", err)
	}
	return js
}

// Restart stops the server and starts it again on the same state, as a crash of
// the machine's one server would look to its clients. Connections of this process
// end with the server that made them: close them before, and connect again.
func (m *Mesh) Restart(t testing.TB) {
	t.Helper()
	m.stop(t)
	m.start(t)
}

func (m *Mesh) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	server, err := natsd.Start(ctx, m.cfg)
	if err != nil {
		t.Fatalf("bustest: %v", err)
	}
	m.mu.Lock()
	m.server, m.ended = server, false
	m.mu.Unlock()
	if m.bare {
		return
	}
	if err := assets.Ensure(ctx, m.JetStream(t, "admin"), m.assets); err != nil {
		t.Fatalf("bustest: %v", err)
	}
}

func (m *Mesh) stop(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	conns := m.conns
	m.conns, m.ended = nil, true
	m.mu.Unlock()
	for _, nc := range conns {
		nc.Close()
	}
	if m.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := m.server.Shutdown(ctx); err != nil {
		t.Errorf("bustest: the server did not stop: %v", err)
	}
}

// report fails the test on an asynchronous error while the mesh runs.
func (m *Mesh) report(t testing.TB) nats.ErrHandler {
	t.Helper()
	return func(nc *nats.Conn, sub *nats.Subscription, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ended {
			return
		}
		subject := ""
		if sub != nil {
			subject = sub.Subject
		}
		t.Errorf("bustest: connection of %s, subscription %q: %v", nc.Opts.Name, subject, err)
	}
}
