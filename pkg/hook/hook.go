package hook

import (
	"context"
	"slices"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Phase is a moment of a call at which a hook runs.
type Phase string

// The phases, by their names on the bus.
const (
	PhaseBefore  Phase = "before"
	PhaseAfter   Phase = "after"
	PhaseError   Phase = "error"
	PhaseObserve Phase = "observe"
)

// Phases lists all of them.
func Phases() []Phase { return []Phase{PhaseBefore, PhaseAfter, PhaseError, PhaseObserve} }

// Bounds of a hook's time.
const (
	DefaultTimeout = 5 * time.Second
	MaxTimeout     = time.Minute
)

// Hook is a name with functions for one or more phases. The functions may run at
// once for many calls. They are not to change what they are given, and end when
// ctx does: their call was cancelled, or their time is over.
type Hook struct {
	// Name stands in the errors that the hook causes: ^[A-Za-z0-9_-]{1,64}$, once
	// in a list. Required.
	Name string
	// Tools are names of the tools whose calls the hook sees, or patterns, in which
	// * stands for any letters and ? for one. Default: all.
	Tools []string
	// Timeout bounds one run of a function, up to a minute. It is not part of the
	// tool's time-out. Default: 5 s.
	Timeout time.Duration

	// Before is a gate: it decides whether the call runs, and on what. An error
	// denies the call. Default: it proceeds.
	Before func(ctx context.Context, c *Call) (Decision, error)
	// After sees a result that is no failure, and may replace it, also with a
	// failure. Text that the tool streamed before has passed. An error leaves the
	// result. Default: it is kept.
	After func(ctx context.Context, c *Call, res *frames.ToolResult) (Outcome, error)
	// OnError sees a failure, res.Err, after the last attempt, which res.Attempts
	// counts from 1; 0 says that the tool did not run. It may replace it by a
	// result. An error leaves the failure to the next hook. Default: it is kept.
	OnError func(ctx context.Context, c *Call, res *frames.ToolResult) (Outcome, error)
	// Observe is told when a call begins, with a nil res, and what came of it, after
	// all other hooks. A call that is refused before it begins has its end only. It
	// runs beside the call, one event after the other; where 1,024 wait, the next
	// is dropped and counted. Default: nobody is told.
	Observe func(ctx context.Context, c *Call, res *frames.ToolResult) error

	remote []Phase // of a policy service
}

// Validate names the first field that cannot be.
func (h Hook) Validate() error {
	switch {
	case !frames.ValidName(h.Name):
		return invalid("hook %q: Name: want 1 to 64 letters, digits, _ or -", h.Name)
	case h.Timeout < 0 || h.Timeout > MaxTimeout:
		return invalid("hook %s: Timeout: %v, want 0 for the default, to %v", h.Name, h.Timeout, MaxTimeout)
	case len(h.phases()) == 0:
		return invalid("hook %s: it has no function", h.Name)
	}
	for _, p := range h.Tools {
		if !frames.ValidPattern(p) {
			return invalid("hook %s: Tools: %q is no tool's name or pattern", h.Name, p)
		}
	}
	for _, p := range h.remote {
		if !slices.Contains(Phases(), p) {
			return invalid("hook %s: no phase %q; there are before, after, error and observe", h.Name, p)
		}
	}
	return nil
}

// Check validates a list of hooks, in which each name stands once.
func Check(hooks []Hook) error {
	seen := map[string]bool{}
	for _, h := range hooks {
		if err := h.Validate(); err != nil {
			return err
		}
		if seen[h.Name] {
			return invalid("hook %s: it is listed twice", h.Name)
		}
		seen[h.Name] = true
	}
	return nil
}

// Applies reports whether the hook sees the calls of a tool.
func (h Hook) Applies(tool string) bool {
	return len(h.Tools) == 0 || slices.ContainsFunc(h.Tools, func(p string) bool { return frames.MatchName(p, tool) })
}

// Limit gives the time that one run of a function has.
func (h Hook) Limit() time.Duration {
	if h.Timeout == 0 {
		return DefaultTimeout
	}
	return h.Timeout
}

func (h Hook) phases() []Phase {
	out := slices.Clone(h.remote)
	for _, f := range []struct {
		p   Phase
		has bool
	}{
		{PhaseBefore, h.Before != nil}, {PhaseAfter, h.After != nil},
		{PhaseError, h.OnError != nil}, {PhaseObserve, h.Observe != nil},
	} {
		if f.has {
			out = append(out, f.p)
		}
	}
	return out
}

func invalid(format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeValidationInput, format, args...)
}
