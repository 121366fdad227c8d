package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weavebus": main})
}

// The scripts drive the binary as a user does. Each has a home of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Deadline:            time.Now().Add(5 * time.Minute), // a command that hangs is a failure, not a wait
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir+"/home")
			env.Setenv("XDG_STATE_HOME", env.WorkDir+"/home/state")
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/home/config")
			for _, dir := range []string{"home", "ws"} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, dir), 0o755); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mesh": meshUp, "exits": exits, "halt": meshHalt, "await": await, "begin": begin, "server": server,
			"retry": retry, "web": web,
			"policy": policy,
		},
	})
}

// meshProcess is the mesh of a script.
type meshProcess struct {
	cmd  *exec.Cmd
	done chan error
}

// meshUp runs "weavebus up --json --port 0 ARGS" until the script's end, and
// sets URL and STATE when it is ready.
func meshUp(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command("weavebus", append([]string{"up", "--json", "--port", "0"}, args...)...)
	cmd.Path = lookPath(ts, "weavebus")
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environment(ts)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	m := &meshProcess{cmd: cmd, done: make(chan error, 1)}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		ts.Fatalf("weavebus up: %v", cmd.Wait())
	}
	var info struct {
		URL   string `json:"url"`
		State string `json:"state"`
	}
	ts.Check(json.Unmarshal([]byte(line), &info))
	ts.Setenv("URL", info.URL)
	ts.Setenv("STATE", info.State)
	go func() { m.done <- cmd.Wait() }()
	meshes.Store(ts, m)
	ts.Defer(func() { m.stop() })
}

// meshes holds the running mesh of each script.
var meshes sync.Map // *testscript.TestScript → *meshProcess

func (m *meshProcess) stop() error {
	if m.done == nil {
		return nil
	}
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	err := <-m.done
	m.done = nil
	return err
}

// meshHalt ends the mesh with SIGTERM, or with the signal that is named (kill),
// and fails if it does not exit 0 after SIGTERM.
func meshHalt(ts *testscript.TestScript, _ bool, args []string) {
	found, ok := meshes.Load(ts)
	if !ok {
		ts.Fatalf("no mesh was started")
	}
	m, _ := found.(*meshProcess)
	if len(args) == 1 && args[0] == "kill" {
		ts.Check(m.cmd.Process.Kill())
		<-m.done
		m.done = nil
		return
	}
	ts.Check(m.stop())
}

// exits runs a command that must end with an exit code: exits 4 weavebus call x.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND …")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	exit := &exec.ExitError{}
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; strings.TrimSpace(want) != strconv.Itoa(code) {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

// policy runs the example policy-hook on the script's mesh until the script's end.
func policy(ts *testscript.TestScript, _ bool, _ []string) {
	program := ts.MkAbs("policy-hook")
	build := exec.Command("go", "build", "-o", program, "github.com/weavebus/weavebus/examples/policy-hook")
	if out, err := build.CombinedOutput(); err != nil {
		ts.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = append(environment(ts), "WEAVEBUS_NATS="+ts.Getenv("URL"), "WEAVEBUS_NKEY="+ts.Getenv("STATE")+"/keys/hook.nk")
	out, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ts.Check(cmd.Wait())
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.Contains(line, "is ready") {
		ts.Fatalf("policy-hook: %s %v", line, err)
	}
}

// await waits until a file is there and not empty.
func await(ts *testscript.TestScript, _ bool, args []string) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(30 * time.Second)
	for {
		if info, err := os.Stat(ts.MkAbs(args[0])); err == nil && info.Size() > 0 {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			ts.Fatalf("%s did not come", args[0])
		}
	}
}

// server runs a NATS server without streams and services until the script's end.
func server(ts *testscript.TestScript, _ bool, _ []string) {
	ctx := context.Background()
	dir := ts.MkAbs("server")
	s, err := natsd.Start(ctx, natsd.Config{StateDir: dir})
	ts.Check(err)
	ts.Setenv("URL", s.ClientURL())
	ts.Setenv("STATE", dir)
	ts.Defer(func() { ts.Check(s.Shutdown(ctx)) })
}

// begin starts a session on the mesh, and says nothing to it.
func begin(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	conn, err := bus.Connect(ctx, bus.Dial{URL: ts.Getenv("URL"), Identity: "me", SeedFile: ts.Getenv("STATE") + "/keys/me.nk"})
	ts.Check(err)
	defer conn.Close()
	s, err := client.New(conn).Session(ctx, args[0])
	ts.Check(err)
	_, err = s.Send(ctx, frames.Param("workspace", "ws"), frames.Param("task", "wait"), frames.Start())
	ts.Check(err)
	for f, err := range s.Frames(ctx, 0) {
		ts.Check(err)
		if f.Type == frames.TypeStart {
			break
		}
	}
	ts.Check(s.Close())
}

// retry runs a command until what it prints matches a pattern: retry PATTERN COMMAND ARGS.
func retry(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: retry PATTERN COMMAND …")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	limit := time.Now().Add(30 * time.Second)
	for {
		_ = ts.Exec(args[1], args[2:]...) // what it prints counts
		out := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if pattern.MatchString(out) {
			return
		}
		if time.Now().After(limit) {
			ts.Fatalf("nothing matches %q", args[0])
		}
	}
}

// web serves a folder on loopback until the script's end, as $WEB, which is also
// what the word WEB in a file becomes. What is posted is given back.
func web(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"key":%q,"posted":%s}`, r.Header.Get("X-Key"), body)
			return
		}
		text, err := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, strings.ReplaceAll(string(text), "WEB", "http://"+r.Host))
	}))
	ts.Setenv("WEB", s.URL)
	ts.Defer(s.Close)
}

func lookPath(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, name); isFile(path) {
			return path
		}
	}
	ts.Fatalf("no %s on the PATH", name)
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func environment(ts *testscript.TestScript) []string {
	var out []string
	for _, name := range []string{"HOME", "PATH", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR"} {
		out = append(out, name+"="+ts.Getenv(name))
	}
	return out
}
