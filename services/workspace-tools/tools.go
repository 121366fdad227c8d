package workspacetools

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/workspace"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// commandMargin is how much longer a call of run_command may take than the
// longest command: the command's own time-out is to come first.
const commandMargin = 5 * time.Second

type readIn struct {
	Path   string `json:"path,omitempty" jsonschema:"File or directory, relative to the workspace. Absent or blank: the workspace itself."`
	Offset int    `json:"offset,omitempty" jsonschema:"First line to read, counted from 1."`
	Limit  int    `json:"limit,omitempty" jsonschema:"Most lines to read."`
}

type writeIn struct {
	Path    string `json:"path" jsonschema:"File, relative to the workspace. Directories on the way are made."`
	Content string `json:"content" jsonschema:"The whole new content; may be empty."`
}

type commandIn struct {
	Command   string `json:"command" jsonschema:"Command line for the shell, run in the root of the workspace with an empty standard input."`
	TimeoutMs int64  `json:"timeout_ms,omitempty" jsonschema:"Milliseconds the command may run, at most 600000."`
}

// tools makes the set that is served.
func (s *service) tools() (*tool.Set, error) {
	set := tool.NewSet("workspace-tools")
	keys := tool.Keys(s.keys...)
	return set, errors.Join(
		// A read gives at most 50 KiB of text, which are more bytes in JSON.
		tool.Add(set, "read_file", s.readFile, keys, tool.Title("Read file"), tool.Capabilities("read"), tool.ReplaySafe(),
			tool.Description("Reads a text file, or lists a directory. Long files come in parts: nextOffset is the offset that reads on."),
			tool.Annotations(frames.Annotations{ReadOnly: true, Idempotent: true}),
			tool.Limits(frames.OutputLimits{MaxBytes: 100 << 10})),
		tool.Add(set, "write_file", s.writeFile, keys, tool.Title("Write file"), tool.Capabilities("write"), tool.Sequential(),
			tool.Description("Writes a text file: makes it, or replaces its whole content."),
			tool.Annotations(frames.Annotations{Destructive: true, Idempotent: true})),
		// Sequential, since a command may read and write anything that the calls
		// around it do.
		tool.Add(set, "run_command", s.runCommand, keys, tool.Title("Run command"), tool.Capabilities("execute"), tool.Sequential(),
			tool.Description(s.commandText()), tool.Timeout(workspace.MaxTimeout+commandMargin),
			tool.Annotations(frames.Annotations{Destructive: true, OpenWorld: true}),
			tool.Limits(frames.OutputLimits{Retain: "tail"})),
	)
}

func (s *service) commandText() string {
	return fmt.Sprintf("Runs a shell command in the workspace and gives its output and exitCode. "+
		"It is stopped after %d ms, or after timeout_ms. What it leaves in the background is ended with it.", s.cfg.CommandTimeout.Milliseconds())
}

func (s *service) readFile(ctx context.Context, in readIn) (workspace.ReadResult, error) {
	ws, err := s.pick(ctx)
	if err != nil {
		return workspace.ReadResult{}, err
	}
	return ws.ReadFile(ctx, workspace.ReadRequest{Path: in.Path, Offset: in.Offset, Limit: in.Limit})
}

func (s *service) writeFile(ctx context.Context, in writeIn) (workspace.WriteResult, error) {
	ws, err := s.pick(ctx)
	if err != nil {
		return workspace.WriteResult{}, err
	}
	return ws.WriteFile(ctx, workspace.WriteRequest{Path: in.Path, Content: in.Content})
}

// runCommand gives what a command did also where it failed: the exit code is
// data, the error stands beside it.
func (s *service) runCommand(ctx context.Context, in commandIn) (tool.Result[workspace.CommandResult], error) {
	var out tool.Result[workspace.CommandResult]
	ws, err := s.pick(ctx)
	if err != nil {
		return out, err
	}
	timeout, err := s.commandTimeout(in.TimeoutMs)
	if err != nil {
		return out, err
	}
	out.Value, out.Err = ws.RunCommand(ctx, workspace.Command{
		Text: in.Command, Timeout: timeout, Output: func(c workspace.Chunk) { show(ctx, c) },
	})
	if !out.Value.Success { // nothing was started
		return out, out.Err
	}
	return out, nil
}

// commandTimeout reads timeout_ms; 0 is none given.
func (s *service) commandTimeout(ms int64) (time.Duration, error) {
	if most := workspace.MaxTimeout.Milliseconds(); ms < 0 || ms > most {
		return 0, frames.NewError(frames.CodeValidationInput, "timeout_ms: %d is not between 1 and %d", ms, most).
			WithReason(workspace.ReasonInvalidTimeout)
	}
	if ms == 0 {
		return s.cfg.CommandTimeout, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// show sends a piece of a running command's output to those who watch.
func show(ctx context.Context, c workspace.Chunk) {
	if c.Dropped > 0 {
		tool.Output(ctx, c.Stream, fmt.Sprintf("\n[%d bytes left out]\n", c.Dropped))
	}
	tool.Output(ctx, c.Stream, c.Text)
}

// pick gives the workspace that the call is for: by name, key or absolute path;
// without one the only workspace.
func (s *service) pick(ctx context.Context) (*workspace.Workspace, error) {
	name := tool.CallInfo(ctx).Workspace
	if name == "" && len(s.open) == 1 {
		return s.open[0], nil
	}
	if name == "" {
		return nil, frames.NewError(frames.CodeValidationInput, "several workspaces are here: name one of %s", s.names()).
			WithReason("workspace_required")
	}
	if filepath.IsAbs(name) {
		name = frames.PathKey(name)
	}
	if ws := s.find(name); ws != nil {
		return ws, nil
	}
	return nil, frames.NewError(frames.CodeNotFound, "no workspace of that name is here; there is %s", s.names()).
		WithReason("workspace_not_found")
}

func (s *service) find(key string) *workspace.Workspace {
	for _, ws := range s.open {
		if key == ws.Name() || key == ws.PathKey() {
			return ws
		}
	}
	return nil
}

func (s *service) names() string {
	var names []string
	for _, ws := range s.open {
		names = append(names, ws.Name())
	}
	return strings.Join(names, ", ")
}
