package bus_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a mesh with a client me, and a router to serve it.
type rig struct {
	mesh       *bustest.Mesh
	me, router *bus.Conn
}

// inBubble runs a test in virtual time, on a real server in the process.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{mesh: bustest.Start(t)}
		r.me, r.router = r.connect(t, "me"), r.connect(t, "router")
		test(t, r)
	})
}

func (r *rig) connect(t *testing.T, identity string) *bus.Conn {
	t.Helper()
	c, err := bus.New(r.mesh.Connect(t, identity), identity)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// handle serves a subject by the router until the test's end.
func (r *rig) handle(t *testing.T, subject string, h bus.Handler, opts ...bus.HandleOption) *bus.Subscription {
	t.Helper()
	opts = append(opts, bus.WithLogger(slog.New(slog.DiscardHandler)))
	s, err := r.router.Handle(t.Context(), subject, bus.QueueRouter, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.router.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// open asks for a call of the tool x.
func (r *rig) open(t *testing.T, enc frames.Encoding) *bus.Exchange {
	t.Helper()
	q := frames.Call("x", nil)
	x, err := r.me.Open(t.Context(), r.me.Subjects.Call("me", "x"), enc, &q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

func wantCode(t *testing.T, err error, code frames.Code) {
	t.Helper()
	if frames.CodeOf(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func answer(fs ...frames.Frame) bus.Handler {
	return func(_ context.Context, q *bus.Request) { _ = q.End(frames.EndCompleted, fs...) }
}
