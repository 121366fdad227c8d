package frames

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of the texts below.
const (
	maxListed   = 20
	maxCause    = 2 << 10
	maxOutput   = 2 << 10
	maxCompares = 4096
)

const (
	mayHaveActed     = " It may have acted: check before you call it again."
	actedBefore      = " It may have acted before."
	didNotRun        = " It did not run."
	mayBeRepeated    = " It may be called again."
	internalForModel = "An internal error happened; your call did not cause it. Try again later, or another way."
)

// NotFound is the error of a call of a tool that does not exist, or that the
// caller may not know of. callable are the tools that it may call.
func NotFound(name string, callable []string) *Error {
	e := NewError(CodeNotFound, "Tool %q not found", shorten(name))
	e.LLMMessage = e.Message + ". " + available(name, callable)
	return e
}

func available(name string, callable []string) string {
	switch {
	case len(callable) > 0:
	case !ValidName(name):
		return "That is no name of a tool: names are 1 to 64 letters, digits, _ and -."
	default:
		return "No tools are currently registered. Go on without one, or use one when it is there."
	}
	names := nearest(name, callable)
	more := ""
	if n := len(names) - maxListed; n > 0 {
		names, more = names[:maxListed], fmt.Sprintf(" There are %d more.", n)
	}
	return "Available tools: " + strings.Join(names, ", ") + "." + more + " Use one of them."
}

// nearest sorts names by how far they are from name.
func nearest(name string, names []string) []string {
	type far struct {
		name string
		n    int
	}
	want := foldName(name)
	all := make([]far, 0, len(names))
	for i, s := range names {
		n := len(s) + len(want)
		if i < maxCompares {
			n = distance(want, foldName(s))
		}
		all = append(all, far{shorten(s), n})
	}
	slices.SortFunc(all, func(a, b far) int { return cmp.Or(a.n-b.n, strings.Compare(a.name, b.name)) })
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].name
	}
	return out
}

func foldName(s string) string {
	return strings.ReplaceAll(strings.ToLower(shorten(s)), "-", "_")
}

// distance is how many bytes must be put in, taken out or changed (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Disabled is the error of a call of a tool that an operator switched off.
func Disabled(tool string) *Error {
	e := NewError(CodeDisabled, "Tool %q is disabled", shorten(tool))
	e.LLMMessage = fmt.Sprintf("Tool %q is currently disabled. Try another approach, or wait until it is enabled.", shorten(tool))
	return e
}

// Denied is the error of a call that permissions, a hook or a person refused;
// why is shown as given and may be empty.
func Denied(tool, why string) *Error {
	e := NewError(CodeDenied, "Tool %q denied%s", shorten(tool), because(why))
	e.LLMMessage = fmt.Sprintf("The call of tool %q was not allowed%s. Do not repeat it as it is.", shorten(tool), because(why))
	return e
}

// DeniedByHook is the error of a call that a gate hook refused; why is shown as
// given and may be empty.
func DeniedByHook(tool, hook, why string) *Error {
	e := Denied(tool, why)
	e.Message = fmt.Sprintf("Tool %q denied by hook %q%s", shorten(tool), shorten(hook), because(why))
	e.Reason, e.Hook = "denied_by_hook", hook
	return e
}

// HookFailed is the error of a call whose gate hook could not decide, which
// refuses it.
func HookFailed(tool, hook string, cause error) *Error {
	e := NewError(CodeDenied, "Tool %q denied: hook %q failed%s", shorten(tool), shorten(hook), because(causeText(cause)))
	e.LLMMessage = fmt.Sprintf("The call of tool %q was not allowed: the check %q, which decides on it, failed. "+
		"Your call did not cause it; try another way.", shorten(tool), shorten(hook))
	e.Reason, e.Hook, e.cause = "hook_failed", hook, cause
	if said, ok := asError(cause); ok {
		e.Issues = said.Issues
	}
	return e
}

// Unavailable is the error of a call of a known tool that nobody serves now.
func Unavailable(tool string) *Error {
	e := NewError(CodeUnavailable, "Tool %q is not available: nobody serves it now", shorten(tool))
	e.LLMMessage = e.Message + ". Try again later, or another way."
	return e
}

