package workspacetools_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	workspacetools "github.com/weavebus/weavebus/services/workspace-tools"
)

// wantError checks a result's error.
func wantError(t *testing.T, what string, res *frames.ToolResult, code frames.Code, reason string) {
	t.Helper()
	if res.Err == nil || res.Err.Code != code || res.Err.Reason != reason {
		t.Errorf("%s: error %v, result %s; want %s with reason %s", what, res.Err, res.Result, code, reason)
	}
}

// contract: P34, P35, P36, P37, B10
func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a.txt": "one\ntwo\n<&>\n", "sub/b.go": "package b\n"})
	in := setup(t).serve(one("w", dir))
	for args, want := range map[string]string{
		`{"path":"a.txt"}`:                      `{"success":true,"path":"a.txt","truncated":false,"content":"one\ntwo\n<&>\n","size":12,"startLine":1,"endLine":3}`,
		`{"path":"a.txt","offset":2,"limit":1}`: `{"success":true,"path":"a.txt","truncated":true,"content":"two\n","size":12,"startLine":2,"endLine":2,"nextOffset":3}`,
		`{"path":"sub"}`:                        `{"success":true,"path":"sub","truncated":false,"isDirectory":true,"files":[{"name":"b.go","type":"file","size":10}],"total":1,"hint":"This is a directory. Join its path and the name of an entry to read that entry."}`,
	} {
		res, _ := in.call("read_file", args)
		if diff := cmp.Diff(want, string(res.Result)); diff != "" || res.Err != nil {
			t.Errorf("%s: %v\n%s", args, res.Err, diff)
		}
	}
	for _, args := range []string{`{}`, `{"path":""}`, `{"path":" "}`, `{"path":"."}`} {
		res, _ := in.call("read_file", args)
		if m := fields(t, res); m["path"] != "." || m["isDirectory"] != true || m["total"] != 2.0 {
			t.Errorf("%s: %s", args, res.Result)
		}
	}
	for args, want := range map[string][2]string{
		`{"path":"../secret"}`:  {"DENIED", "path_outside_workspace"},
		`{"path":"/etc"}`:       {"DENIED", "path_outside_workspace"},
		`{"path":"no.txt"}`:     {"EXECUTION", "not_found"},
		`{"offset":-1}`:         {"VALIDATION_INPUT", "invalid_range"},
		`{"path":"a\u0000.go"}`: {"VALIDATION_INPUT", "invalid_path"},
	} {
		res, _ := in.call("read_file", args)
		wantError(t, args, res, frames.Code(want[0]), want[1])
		if text := string(res.Err.Raw()); strings.Contains(text, dir) {
			t.Errorf("%s: the error names a path of the host: %s", args, text)
		}
	}
}

// contract: P29, P30, P31, P32, P33
func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a.txt": "old"})
	cfg := one("w", dir)
	cfg.AllowedExtensions = []string{"txt", ".MD"}
	in := setup(t).serve(cfg)
	for args, want := range map[string]string{
		`{"path":"x/y/new.md","content":"ü"}`: `{"success":true,"path":"x/y/new.md","bytes":2,"created":true}`,
		`{"path":"a.txt","content":""}`:       `{"success":true,"path":"a.txt","bytes":0,"created":false}`,
	} {
		res, _ := in.call("write_file", args)
		if string(res.Result) != want || res.Err != nil {
			t.Errorf("%s: %s, %v", args, res.Result, res.Err)
		}
	}
	for name, want := range map[string]string{"a.txt": "", "x/y/new.md": "ü"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	for args, want := range map[string][2]string{
		`{"path":"","content":"x"}`:            {"VALIDATION_INPUT", "empty_path"},
		`{"path":"a.sh","content":"x"}`:        {"DENIED", "extension_not_allowed"},
		`{"path":"../up.txt","content":"x"}`:   {"DENIED", "path_outside_workspace"},
		`{"path":"x/../b.txt","content":"x"}`:  {"VALIDATION_INPUT", "invalid_path"},
		`{"path":"a.txt/b.txt","content":"x"}`: {"EXECUTION", "not_a_directory"},
	} {
		res, _ := in.call("write_file", args)
		wantError(t, args, res, frames.Code(want[0]), want[1])
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "up.txt")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was written outside: %v", err)
	}
}

