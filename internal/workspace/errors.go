package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/weavebus/weavebus/internal/validtext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Reasons of the errors of this package. DENIED: the first three;
// VALIDATION_INPUT or TOO_LARGE: what is wrong with the arguments; EXECUTION:
// what the file system or the command said.
const (
	ReasonOutside      = "path_outside_workspace"
	ReasonAbsoluteLink = "absolute_link"
	ReasonExtension    = "extension_not_allowed"

	ReasonEmptyPath      = "empty_path"
	ReasonInvalidPath    = "invalid_path"
	ReasonNameTooLong    = "name_too_long"
	ReasonInvalidRange   = "invalid_range"
	ReasonEmptyCommand   = "empty_command"
	ReasonInvalidCommand = "invalid_command"
	ReasonInvalidTimeout = "invalid_timeout"
	ReasonCommandTooLong = "command_too_long"

	ReasonNotFound      = "not_found"
	ReasonNotRegular    = "not_regular"
	ReasonIsDirectory   = "is_directory"
	ReasonNotDirectory  = "not_a_directory"
	ReasonLinkLoop      = "link_loop"
	ReasonBinary        = "binary"
	ReasonPermission    = "permission"
	ReasonNoSpace       = "no_space"
	ReasonReadOnly      = "read_only"
	ReasonIO            = "io_error"
	ReasonCannotStart   = "cannot_start"
	ReasonWorkspaceGone = "workspace_gone"
	ReasonExitStatus    = "exit_status"
	ReasonSignal        = "signal"
	ReasonTimedOut      = "timed_out"
)

// maxShown bounds the part of a caller's path that an error repeats.
const maxShown = 120

// refused makes an error for something that was never begun.
func refused(code frames.Code, reason, format string, args ...any) error {
	return frames.NewError(code, format, args...).With(func(e *frames.Error) {
		e.Reason, e.Effect = reason, frames.EffectNone
	})
}

// shown quotes a name for an error text, shortened.
func shown(name string) string {
	if len(name) <= maxShown {
		return strconv.Quote(name)
	}
	return strconv.Quote(name[:validtext.Cut([]byte(name), maxShown)] + "…")
}

// sayings are the words for what the file system may answer, first match wins.
var sayings = []struct {
	is     error
	reason string
	text   string
}{
	{fs.ErrNotExist, ReasonNotFound, "no such file or directory"},
	{fs.ErrPermission, ReasonPermission, "permission denied"},
	{syscall.ENOSPC, ReasonNoSpace, "no space left"},
	{syscall.EDQUOT, ReasonNoSpace, "the disk quota is used up"},
	{syscall.EFBIG, ReasonNoSpace, "the file would be too large for the file system"},
	{syscall.EROFS, ReasonReadOnly, "the file system is read-only"},
	{syscall.EISDIR, ReasonIsDirectory, "it is a directory"},
	{syscall.ENOTDIR, ReasonNotDirectory, "something on the way is not a directory"},
	{syscall.ELOOP, ReasonLinkLoop, "too many links"},
	{syscall.ENAMETOOLONG, ReasonNameTooLong, "a name is too long"},
	{syscall.ENXIO, ReasonNotRegular, "not a regular file"},
}

// failed turns what the operating system said about name into an error that
// may leave: its text holds the caller's own name, shortened, and no other path.
func (w *Workspace) failed(doing, name string, err error) error {
	if e, ok := errors.AsType[*frames.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return frames.AsError(err).With(func(e *frames.Error) { e.Effect = frames.EffectNone })
	}
	if errors.Is(err, w.escape) {
		return outside(err)
	}
	reason, text := ReasonIO, "input/output error"
	for _, s := range sayings {
		if errors.Is(err, s.is) {
			reason, text = s.reason, s.text
			break
		}
	}
	return wrapped(frames.CodeExecution, reason, fmt.Sprintf("cannot %s %s: %s", doing, shown(name), text), err)
}

func outside(cause error) error {
	const text = "the path leads out of the workspace; give a path relative to its root, " +
		"links on the way must be relative and stay inside"
	return wrapped(frames.CodeDenied, ReasonOutside, text, cause)
}

// wrapped makes an error that keeps its cause for errors.Is but not in its text.
func wrapped(code frames.Code, reason, text string, cause error) error {
	if cause == nil {
		return refused(code, reason, "%s", text)
	}
	return frames.NewError(code, "%w", cause).With(func(e *frames.Error) {
		e.Reason, e.Message, e.Effect = reason, text, frames.EffectNone
	})
}

// withEffect gives err, a *frames.Error, with another effect.
func withEffect(err error, effect frames.Effect) error {
	return frames.AsError(err).With(func(e *frames.Error) { e.Effect = effect })
}
