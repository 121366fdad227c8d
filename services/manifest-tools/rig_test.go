package manifesttools

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every wait of a test.
const limit = 30 * time.Second

// rig is a mesh, a dispatcher's connection, and what services announce.
type rig struct {
	t      *testing.T
	mesh   *bustest.Mesh
	caller *bus.Conn
	said   *nats.Subscription
	log    *logged
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, mesh: bustest.Start(t), log: &logged{}}
	c, err := bus.New(r.mesh.Connect(t, "dispatcher"), "dispatcher")
	ok(t, err)
	t.Cleanup(c.Close)
	r.caller = c
	nc := r.mesh.Connect(t, "observer")
	r.said, err = nc.SubscribeSync("wb.announce.>")
	ok(t, err)
	ok(t, nc.FlushWithContext(r.within()))
	return r
}

// logged is what a service logs.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (r *rig) within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	r.t.Cleanup(cancel)
	return ctx
}

// running is a service that runs.
type running struct {
	stop     func() error
	stopWork context.CancelCauseFunc
}

// serve runs a service until the test's end.
func (r *rig) serve(cfg Config) *running {
	r.t.Helper()
	in, err := r.tryServe(cfg)
	ok(r.t, err)
	r.t.Cleanup(func() {
		if err := in.stop(); err != nil {
			r.t.Errorf("the service ended with %v", err)
		}
	})
	return in
}

// tryServe gives the error with which a service does not become ready.
func (r *rig) tryServe(cfg Config) (*running, error) {
	r.t.Helper()
	cfg.AllowRoot = true
	return r.tryServeAs(cfg)
}

func (r *rig) tryServeAs(cfg Config) (*running, error) {
	r.t.Helper()
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	svc := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	work, stopWork := context.WithCancelCause(context.Background())
	nc := r.mesh.Connect(r.t, svc.Identity)
	env := app.Env{Identity: svc.Identity, Prefix: r.mesh.Prefix(), NATS: nc, Log: slog.New(slog.NewTextHandler(r.log, nil)), Work: work}
	ready, done := make(chan struct{}), make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = svc.Run(ctx, env, sync.OnceFunc(func() { close(ready) }))
	}()
	stop := func() error { cancel(); <-done; nc.Close(); return err }
	select {
	case <-ready:
		return &running{stop, stopWork}, nil
	case <-done:
		stopWork(nil)
		return nil, stop()
	}
}

// heard is one frame of an announcement.
type heard struct {
	id, tool string
	frame    frames.Frame
}

// await gives the next announcement that f accepts.
func (r *rig) await(what string, f func(h heard) bool) heard {
	r.t.Helper()
	ctx := r.within()
	for {
		m, err := r.said.NextMsgWithContext(ctx)
		if err != nil {
			r.t.Fatalf("waiting for %s: %v\n%s", what, err, r.log)
		}
		tokens := strings.Split(m.Subject, ".")
		said, err := frames.Decode(m.Data)
		ok(r.t, err)
		for i := range said.Frames {
			h := heard{id: tokens[3], frame: said.Frames[i]}
			if len(tokens) == 5 {
				h.tool = tokens[4]
			}
			if f(h) {
				return h
			}
		}
	}
}

// served is a tool that was announced.
type served struct {
	r        *rig
	id, name string
	decl     *frames.Declaration
}

// tool waits until a tool is announced.
func (r *rig) tool(name string) *served {
	r.t.Helper()
	h := r.await("tool "+name, func(h heard) bool { return h.tool == name && h.frame.Type == frames.TypeDescription })
	d, err := frames.DeclarationFrom(h.frame.Content)
	ok(r.t, err)
	return &served{r, h.id, name, d}
}

// gone waits until the instance of a tool takes no calls any more.
func (s *served) gone() {
	s.r.t.Helper()
	s.r.await("the end of "+s.name, func(h heard) bool { return h.id == s.id && h.frame.Type == frames.TypeEnd })
}

// skipped waits until somebody says that nothing but the sources is skipped, and
// gives the reasons.
func (r *rig) skipped(sources ...string) []string {
	r.t.Helper()
	var reasons []string
	r.await("skipped "+strings.Join(sources, ", "), func(h heard) bool {
		if h.frame.Type != frames.TypeMeta || h.tool != "" {
			return false
		}
		for range h.frame.Content.Lookup("tools").Pairs() {
			return false // an instance with tools
		}
		var names []string
		reasons = nil
		for item := range h.frame.Content.Lookup("skipped").Items() {
			name, _ := item.Lookup("source").Text()
			reason, _ := item.Lookup("reason").Text()
			names, reasons = append(names, name), append(reasons, reason)
		}
		return strings.Join(names, ",") == strings.Join(sources, ",")
	})
	return reasons
}

// call calls a tool; live gets the frames before the result.
func (s *served) call(args string, opts ...frames.Option) (res *frames.ToolResult, live []frames.Frame) {
	s.r.t.Helper()
	f := frames.Call(s.name, json.RawMessage(args), opts...)
	fs, err := s.r.caller.Request(s.r.within(), s.r.caller.InstTool("manifest", s.id, s.name), &f)
	ok(s.r.t, err)
	last := fs[len(fs)-1]
	res, err = last.Result()
	ok(s.r.t, err)
	return res, fs[:len(fs)-1]
}

// want calls a tool and compares its result.
func (s *served) want(args, want string) {
	s.r.t.Helper()
	res, _ := s.call(args)
	if res.Err != nil || string(res.Result) != want {
		s.r.t.Errorf("%s(%s): got %s, %v, want %s", s.name, args, res.Result, res.Err, want)
	}
}

// fails calls a tool and compares its error.
func (s *served) fails(args string, code frames.Code, reason string, texts ...string) *frames.ToolResult {
	s.r.t.Helper()
	res, _ := s.call(args)
	if res.Err == nil || res.Err.Code != code || res.Err.Reason != reason {
		s.r.t.Fatalf("%s(%s): got %s, %#v, want %s, %s", s.name, args, res.Result, res.Err, code, reason)
	}
	for _, text := range texts {
		if !strings.Contains(res.Err.Message, text) {
			s.r.t.Errorf("%s(%s): %q does not hold %q", s.name, args, res.Err.Message, text)
		}
	}
	return res
}

// folder makes a folder of tools.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tools")
	ok(t, os.Mkdir(dir, 0o755))
	for name, text := range files {
		put(t, dir, name, text)
	}
	return dir
}

// put writes a file as a whole, as a careful editor does; scripts are executable.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	mode := os.FileMode(0o644)
	if strings.HasPrefix(text, "#!") {
		mode = 0o755
	}
	tmp := filepath.Join(dir, ".tmp-"+name)
	ok(t, os.WriteFile(tmp, []byte(text), mode))
	ok(t, os.Rename(tmp, filepath.Join(dir, name)))
}

// fifo makes a named pipe and gives its path.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	ok(t, syscall.Mkfifo(path, 0o666))
	return path
}

// declaration is a tool file.
func declaration(name, more string) string {
	return `{"name":"` + name + `","description":"d","inputSchema":{"type":"object"},` + more + `}`
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// skippedFor waits until a source alone is skipped, for a reason that holds a text.
func (r *rig) skippedFor(source, text string) []string {
	r.t.Helper()
	for {
		if reasons := r.skipped(source); strings.Contains(reasons[0], text) {
			return reasons
		}
	}
}