// command runs a command and gives its result without the times.
func (in *instance) command(t *testing.T, args string) (map[string]any, *frames.Error, []frames.Frame) {
	t.Helper()
	res, live := in.call("run_command", args)
	m := fields(t, res)
	if ms, ok := m["durationMs"].(float64); !ok || ms < 0 {
		t.Errorf("%s: durationMs %v", args, m["durationMs"])
	}
	delete(m, "durationMs")
	return m, res.Err, live
}

// contract: P38, P39, P40, P42, P44
func TestRunCommand(t *testing.T) {
	t.Parallel()
	dir := folder(t, nil)
	cfg := one("w", dir)
	cfg.Environ = []string{"PATH=" + os.Getenv("PATH"), "SECRET=s3", "EXTRA_A=1", "LANG=C"}
	cfg.ExtraEnv = []string{"EXTRA_*"}
	in := setup(t).serve(cfg)
	got, err, live := in.command(t, `{"command":"echo out; echo err >&2; cat; pwd >here; env | grep -c -e SECRET -e s3; echo $EXTRA_A"}`)
	want := map[string]any{
		"success": true, "command": "echo out; echo err >&2; cat; pwd >here; env | grep -c -e SECRET -e s3; echo $EXTRA_A",
		"stdout": "out\n0\n1\n", "stderr": "err\n", "exitCode": 0.0, "stdoutBytes": 8.0, "stderrBytes": 4.0,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if here, err := os.ReadFile(filepath.Join(dir, "here")); err != nil || !sameFile(t, strings.TrimSpace(string(here)), dir) {
		t.Errorf("the command ran in %q, %v", here, err)
	}
	streams := map[string]string{}
	for _, f := range live {
		streams[f.Metadata.Text("stream")] += f.Text()
	}
	if diff := cmp.Diff(map[string]string{"stdout": "out\n0\n1\n", "stderr": "err\n"}, streams); diff != "" {
		t.Errorf("live output: %s", diff)
	}
	for args, want := range map[string][2]string{
		`{"command":""}`:                                   {"VALIDATION_INPUT", "empty_command"},
		`{"command":" \n"}`:                                {"VALIDATION_INPUT", "empty_command"},
		`{"command":"true","timeout_ms":600001}`:           {"VALIDATION_INPUT", "invalid_timeout"},
		`{"command":"true","timeout_ms":-1}`:               {"VALIDATION_INPUT", "invalid_timeout"},
		`{"command":"true\u0000"}`:                         {"VALIDATION_INPUT", "invalid_command"},
		`{"command":"` + strings.Repeat("a", 1<<17) + `"}`: {"TOO_LARGE", "command_too_long"},
	} {
		res, _ := in.call("run_command", args)
		wantError(t, args[:min(len(args), 60)], res, frames.Code(want[0]), want[1])
		if res.Result != nil {
			t.Errorf("%.60s: result %s beside the error", args, res.Result)
		}
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

// A command that fails gives its result and an error beside it.
//
// contract: P41, B12, B13
func TestFailedCommands(t *testing.T) {
	t.Parallel()
	cfg := one("w", folder(t, nil))
	cfg.Environ = []string{"PATH=" + os.Getenv("PATH")}
	in := setup(t).serve(cfg)
	for command, want := range map[string]struct {
		reason string
		effect frames.Effect
		fields map[string]any
	}{
		`echo part; exit 7`: {"exit_status", "done", map[string]any{"exitCode": 7.0, "stdout": "part\n"}},
		`kill -9 $$`:        {"signal", "done", map[string]any{"exitCode": 137.0, "signal": "SIGKILL"}},
		// case: WS-C06
		`trap '' TERM INT HUP; echo part; sleep 60`: {"timed_out", "unknown", map[string]any{"timedOut": true, "stdout": "part\n"}},
	} {
		text, err := json.Marshal(command)
		if err != nil {
			t.Fatal(err)
		}
		got, e, _ := in.command(t, `{"timeout_ms":500,"command":`+string(text)+`}`)
		if e == nil || e.Code != frames.CodeExecution || e.Reason != want.reason || e.Effect != want.effect {
			t.Errorf("%s: %+v", command, e)
		}
		if got["success"] != true {
			t.Errorf("%s: success %v", command, got["success"])
		}
		for k, v := range want.fields {
			if got[k] != v {
				t.Errorf("%s: %s is %v, want %v", command, k, got[k], v)
			}
		}
	}
}

// A call's end ends its command; what it had written by then is kept.
//
// contract: B4, P43
func TestEndOfTheCallEndsTheCommand(t *testing.T) {
	t.Parallel()
	dir := folder(t, nil)
	in := setup(t).serve(one("w", dir))
	res, _ := in.call("run_command", `{"command":"echo part; sleep 300; touch survived"}`, frames.WithMeta("timeoutMs", 700))
	if res.Err == nil || res.Err.Code != frames.CodeTimeout || res.Err.Message != "Tool run_command timed out after 700ms" {
		t.Errorf("error %v", res.Err)
	}
	if m := fields(t, res); m["stdout"] != "part\n" || m["signal"] != "SIGTERM" {
		t.Errorf("result %s", res.Result)
	}
	if _, err := os.Stat(filepath.Join(dir, "survived")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the command went on: %v", err)
	}
}

// The model's order holds where tools touch the same files: whatever writes is
// a barrier. Keys tell the dispatcher whose workspace it is.
//
// contract: E12, B38, B39
func TestDeclarations(t *testing.T) {
	t.Parallel()
	dir := folder(t, nil)
	in := setup(t).serve(one("w", dir))
	fs, err := in.r.caller.Request(within(t), in.r.caller.Inst("workspace", in.id), new(frames.Describe("")))
	if err != nil {
		t.Fatal(err)
	}
	type traits struct {
		Annotations                  frames.Annotations
		Replay, Mode, Retain         string
		TimeoutMs                    int64
		MaxBytes, MaxLines, Parallel int
	}
	got := map[string]traits{}
	for i := range fs {
		d, err := frames.DeclarationFrom(fs[i].Content)
		if err != nil {
			t.Fatal(err)
		}
		l := d.OutputLimits
		got[d.Name] = traits{d.Annotations, d.Replay, d.ExecutionMode, l.Retain, d.Timeout().Milliseconds(), l.MaxBytes, l.MaxLines, d.Concurrency}
		if !slices.Equal(d.Keys, []string{"w", frames.PathKey(dir)}) {
			t.Errorf("%s has the keys %v", d.Name, d.Keys)
		}
	}
	want := map[string]traits{
		"read_file":   {frames.Annotations{ReadOnly: true, Idempotent: true}, "safe", "parallel", "head", 30_000, 102400, 2000, 16},
		"write_file":  {frames.Annotations{Destructive: true, Idempotent: true}, "unsafe", "sequential", "head", 30_000, 51200, 2000, 16},
		"run_command": {frames.Annotations{Destructive: true, OpenWorld: true}, "unsafe", "sequential", "tail", 605_000, 51200, 2000, 16},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A call goes to the workspace that its metadata names: by name, by key, by path.
func TestWorkspaces(t *testing.T) {
	t.Parallel()
	a, b := folder(t, map[string]string{"in-a": ""}), folder(t, map[string]string{"in-b": ""})
	r := setup(t)
	both := r.serve(workspacetools.Config{Workspaces: []workspacetools.Workspace{{Name: "a", Dir: a}, {Name: "b", Dir: b}}})
	single := r.serve(workspacetools.Config{Workspaces: []workspacetools.Workspace{{Dir: a}}})
	for _, tc := range []struct {
		in   *instance
		name string
		want string
	}{
		{both, "a", "in-a"}, {both, "b", "in-b"}, {both, frames.PathKey(b), "in-b"}, {both, b + "/.", "in-b"},
		{single, "", "in-a"}, {single, filepath.Base(a), "in-a"},
	} {
		res, _ := tc.in.call("read_file", "{}", frames.WithMeta("workspace", tc.name))
		if !strings.Contains(string(res.Result), tc.want) {
			t.Errorf("workspace %q: %s, %v", tc.name, res.Result, res.Err)
		}
	}
	for _, tool := range []string{"read_file", "write_file", "run_command"} {
		args := map[string]string{"read_file": `{}`, "write_file": `{"path":"x","content":""}`, "run_command": `{"command":"true"}`}[tool]
		res, _ := both.call(tool, args)
		wantError(t, tool, res, frames.CodeValidationInput, "workspace_required")
		if !strings.Contains(res.Err.Message, "name one of a, b") {
			t.Errorf("%s: %v", tool, res.Err)
		}
		res, _ = both.call(tool, args, frames.WithMeta("workspace", "c"))
		wantError(t, tool, res, frames.CodeNotFound, "workspace_not_found")
	}
}
