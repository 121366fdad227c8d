package manifesttools

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/internal/process"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

const (
	// maxArgs and maxArgBytes bound the arguments of a program.
	maxArgs     = 64
	maxArgBytes = 64 << 10
	// stderrShown is how much of its end an error shows.
	stderrShown = 1 << 10
	// exitTryAgain is EX_TEMPFAIL: the same call may succeed later.
	exitTryAgain = 75
)

// command is a program that runs once for each call.
type command struct {
	program string
	args    []string
	// env are the variables that it gets beside those that every command gets.
	env []string
	dir string
}

// readCommand reads command, args and env.
func (r rules) readCommand(e *entry, members map[string]json.RawMessage) (err error) {
	c := &command{dir: r.dir}
	at := e.at.in("command")
	if c.program, err = at.text(members["command"]); err != nil {
		return err
	}
	if c.args, err = e.at.in("args").texts(members["args"], maxArgs); err != nil {
		return err
	}
	if n := len(strings.Join(c.args, " ")); n > maxArgBytes {
		return e.at.in("args").refuse("has %d bytes, the limit is %d", n, maxArgBytes)
	}
	if c.env, err = e.at.in("env").texts(members["env"], maxArgs); err != nil {
		return err
	}
	for i, name := range c.env {
		at := e.at + place(fmt.Sprintf("/env/%d", i))
		if !r.secrets.allowed(name, "", "", false) || filepath.IsAbs(name) {
			return at.refuse("the variable %q is not allowed: the operator allows it with --allow-secret", name)
		}
		if _, ok := r.secrets.variable(name); !ok {
			return at.refuse("the variable %s is not set", name)
		}
	}
	if v, ok := members["headers"]; ok {
		return e.at.in("headers").refuse("is %s: only endpoints have headers", show(v))
	}
	if _, err := c.find(); err != nil {
		return at.refuse("%s", err)
	}
	e.command = c
	return nil
}

// find gives the program's file. A relative one lies beside the declaration, and
// links do not lead out of that folder. There is no search.
func (c *command) find() (string, error) {
	path := c.program
	if !filepath.IsAbs(path) {
		if !filepath.IsLocal(path) {
			return "", fmt.Errorf("%q leads out of the folder", path)
		}
		dir, err := filepath.EvalSymlinks(c.dir)
		if err != nil {
			return "", fmt.Errorf("the folder is gone: %w", err)
		}
		if path, err = filepath.EvalSymlinks(filepath.Join(dir, path)); err != nil {
			return "", fmt.Errorf("there is no program %q in the folder; it is not searched for anywhere else: give its absolute path", c.program)
		}
		if in, err := filepath.Rel(dir, path); err != nil || !filepath.IsLocal(in) {
			return "", fmt.Errorf("%q is a link that leads out of the folder", c.program)
		}
	}
	return path, executable(path, c.program)
}

func executable(path, name string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("there is no program %q", name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%q is no file", name)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%q is not executable: chmod +x", name)
	}
	return nil
}

// host is what commands run under.
type host struct {
	cfg     Config
	secrets *secrets
}

// user decides who the commands of a folder run as.
func (h *host) user(dir fs.FileInfo) (process.User, error) {
	u := process.UserFor(dir, true)
	if u.IsRoot() && !h.cfg.AllowRoot {
		return u, frames.NewError(frames.CodeDenied,
			"commands would run as root: start as another user, give the folder to one, or allow root").WithReason("root")
	}
	return u, nil
}

// run runs a command for a call.
func (h *host) run(ctx context.Context, c *command, call *tool.Call) (*frames.ToolResult, error) {
	path, err := c.find()
	if err != nil {
		return nil, cannotStart(err)
	}
	info, err := os.Stat(c.dir)
	if err != nil {
		return nil, cannotStart(err)
	}
	u, err := h.user(info)
	if err != nil {
		return nil, err
	}
	end, err := process.Program{
		Path: path, Args: c.args, Dir: c.dir, User: u, OutputBytes: h.cfg.ResultBytes,
		Env:   append(process.Environment(h.cfg.Environ, c.env, c.dir, u), callEnv(&call.Info)...),
		Input: append(append([]byte{}, call.Arguments...), '\n'),
		Output: func(chunk process.Chunk) {
			if chunk.Stream == process.Stderr {
				tool.Output(ctx, chunk.Stream, chunk.Text)
			}
		},
	}.Run(ctx)
	if err != nil {
		return nil, cannotStart(err)
	}
	return h.ended(call.Tool, &end)
}

// callEnv tells a program what it may know of its call.
func callEnv(i *tool.Info) []string {
	return []string{
		"WEAVEBUS_TOOL=" + i.Tool, "WEAVEBUS_CALL_ID=" + i.ID, "WEAVEBUS_CALLER=" + plain(i.Caller),
		"WEAVEBUS_SESSION_ID=" + plain(i.SessionID), "WEAVEBUS_WORKSPACE=" + plain(i.Workspace),
	}
}

// plain drops what no variable can hold.
func plain(s string) string { return jsontext.Clip(strings.ReplaceAll(s, "\x00", ""), 1<<10) }

// ended makes the outcome of a program that has ended.
func (h *host) ended(name string, end *process.Ending) (*frames.ToolResult, error) {
	if end.Stopped {
		return nil, frames.NewError(frames.CodeExecution, "the program was stopped").WithReason("stopped")
	}
	res := textResult(end.Stdout.Text)
	switch code := end.ExitCode(); {
	case end.Signal() != "":
		return res, failed("signal", "%s was ended by %s%s", name, end.Signal(), tail(end.Stderr.Text))
	case code != 0:
		return res, failed("exit_status", "%s exited with status %d%s", name, code, tail(end.Stderr.Text)).
			With(func(e *frames.Error) { e.Retryable = code == exitTryAgain })
	case end.Stdout.Omitted > 0:
		return res, frames.TooLarge("the output of "+name, end.Stdout.Total, int64(h.cfg.ResultBytes)).
			With(func(e *frames.Error) { e.Effect = frames.EffectDone })
	}
	return res, nil
}

func failed(reason, format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeExecution, format, args...).WithReason(reason)
}

func cannotStart(err error) error {
	return failed("cannot_start", "the program could not be started: %w", err).
		With(hideFromModel("the tool's program could not be started; this is for the operator to mend"))
}

// tail gives the end of what a program wrote to stderr, for an error.
func tail(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	if cut := len(text) - stderrShown; cut > 0 {
		text = "…" + strings.ToValidUTF8(text[cut:], "")
	}
	return ": " + text
}

// textResult reads a text as a result: one JSON value as it is, other text as a
// text, and nothing as {}.
func textResult(text string) *frames.ToolResult {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return &frames.ToolResult{}
	}
	if jsontext.Check([]byte(trimmed), jsontext.Limits{}) == nil {
		return &frames.ToolResult{Result: json.RawMessage(trimmed)}
	}
	return tool.Text(strings.TrimRight(text, "\r\n"))
}

// check refuses a folder whose commands may not run, else it gives who they run as.
func (h *host) check(dir string) (process.User, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return process.User{}, folderError(dir, err)
	}
	return h.user(info)
}