// Busy is the error of a call that found no free place; retryAfter is the
// estimate of when there is one, 0 for none.
func Busy(tool string, retryAfter time.Duration) *Error {
	e := NewError(CodeBusy, "Tool %q is busy", shorten(tool))
	e.RetryAfter = retryAfter
	e.LLMMessage = e.Message + ". Try again later, or another way."
	return e
}

// InvalidInput is the error of arguments that do not fit the tool's schema.
func InvalidInput(tool string, issues ...Issue) *Error {
	e := NewError(CodeValidationInput, "Invalid input for tool %q%s", shorten(tool), because(firstIssue(issues)))
	e.Issues = issues
	e.LLMMessage = fmt.Sprintf("Invalid input for tool %q:\n%sFix this and call the tool again.", shorten(tool), issueLines(issues))
	return e
}

// InvalidOutput is the error of a result that does not fit the tool's own schema.
func InvalidOutput(tool string, issues ...Issue) *Error {
	e := NewError(CodeValidationOutput, "Tool %q gave a result that does not fit its schema%s", shorten(tool), because(firstIssue(issues)))
	e.Issues = issues
	e.LLMMessage = fmt.Sprintf("Tool %q gave a result that does not fit its own schema. "+
		"The tool is at fault, not your call. It has acted; try another approach.", shorten(tool))
	return e
}

func firstIssue(issues []Issue) string {
	if len(issues) == 0 {
		return ""
	}
	return issues[0].line()
}

func issueLines(issues []Issue) string {
	var b strings.Builder
	for _, i := range issues[:min(len(issues), maxListed)] {
		b.WriteString("  - " + i.line() + "\n")
	}
	if n := len(issues) - maxListed; n > 0 {
		fmt.Fprintf(&b, "  - and %d more\n", n)
	}
	return b.String()
}

// line shows an issue as "/path: message (expected …, got …)".
func (i Issue) line() string {
	var facts []string
	if i.Expected != "" {
		facts = append(facts, "expected "+shortenTo(i.Expected, 128))
	}
	if i.Got != "" {
		facts = append(facts, "got "+shortenTo(i.Got, 128))
	}
	s := cmp.Or(shortenTo(i.Path, 128), "(root)") + ": " + shortenTo(i.Message, 256)
	if len(facts) > 0 {
		s += " (" + strings.Join(facts, ", ") + ")"
	}
	return s
}

// Timeout is the error of a call that ran longer than it may. It is not
// retryable until [Error.WithReplay] says so.
func Timeout(tool string, limit time.Duration) *Error {
	e := NewError(CodeTimeout, "Tool %s timed out after %dms", shorten(tool), limit.Milliseconds())
	e.RetryAfter = min(limit, 5*time.Second)
	e.LLMMessage = e.Message + "." + mayHaveActed
	return e
}

// Interrupted is the error of a call whose tool or caller died while it ran;
// output is what the tool had written, its end is shown to the model.
func Interrupted(tool, output string) *Error {
	e := NewError(CodeInterrupted, "Tool %s was interrupted", shorten(tool))
	e.LLMMessage = e.Message + ": it may have run, and may still."
	if output != "" {
		e.LLMMessage += " Its output so far:\n" + tail(output, maxOutput) + "\n"
	}
	e.LLMMessage += mayHaveActed
	return e
}

// Cancelled is the error of a call that CANCEL or ABORT ended.
func Cancelled(tool string) *Error {
	e := NewError(CodeCancelled, "Tool %s was cancelled", shorten(tool))
	e.LLMMessage = e.Message + "." + actedBefore
	return e
}

// NoResult is the error of a call that ended without a result.
func NoResult(tool string) *Error {
	e := NewError(CodeNoResult, "Tool %s ended without a result", shorten(tool))
	e.LLMMessage = e.Message + "." + mayHaveActed
	return e
}

