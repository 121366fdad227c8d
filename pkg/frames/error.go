package frames

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code names what went wrong. The list is closed: every error that leaves a
// service carries one of these.
type Code string

// The codes of protocol 1.
const (
	CodeNotFound         Code = "NOT_FOUND"
	CodeDisabled         Code = "DISABLED"
	CodeDenied           Code = "DENIED"
	CodeUnavailable      Code = "UNAVAILABLE"
	CodeBusy             Code = "BUSY"
	CodeConflict         Code = "CONFLICT"
	CodeValidationInput  Code = "VALIDATION_INPUT"
	CodeValidationOutput Code = "VALIDATION_OUTPUT"
	CodeTimeout          Code = "TIMEOUT"
	CodeInterrupted      Code = "INTERRUPTED"
	CodeCancelled        Code = "CANCELLED"
	CodeExecution        Code = "EXECUTION"
	CodeTooLarge         Code = "TOO_LARGE"
	CodeNoResult         Code = "NO_RESULT"
	CodeBadFrame         Code = "BAD_FRAME"
	CodeLimit            Code = "LIMIT"
	CodeInternal         Code = "INTERNAL"
)

// Effect says whether the failed operation may have acted on the world.
type Effect string

// Effects of a failed call.
const (
	EffectNone    Effect = "none"
	EffectDone    Effect = "done"
	EffectUnknown Effect = "unknown"
)

// codeTraits are the defaults of a code: what [NewError] fills in.
type codeTraits struct {
	retryable bool
	effect    Effect
	exit      int
}

// traits is the table of docs/protocol.md, section 6. Codes that are retryable only if
// the call's replay class is safe stand as not retryable here.
var traits = map[Code]codeTraits{
	CodeNotFound:         {true, EffectNone, 2},
	CodeDisabled:         {false, EffectNone, 5},
	CodeDenied:           {false, EffectNone, 5},
	CodeUnavailable:      {true, EffectNone, 4},
	CodeBusy:             {true, EffectNone, 4},
	CodeConflict:         {false, EffectNone, 1},
	CodeValidationInput:  {true, EffectNone, 1},
	CodeValidationOutput: {false, EffectDone, 1},
	CodeTimeout:          {false, EffectUnknown, 1},
	CodeInterrupted:      {false, EffectUnknown, 1},
	CodeCancelled:        {false, EffectUnknown, 130},
	CodeExecution:        {false, EffectUnknown, 1},
	CodeTooLarge:         {false, EffectNone, 1},
	CodeNoResult:         {false, EffectUnknown, 1},
	CodeBadFrame:         {false, EffectNone, 2},
	CodeLimit:            {false, EffectNone, 1},
	CodeInternal:         {false, EffectUnknown, 1},
}

// Valid reports whether c is a code of the closed list.
func (c Code) Valid() bool { _, ok := traits[c]; return ok }

// ExitCode gives the process exit code of a command that ended with c: 2 for
// wrong use, 4 when nobody answers, 5 when it is not allowed, 130 when it was
// cancelled, else 1.
func (c Code) ExitCode() int {
	if t, ok := traits[c]; ok {
		return t.exit
	}
	return 1
}

// Issue is one place where a value does not fit its schema.
type Issue struct {
	// Path is a JSON Pointer (RFC 6901) to the value; empty is the root.
	Path     string `json:"path"`
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
	Message  string `json:"message"`
}

// Error is the one error shape of the mesh. Its zero value is not an error to
// send: use [NewError], which fills the defaults of the code. An Error is not
// changed after it was handed on, so it may be shared between goroutines.
type Error struct {
	Code Code
	// Reason is the tool's own stable word, ^[a-z0-9_]{1,64}$; may be empty.
	Reason string
	// Message is for developers.
	Message string
	// LLMMessage is ready to hand to a model: bounded, no stack, no host path.
	// Empty means Message.
	LLMMessage string
	Retryable  bool
	// RetryAfter is when a retry makes sense; 0 = not said. Whole milliseconds on the wire.
	RetryAfter time.Duration
	Effect     Effect
	Issues     []Issue
	// Hook is the hook that refused the call or its result, or the gate that
	// failed; empty where none did.
	Hook string

	cause error
}

// NewError makes an Error of the code with the code's defaults for Retryable
// and Effect. A %w in format becomes the cause, which never leaves the process.
func NewError(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	t, ok := traits[code]
	if !ok {
		t = traits[CodeInternal]
	}
	return &Error{Code: code, Message: err.Error(), Retryable: t.retryable, Effect: t.effect, cause: errors.Unwrap(err)}
}

// Error gives "CODE: message".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap gives the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, &Error{Code: c}) compare by code alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Reason == "" || t.Reason == e.Reason)
}

// ForModel gives the text that a model sees: LLMMessage, else Message.
func (e *Error) ForModel() string {
	if e.LLMMessage != "" {
		return e.LLMMessage
	}
	return e.Message
}

// With gives a copy of e that change was applied to.
func (e *Error) With(change func(*Error)) *Error {
	c := *e
	change(&c)
	return &c
}

// WithReason gives a copy of e with the reason set.
func (e *Error) WithReason(reason string) *Error {
	return e.With(func(c *Error) { c.Reason = reason })
}

// AsError is the funnel that every error leaves through. An *Error in err's
// chain is given as it is; an ended context becomes CANCELLED or TIMEOUT; all
// else is INTERNAL, whose text does not reach a model. AsError(nil) is nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := asError(err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return NewError(CodeTimeout, "%w", err)
	case errors.Is(err, context.Canceled):
		return NewError(CodeCancelled, "%w", err)
	}
	return NewError(CodeInternal, "%w", err).With(func(e *Error) { e.LLMMessage = internalForModel })
}

func asError(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// CodeOf gives the code that err leaves with; "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

var _ error = (*Error)(nil)
