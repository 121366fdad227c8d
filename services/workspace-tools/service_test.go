package workspacetools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	workspacetools "github.com/weavebus/weavebus/services/workspace-tools"
)

func link(t *testing.T, target, name string) string {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
	return name
}

// The key that a mesh hands to its user for tools is not that of the tools that come
// with it: what the user announces cannot take their names.
func TestIdentityIsNotTheUsers(t *testing.T) {
	t.Parallel()
	if id := workspacetools.New(workspacetools.Config{}).Identity; id != "workspace" {
		t.Errorf("the identity is %q", id)
	}
}

// A wrong Config is refused before anything is announced, and names the field.
func TestConfigIsRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	dir := folder(t, map[string]string{"sub/state/x": "", "file": ""})
	sub := filepath.Join(dir, "sub")
	same := folder(t, map[string]string{"sub/y": ""})
	links := t.TempDir()
	many := func(ws ...workspacetools.Workspace) workspacetools.Config {
		return workspacetools.Config{Workspaces: ws}
	}
	private := func(ws string, folders ...string) workspacetools.Config {
		cfg := one("w", ws)
		cfg.Private = folders
		return cfg
	}
	long, negative, extension, env := one("w", dir), one("w", dir), one("w", dir), one("w", dir)
	long.CommandTimeout, negative.CommandTimeout = 11*time.Minute, -1
	extension.AllowedExtensions, env.ExtraEnv = []string{"a/b"}, []string{"*"}
	for name, tc := range map[string]struct {
		cfg  workspacetools.Config
		code frames.Code
		text string
	}{
		"none":         {workspacetools.Config{}, frames.CodeValidationInput, "Workspaces: none given"},
		"no directory": {many(workspacetools.Workspace{Name: "w"}), frames.CodeValidationInput, "directory is blank"},
		"missing":      {one("w", dir+"/nope"), frames.CodeNotFound, "does not exist"},
		"a file":       {one("w", dir+"/file"), frames.CodeValidationInput, "not a directory"},
		"path name":    {one(frames.PathKey(dir), dir), frames.CodeValidationInput, "cannot be a name"},
		"line name":    {one("a\nb", dir), frames.CodeValidationInput, "cannot be a name"},
		"root":         {many(workspacetools.Workspace{Dir: "/"}), frames.CodeValidationInput, "cannot be a name"},
		"name twice":   {many(workspacetools.Workspace{Dir: sub}, workspacetools.Workspace{Dir: filepath.Join(same, "sub")}), frames.CodeValidationInput, `the name "sub" stands twice`},
		"folder twice": {many(workspacetools.Workspace{Name: "a", Dir: dir}, workspacetools.Workspace{Name: "b", Dir: dir + "/."}), frames.CodeValidationInput, "stands twice"},
		"long time":    {long, frames.CodeValidationInput, "CommandTimeout"},
		"negative":     {negative, frames.CodeValidationInput, "CommandTimeout"},
		"extension":    {extension, frames.CodeValidationInput, "extension"},
		"variable":     {env, frames.CodeValidationInput, "environment variable"},
		"contains":     {private(dir, sub+"/state"), frames.CodeDenied, "contains, or lies in"},
		"lies in":      {private(sub, dir), frames.CodeDenied, "contains, or lies in"},
		"is":           {private(sub, "/nope", sub+"/"), frames.CodeDenied, "contains, or lies in"},
		"by a link":    {private(sub, link(t, dir, filepath.Join(links, "a"))), frames.CodeDenied, "contains, or lies in"},
		"is a link":    {private(link(t, sub+"/state", filepath.Join(links, "b")), dir), frames.CodeDenied, "contains, or lies in"},
		"will contain": {private(dir, sub+"/not/yet"), frames.CodeDenied, "contains, or lies in"},
		"will by link": {private(dir, filepath.Join(link(t, sub, filepath.Join(links, "c")), "not", "yet")), frames.CodeDenied, "contains, or lies in"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.tryServe(tc.cfg)
			if frames.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("err = %v, want %s with %q", err, tc.code, tc.text)
			}
		})
	}
	cfg := private(sub, sub+"state", filepath.Join(dir, "other"), same)
	r.serve(cfg)
}

