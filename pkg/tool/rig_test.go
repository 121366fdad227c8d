package tool_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a mesh with a dispatcher's connection and instances that serve tools.
type rig struct {
	t      *testing.T
	mesh   *bustest.Mesh
	caller *bus.Conn
}

func setup(t *testing.T, opts ...bustest.Option) *rig {
	t.Helper()
	r := &rig{t: t, mesh: bustest.Start(t, opts...)}
	r.caller = r.connect("dispatcher")
	return r
}

func (r *rig) connect(identity string, opts ...nats.Option) *bus.Conn {
	r.t.Helper()
	c, err := bus.New(r.mesh.Connect(r.t, identity, opts...), identity)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// service is one instance that serves a set.
type service struct {
	r    *rig
	id   string
	conn *bus.Conn
	stop context.CancelFunc
	done chan error
	once sync.Once
	err  error
}

// serve starts an instance and waits until it is ready; it is stopped with the test.
func (r *rig) serve(s *tool.Set, id string, opts ...tool.ServeOption) *service {
	r.t.Helper()
	return r.serveOn(r.connect("local"), s, id, opts...)
}

func (r *rig) serveOn(conn *bus.Conn, s *tool.Set, id string, opts ...tool.ServeOption) *service {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	srv := &service{r: r, id: id, conn: conn, stop: cancel, done: make(chan error, 1)}
	ready := make(chan struct{})
	opts = append([]tool.ServeOption{
		tool.Instance(id), tool.OnReady(func() { close(ready) }), tool.Logger(slog.New(slog.DiscardHandler)),
	}, opts...)
	go func() { srv.done <- tool.Serve(ctx, conn, s, opts...) }()
	r.t.Cleanup(func() {
		if err := srv.end(); err != nil {
			r.t.Errorf("instance %s: %v", id, err)
		}
	})
	select {
	case <-ready:
	case err := <-srv.done:
		r.t.Fatalf("Serve: %v", err)
	}
	return srv
}

// end stops the instance and gives what Serve gave.
func (s *service) end() error {
	s.stop()
	s.once.Do(func() { s.err = <-s.done })
	return s.err
}

// answer is the exchange of one call.
type answer struct {
	frames []frames.Frame // before the result
	frame  frames.Frame   // TOOL_RESULT
	result *frames.ToolResult
	reason string // of END
}

// code gives the result's error code.
func (a *answer) code() frames.Code {
	if a.result.Err == nil {
		return ""
	}
	return a.result.Err.Code
}

// pending is a call whose answer is read later.
type pending struct {
	t *testing.T
	x *bus.Exchange
}

// start sends frames to a tool of the instance.
func (s *service) start(name string, fs ...*frames.Frame) *pending {
	s.r.t.Helper()
	x, err := s.r.caller.Open(context.Background(), s.r.caller.InstTool("local", s.id, name), frames.Msgpack, fs...)
	if err != nil {
		s.r.t.Fatal(err)
	}
	return &pending{s.r.t, x}
}

// next gives the next frame of the answer.
func (p *pending) next() frames.Frame {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, err := p.x.Next(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// end reads the answer up to END, which follows one TOOL_RESULT.
func (p *pending) end() *answer {
	p.t.Helper()
	defer p.x.Close()
	a := &answer{}
	for {
		switch f := p.next(); f.Type {
		case frames.TypeToolResult:
			if a.result != nil {
				p.t.Fatal("two results")
			}
			a.frame, a.result = f, result(p.t, f)
		case frames.TypeEnd:
			if a.result == nil {
				p.t.Fatal("END without a result")
			}
			a.reason = f.Reason()
			return a
		default:
			a.frames = append(a.frames, f)
		}
	}
}

func result(t *testing.T, f frames.Frame) *frames.ToolResult {
	t.Helper()
	r, err := f.Result()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// call calls a tool with arguments and reads the answer.
func (s *service) call(name, args string, opts ...frames.Option) *answer {
	s.r.t.Helper()
	f := frames.Call(name, json.RawMessage(args), opts...)
	return s.start(name, &f).end()
}

// ask sends one frame to a subject and reads the answer.
func (r *rig) ask(subject string, f frames.Frame) ([]frames.Frame, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return r.caller.Request(ctx, subject, &f)
}

// control asks the instance itself.
func (s *service) control(f frames.Frame) ([]frames.Frame, error) {
	s.r.t.Helper()
	return s.r.ask(s.r.caller.Inst("local", s.id), f)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// raw is a declaration that takes any object.
func raw(name string) frames.Declaration {
	return frames.Declaration{Name: name, Schema: json.RawMessage(`{"type":"object"}`)}
}

func metaText(f frames.Frame, key string) string {
	s, _ := f.Content.Lookup(key).Text()
	return s
}
