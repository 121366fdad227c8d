package tool

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Bounds of an error that leaves a tool.
const (
	maxText   = 4 << 10
	maxIssues = 20
)

// Fail makes the error of a tool that failed: reason is a stable word for
// programs, ^[a-z0-9_]{1,64}$; the text is for the model too. A %w in format
// stays in the process.
func Fail(reason, format string, args ...any) error {
	return frames.NewError(frames.CodeExecution, format, args...).WithReason(reason)
}

// Retryable says of a tool's error that the same call may succeed later.
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return said(err).With(func(e *frames.Error) { e.Retryable = true })
}

// NoEffect says of a tool's error that nothing was done: where it is [Retryable]
// too, the call may be made again whatever the tool is.
func NoEffect(err error) error {
	if err == nil {
		return nil
	}
	return said(err).With(func(e *frames.Error) { e.Effect = frames.EffectNone })
}

// mayBeSaid are the codes that a tool itself may give; see the package's doc.
var mayBeSaid = map[frames.Code]bool{
	frames.CodeExecution: true, frames.CodeValidationInput: true, frames.CodeDenied: true, frames.CodeNotFound: true,
	frames.CodeConflict: true, frames.CodeTooLarge: true, frames.CodeLimit: true,
}

// said gives a handler's error as it leaves, bounded.
func said(err error) *frames.Error {
	if bad, ok := errors.AsType[*unencodable](err); ok {
		return notEncodable("the value", bad)
	}
	e, ok := errors.AsType[*frames.Error](err)
	if !ok {
		e = frames.NewError(frames.CodeExecution, "%w", err)
	}
	if !mayBeSaid[e.Code] {
		e = e.With(func(e *frames.Error) {
			e.Reason = or(e.Reason, strings.ToLower(string(e.Code)))
			e.Code = frames.CodeExecution
		})
	}
	return bounded(e)
}

var reasonPattern = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

func bounded(e *frames.Error) *frames.Error {
	return e.With(func(e *frames.Error) {
		e.Message = shorten(e.Message)
		e.LLMMessage = shorten(e.LLMMessage)
		e.Issues = e.Issues[:min(len(e.Issues), maxIssues)]
		if !reasonPattern.MatchString(e.Reason) {
			e.Reason = ""
		}
	})
}

// shorten bounds a text, with a mark where it was cut.
func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return clip(text, maxText-len("…")) + "…"
}

// clip gives the longest beginning of at most n bytes that ends on a rune border.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	cut := max(n, 0)
	for back := 0; cut > 0 && back < utf8.UTFMax && !utf8.RuneStart(s[cut]); back++ {
		cut--
	}
	return s[:cut]
}

func notEncodable(what string, cause error) *frames.Error {
	return frames.NewError(frames.CodeValidationOutput, "%s has no JSON form: %w", what, cause).With(func(e *frames.Error) {
		e.LLMMessage = "The tool gave a result that cannot be read. The fault is the tool's, not the call's: do not repeat it unchanged."
	})
}

// tooLarge is the error of a result that cannot travel, after the tool acted.
func tooLarge(e *frames.Error) *frames.Error {
	return e.With(func(e *frames.Error) { e.Effect = frames.EffectDone })
}

// errStopped is why calls end that outlast the drain.
var errStopped = errors.New("the drain's time is over")

// stopError gives the error of a call whose context ended: the cause decides,
// not what the handler made of it.
func stopError(ctx context.Context, d *frames.Declaration) *frames.Error {
	e, ok := context.Cause(ctx).(*frames.Error) //nolint:errorlint // causes are set bare
	if ok && (e.Code == frames.CodeTimeout || e.Code == frames.CodeCancelled) {
		return e
	}
	return frames.Interrupted(d.Name, "").WithReplay(d.ReplaySafe())
}

func panicked(name string) *frames.Error {
	return frames.NewError(frames.CodeExecution, "Tool %s failed by a fault of its own", name).WithReason("panic")
}

func busy(reason, format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeBusy, format, args...).WithReason(reason)
}

func badCall(format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeBadFrame, "%s", fmt.Sprintf(format, args...))
}
