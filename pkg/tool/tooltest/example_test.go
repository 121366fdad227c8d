package tooltest

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// buildExample gives the program of examples/hello-tool.
func buildExample(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "hello-tool")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../../examples/hello-tool")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// The smallest tool is a conforming one, as a process of its own, that a
// signal drains.
func TestHelloToolConforms(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t, bustest.WithListener())
	cmd := exec.CommandContext(t.Context(), buildExample(t))
	cmd.Env = []string{"WEAVEBUS_NATS=" + m.Server().ClientURL(), "WEAVEBUS_NKEY=" + m.Server().SeedFile("local")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, m, "dispatcher")
	awaitTool(t, conn, "greet")
	Run(t, conn, Config{
		Tool: "greet",
		Good: []json.RawMessage{json.RawMessage(`{"name":"Ada"}`)},
		Bad:  []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"name":1}`)},
		Stop: func() error {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return err
			}
			return cmd.Wait()
		},
	})
}

// Without a mesh the example says what to do, and fails.
func TestHelloToolWithoutAMesh(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), buildExample(t))
	cmd.Env = []string{"WEAVEBUS_NATS=nats://127.0.0.1:1"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "UNAVAILABLE: no NATS server answers at nats://127.0.0.1:1: start one with weavebus up") {
		t.Errorf("%v: %s", err, out)
	}
}

// awaitTool waits until somebody describes the tool.
func awaitTool(t *testing.T, conn *bus.Conn, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		f := frames.Describe(name)
		asked, stop := context.WithTimeout(ctx, time.Second)
		fs, err := conn.Request(asked, conn.Describe(), &f)
		stop()
		switch {
		case err == nil && len(fs) > 0:
			return
		case ctx.Err() != nil:
			t.Fatalf("nobody describes %s: %v", name, err)
		}
	}
}
