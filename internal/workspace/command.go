package workspace

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/process"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Limits of a command.
const (
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 600 * time.Second
	// MaxCommandBytes is what Linux takes as one argument, less its last byte.
	MaxCommandBytes = 128<<10 - 1
)

// Names of the output streams.
const (
	Stdout = process.Stdout
	Stderr = process.Stderr
)

// Chunk is a piece of a running command's output.
type Chunk = process.Chunk

// CommandUser is who commands run as.
type CommandUser = process.User

var errCommandTime = errors.New("the command's time is up")

// Command says what to run.
type Command struct {
	// Text is run by bash -c, or by sh -c where there is no bash, in the root of
	// the workspace, with an empty standard input and no terminal.
	Text string
	// Timeout is at most MaxTimeout. Default DefaultTimeout.
	Timeout time.Duration
	// Output gets the output while the command runs, in calls one after the
	// other; a slow one loses chunks. RunCommand returns after the last call
	// returned. Default nil: nobody listens.
	Output func(Chunk)
}

// CommandResult is what a command did.
type CommandResult struct {
	// Success says that the command was started, not that it went well.
	Success bool   `json:"success"`
	Command string `json:"command"`
	// Stdout and Stderr are valid UTF-8; of a long stream the beginning and the
	// end, and between them a line that says how much was left out.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// ExitCode is 128 + the signal's number for a command ended by a signal.
	ExitCode int `json:"exitCode"`
	// Signal is the name of the signal that ended the shell, like "SIGKILL".
	Signal string `json:"signal,omitempty"`
	// TimedOut says that the command was stopped because its time was up.
	TimedOut bool `json:"timedOut,omitempty"`
	// Truncated says that something was left out of Stdout or Stderr.
	Truncated bool `json:"truncated,omitempty"`
	// StdoutBytes and StderrBytes count what the command wrote.
	StdoutBytes int64 `json:"stdoutBytes"`
	StderrBytes int64 `json:"stderrBytes"`
	// InvalidBytes counts what was not UTF-8: each such byte shows as U+FFFD.
	InvalidBytes int64 `json:"invalidBytes,omitempty"`
	// BackgroundLeft says that a process of the command left its process group
	// and may still run.
	BackgroundLeft bool  `json:"backgroundLeft,omitempty"`
	DurationMs     int64 `json:"durationMs"`
}

// RunCommand runs a command and waits for its end. When its time is up, or ctx
// ends, its process group gets TERM and, two seconds later, KILL; what is still
// in the group at the end of the shell is killed too.
//
// Once the command was started the result is whole (Success is true), also
// beside an error. That error is a *frames.Error: EXECUTION with the reason
// exit_status, signal or timed_out, or what ended ctx (CANCELLED, TIMEOUT, or its
// cause if that is a *frames.Error). An error without a result means that
// nothing was started.
func (w *Workspace) RunCommand(ctx context.Context, c Command) (CommandResult, error) {
	if err := c.check(); err != nil {
		return CommandResult{}, err
	}
	if ctx.Err() != nil {
		return CommandResult{}, withEffect(stopError(ctx), frames.EffectNone)
	}
	if err := sameDir(w.dir, w.id); err != nil {
		return CommandResult{}, wrapped(frames.CodeUnavailable, ReasonWorkspaceGone,
			"the workspace's directory was moved or removed", err)
	}
	timed, cancel := context.WithTimeoutCause(ctx, c.timeout(), errCommandTime)
	defer cancel()
	end, err := w.program(c).Run(timed)
	if err != nil {
		return CommandResult{}, cannotStart(err)
	}
	res := c.result(&end)
	res.TimedOut = end.Stopped && errors.Is(timed.Err(), context.DeadlineExceeded)
	return res, c.failure(timed, &end, res)
}

// check refuses what cannot be run.
func (c Command) check() error {
	switch {
	case strings.TrimSpace(c.Text) == "":
		return refused(frames.CodeValidationInput, ReasonEmptyCommand, "command is empty")
	case strings.ContainsRune(c.Text, 0) || !utf8.ValidString(c.Text):
		return refused(frames.CodeValidationInput, ReasonInvalidCommand, "command holds a zero byte or is not UTF-8")
	case len(c.Text) > MaxCommandBytes:
		return refused(frames.CodeTooLarge, ReasonCommandTooLong,
			"command has %d bytes, the limit is %d; write a script file and run that", len(c.Text), MaxCommandBytes)
	case c.Timeout < 0 || c.Timeout > MaxTimeout:
		return refused(frames.CodeValidationInput, ReasonInvalidTimeout,
			"the time-out must be between 0 and %d ms", MaxTimeout.Milliseconds())
	}
	return nil
}

func (c Command) timeout() time.Duration {
	if c.Timeout == 0 {
		return DefaultTimeout
	}
	return c.Timeout
}

// program is the shell for a command.
func (w *Workspace) program(c Command) process.Program {
	return process.Program{
		Path: w.shell, Args: []string{"-c", c.Text}, Dir: w.dir, Env: w.env, User: w.user,
		OutputBytes: w.outputBytes, Settle: w.settle, Output: c.Output,
	}
}

func (c Command) result(end *process.Ending) CommandResult {
	out, errOut := end.Stdout, end.Stderr
	return CommandResult{
		Success: true, Command: c.Text,
		Stdout: out.Text, Stderr: errOut.Text,
		ExitCode: end.ExitCode(), Signal: end.Signal(),
		Truncated:   out.Omitted+errOut.Omitted > 0,
		StdoutBytes: out.Total, StderrBytes: errOut.Total,
		InvalidBytes:   out.Invalid + errOut.Invalid,
		BackgroundLeft: end.Left,
		DurationMs:     end.Took.Milliseconds(),
	}
}

// failure says in which way a command that ran went wrong; nil when it did not.
func (c Command) failure(ctx context.Context, end *process.Ending, res CommandResult) error {
	switch {
	case end.Stopped && errors.Is(context.Cause(ctx), errCommandTime):
		return ended(ReasonTimedOut, frames.EffectUnknown, "the command was stopped after %d ms", c.timeout().Milliseconds())
	case end.Stopped:
		return stopError(ctx)
	case res.Signal != "":
		return ended(ReasonSignal, frames.EffectDone, "the command was ended by %s", res.Signal)
	case res.ExitCode != 0:
		return ended(ReasonExitStatus, frames.EffectDone, "the command exited with status %d", res.ExitCode)
	}
	return nil
}

func ended(reason string, effect frames.Effect, format string, args ...any) error {
	return withEffect(refused(frames.CodeExecution, reason, format, args...), effect)
}

// stopError says why the caller's context ended.
func stopError(ctx context.Context) error {
	if e, ok := errors.AsType[*frames.Error](context.Cause(ctx)); ok {
		return e
	}
	return frames.AsError(ctx.Err())
}

func cannotStart(err error) error {
	text := "the command could not be started"
	if errors.Is(err, syscall.EACCES) {
		text += ": its user may not enter the workspace"
	}
	return wrapped(frames.CodeExecution, ReasonCannotStart, text, err)
}