// WithReplay gives a copy of a TIMEOUT, INTERRUPTED or NO_RESULT that says
// whether the call may run again; of other errors, e itself.
func (e *Error) WithReplay(safe bool) *Error {
	switch e.Code {
	case CodeTimeout, CodeInterrupted, CodeNoResult:
	default:
		return e
	}
	return e.With(func(c *Error) {
		c.Retryable = safe
		if safe {
			c.LLMMessage = strings.TrimSuffix(c.LLMMessage, mayHaveActed) + mayBeRepeated
		}
	})
}

// WithEffect gives a copy of e with the effect set; what its text for the model
// says of that changes with it.
func (e *Error) WithEffect(effect Effect) *Error {
	return e.With(func(c *Error) {
		c.Effect = effect
		acted := mayHaveActed
		if c.Code == CodeCancelled {
			acted = actedBefore
		}
		switch head, ran := strings.CutSuffix(c.LLMMessage, acted); {
		case effect == EffectNone && ran:
			c.LLMMessage = head + didNotRun
		case effect == EffectUnknown && strings.HasSuffix(c.LLMMessage, didNotRun):
			c.LLMMessage = strings.TrimSuffix(c.LLMMessage, didNotRun) + acted
		}
	})
}

// Execution is the error of a call that the tool could not do. An *Error in the
// cause's chain says whether it may be tried again, what it did, and why.
func Execution(tool string, cause error, attempts int) *Error {
	said, _ := asError(cause)
	times := ""
	if attempts > 1 {
		times = fmt.Sprintf(" after %d attempts", attempts)
	}
	e := NewError(CodeExecution, "%s%s", causeText(cause), times)
	e.cause = cause
	e.LLMMessage = fmt.Sprintf("Tool %s failed%s: %s", shorten(tool), times, shortenTo(causeText(cause), maxCause))
	if said != nil {
		e.Reason, e.Retryable, e.RetryAfter, e.Issues = said.Reason, said.Retryable, said.RetryAfter, said.Issues
		e.Effect = cmp.Or(said.Effect, e.Effect)
		e.LLMMessage = cmp.Or(said.LLMMessage, e.LLMMessage)
	}
	if said == nil || said.LLMMessage == "" {
		e.LLMMessage += ". " + nextStep(e.Retryable)
	}
	return e
}

func nextStep(retryable bool) string {
	if retryable {
		return "You may try again."
	}
	return "Try another approach."
}

// causeText gives an error's text without its code and without a stack.
func causeText(err error) string {
	if err == nil {
		return "unknown error"
	}
	text := err.Error()
	if e, ok := err.(*Error); ok { //nolint:errorlint // what wraps an error has a text of its own
		text = e.Message
	}
	for _, stack := range []string{"\ngoroutine ", "\n    at ", "\nTraceback "} {
		text, _, _ = strings.Cut(text, stack)
	}
	return strings.TrimRight(text, " \n.")
}

// TooLarge is the error of what is over a limit, in bytes; what names it.
func TooLarge(what string, size, limit int64) *Error {
	e := NewError(CodeTooLarge, "%s: %d bytes, the limit is %d", what, size, limit)
	e.LLMMessage = e.Message + ". Send less, or in parts."
	return e
}

// Limit is the error of a run that used up what it was given, such as
// Limit("rounds", 3).
func Limit(what string, limit int64) *Error {
	return NewError(CodeLimit, "The limit of %d %s is reached", limit, what)
}

// UnknownType is the error of a request whose frames are all of unknown types.
func UnknownType(t Type) *Error {
	return NewError(CodeBadFrame, "Unknown frame type: %s", shorten(string(t)))
}

// Internal is the error of a fault of ours; logID finds it in the log. The
// cause never leaves the process.
func Internal(logID string, cause error) *Error {
	e := NewError(CodeInternal, "internal error, log id %s", logID)
	e.cause = cause
	e.LLMMessage = internalForModel
	return e
}

// because gives a reason behind a colon; "" where there is none.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + shortenTo(why, maxCause)
}

// tail gives the last n bytes of a text, from a rune's border on.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-n:], "")
}