// A stop waits for a running command; the end of the work context ends it.
func TestStopWithARunningCommand(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for name, tc := range map[string]struct {
		end  func(in *instance, dir string) error
		code frames.Code
		out  string
	}{
		"soft": {func(_ *instance, dir string) error { return os.WriteFile(filepath.Join(dir, "go"), nil, 0o644) }, "", "begun\nended\n"},
		"hard": {func(in *instance, _ string) error {
			in.stopWork(fmt.Errorf("the soft stop is over: %w", app.ErrHardStop))
			return nil
		}, frames.CodeInterrupted, "begun\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, nil)
			cfg := one("w", dir)
			cfg.Environ = []string{"PATH=" + os.Getenv("PATH")}
			in := r.serve(cfg)
			call := frames.Call("run_command", json.RawMessage(`{"command":"echo begun; until test -e go; do sleep 0.01; done; echo ended"}`))
			x, err := r.caller.Open(context.Background(), r.caller.InstTool("workspace", in.id, "run_command"), frames.Msgpack, &call)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			if f, err := x.Next(within(t)); err != nil || f.Text() != "begun\n" {
				t.Fatalf("first frame %+v, %v", f, err)
			}
			stopped := make(chan error, 1)
			go func() { stopped <- in.stop() }()
			for draining := false; !draining; {
				res, _ := in.call("read_file", `{}`)
				draining = res.Err != nil && res.Err.Reason == "draining"
			}
			if err := tc.end(in, dir); err != nil {
				t.Fatal(err)
			}
			res := lastResult(t, x)
			if (tc.code == "") != (res.Err == nil) || res.Err != nil && res.Err.Code != tc.code {
				t.Errorf("error %v, want code %q", res.Err, tc.code)
			}
			if m := fields(t, res); m["stdout"] != tc.out {
				t.Errorf("stdout %q, want %q", m["stdout"], tc.out)
			}
			if err := <-stopped; err != nil {
				t.Errorf("the service ended with %v", err)
			}
		})
	}
}

func lastResult(t *testing.T, x *bus.Exchange) *frames.ToolResult {
	t.Helper()
	for f, err := range x.All(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Type != frames.TypeToolResult {
			continue
		}
		res, err := f.Result()
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	t.Fatal("no result")
	return nil
}

// Through a dispatcher calls come to the instance that owns their workspace.
func TestDispatcherFindsTheOwner(t *testing.T) {
	t.Parallel()
	r := setup(t)
	a, b := folder(t, map[string]string{"in-a": ""}), folder(t, map[string]string{"in-b": ""})
	r.serve(one("a", a))
	r.serve(one("b", b))
	d, err := dispatch.Follow(within(t), context.Background(), r.caller, dispatch.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Stop()
	for i, tc := range []struct {
		workspace, want string
		code            frames.Code
	}{
		{"a", "in-a", ""}, {"b", "in-b", ""}, {b, "in-b", ""},
		{"", "", frames.CodeValidationInput}, {"c", "", frames.CodeNotFound}, {filepath.Dir(a), "", frames.CodeNotFound},
	} {
		res := d.Do(within(t), dispatch.Call{
			ID: fmt.Sprintf("c%d", i), Caller: "me", Tool: "read_file", Arguments: json.RawMessage(`{}`), Workspace: tc.workspace,
		})
		if (tc.code == "") != (res.Err == nil) || res.Err != nil && res.Err.Code != tc.code || !strings.Contains(string(res.Result), tc.want) {
			t.Errorf("workspace %q: %s, %v; want %q, code %q", tc.workspace, res.Result, res.Err, tc.want, tc.code)
		}
	}
}
