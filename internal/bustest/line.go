package bustest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// Line is a way to the mesh's server that can be cut and mended, for connections
// made with its option.
type Line struct {
	server nats.InProcessConnProvider

	mu   sync.Mutex
	cut  bool
	open []net.Conn
}

var _ nats.InProcessConnProvider = (*Line)(nil)

// Line gives a line for connections of an identity.
func (m *Mesh) Line(t testing.TB, identity string) *Line {
	t.Helper()
	opts, err := m.server.ConnectOptions(identity)
	if err != nil {
		t.Fatalf("bustest: %v", err)
	}
	all := nats.GetDefaultOptions()
	for _, o := range opts {
		if err := o(&all); err != nil {
			t.Fatalf("bustest: %v", err)
		}
	}
	return &Line{server: all.InProcessServer}
}

// Option makes a connection go over the line. That a cut line cannot be written
// to is no error of the test.
func (l *Line) Option() nats.Option {
	return func(o *nats.Options) error {
		report := o.AsyncErrorCB
		o.AsyncErrorCB = func(nc *nats.Conn, sub *nats.Subscription, err error) {
			if report != nil && !errors.Is(err, io.ErrClosedPipe) {
				report(nc, sub, err)
			}
		}
		return nats.InProcessServer(l)(o)
	}
}

var errCut = errors.New("the line is cut")

// InProcessConn implements nats.InProcessConnProvider.
func (l *Line) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errCut
	}
	c, err := l.server.InProcessConn()
	if err == nil {
		l.open = append(l.open, c)
	}
	return c, err
}

// Cut ends the connections on the line, and makes no new ones.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.open {
		_ = c.Close() // a pipe's end
	}
	l.open = nil
}

// Mend lets connections be made again; clients try each two seconds.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}
