package provider

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/frames"
)

// NewToolCall judges the argument text of a finished call: whether it is one
// complete JSON object, and whether the turn that it belongs to was complete.
// After a turn that was cut off no call is valid, however whole its text looks:
// the part that is missing may be part of it. It is pure, so a reader of the
// same parts comes to the same result.
func NewToolCall(id, name, arguments string, reason StopReason) ToolCall {
	c := ToolCall{ID: id, Name: name, Arguments: arguments}
	if object, err := argstream.Parse([]byte(arguments)); err != nil {
		c.Invalid = frames.AsError(err)
	} else {
		c.Arguments = string(object)
	}
	switch {
	case !reason.Complete() && (c.Invalid == nil || c.Invalid.Reason != argstream.ReasonTruncated):
		c.Invalid = cutOff(name, reason)
	case c.Invalid == nil && name == "":
		c.Invalid = frames.NewError(frames.CodeValidationInput, "the call names no tool").WithReason("no_tool_name")
	}
	c.Arguments = textOnly(c.Arguments)
	return c
}

// textOnly writes bytes that are no UTF-8 as \xff. The space before it makes
// sure that no reader takes the outcome for JSON: "\ " is no escape either.
func textOnly(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, ` \x%02x`, s[0])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

func cutOff(name string, reason StopReason) *frames.Error {
	e := frames.NewError(frames.CodeValidationInput,
		"the output was cut off (%s) in the turn that calls %q", reason, clip(name)).WithReason(argstream.ReasonTruncated)
	e.LLMMessage = e.Message + ", so the call did not run. Send it again, shorter or in smaller steps."
	return e
}

// ValidArguments gives text when it is one complete JSON object, else {}: what a
// provider may be sent as the arguments of a call of the past. A provider
// refuses a whole request for one broken text.
func ValidArguments(text string) json.RawMessage {
	arguments, err := argstream.Parse([]byte(text))
	if err != nil {
		return json.RawMessage("{}")
	}
	return arguments
}
