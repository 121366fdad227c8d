package workspacetools_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	workspacetools "github.com/weavebus/weavebus/services/workspace-tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a mesh with a dispatcher's connection.
type rig struct {
	t      *testing.T
	mesh   *bustest.Mesh
	caller *bus.Conn
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, mesh: bustest.Start(t)}
	c, err := bus.New(r.mesh.Connect(t, "dispatcher"), "dispatcher")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r.caller = c
	return r
}

// instance is a service that runs.
type instance struct {
	r        *rig
	id       string
	stop     func() error
	stopWork context.CancelCauseFunc
}

// serve runs the service until the test's end.
func (r *rig) serve(cfg workspacetools.Config) *instance {
	r.t.Helper()
	in, err := r.tryServe(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := in.stop(); err != nil {
			r.t.Errorf("the service ended with %v", err)
		}
	})
	return in
}

// tryServe gives the error with which a service does not become ready.
func (r *rig) tryServe(cfg workspacetools.Config) (*instance, error) {
	r.t.Helper()
	cfg.AllowRoot = true
	svc := workspacetools.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	work, stopWork := context.WithCancelCause(context.Background())
	nc := r.mesh.Connect(r.t, svc.Identity)
	env := app.Env{Identity: svc.Identity, Prefix: r.mesh.Prefix(), NATS: nc, Log: slog.New(slog.DiscardHandler), Work: work}
	alive := r.hearAlive()
	ready, done := make(chan struct{}), make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = svc.Run(ctx, env, sync.OnceFunc(func() { close(ready) }))
	}()
	stop := func() error { cancel(); <-done; nc.Close(); return err }
	select {
	case <-ready:
	case <-done:
		stopWork(nil)
		return nil, stop()
	}
	return &instance{r, r.idOf(alive, cfg.Workspaces[0].Dir), stop, stopWork}, nil
}

// idOf gives the instance that says it owns the folder: others are started
// beside it.
func (r *rig) idOf(alive *nats.Subscription, dir string) string {
	r.t.Helper()
	for {
		m, err := alive.NextMsgWithContext(within(r.t))
		if err != nil {
			r.t.Fatal(err)
		}
		said, err := frames.Decode(m.Data)
		if err != nil {
			r.t.Fatal(err)
		}
		for key := range said.Frames[0].Content.Lookup("keys").Items() {
			if s, _ := key.Text(); s == frames.PathKey(dir) {
				return r.caller.Tokens(m.Subject)[2]
			}
		}
	}
}

// hearAlive hears the next instances that say they are there.
func (r *rig) hearAlive() *nats.Subscription {
	r.t.Helper()
	nc := r.mesh.Connect(r.t, "observer")
	sub, err := nc.SubscribeSync("wb.announce.*.*")
	if err == nil {
		err = nc.FlushWithContext(within(r.t))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return sub
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// call calls a tool of the instance; live gets the frames before the result.
func (in *instance) call(tool, args string, opts ...frames.Option) (res *frames.ToolResult, live []frames.Frame) {
	in.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f := frames.Call(tool, json.RawMessage(args), opts...)
	fs, err := in.r.caller.Request(ctx, in.r.caller.InstTool("workspace", in.id, tool), &f)
	if err != nil {
		in.r.t.Fatal(err)
	}
	last := fs[len(fs)-1]
	if res, err = last.Result(); err != nil {
		in.r.t.Fatal(err)
	}
	return res, fs[:len(fs)-1]
}

// folder makes a workspace with files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func one(name, dir string) workspacetools.Config {
	return workspacetools.Config{Workspaces: []workspacetools.Workspace{{Name: name, Dir: dir}}}
}

// fields gives a result as a map.
func fields(t *testing.T, res *frames.ToolResult) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(res.Result, &m); err != nil {
		t.Fatalf("result %s, error %v: %v", res.Result, res.Err, err)
	}
	return m
}
