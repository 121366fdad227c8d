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
// complete JSON object, or is one after lossless repairs, and whether the turn
// that it belongs to was complete. After a turn that was cut off no call is valid,
// however whole its text looks: the part that is missing may be part of it. It is
// pure, so a reader of the same parts comes to the same result.
func NewToolCall(id, name, arguments string, reason StopReason) ToolCall {
	c := ToolCall{ID: id, Name: name, Arguments: arguments}
	object, repairs, err := argstream.Repair([]byte(arguments))
	switch {
	case !reason.Complete():
		c.Invalid = cutOff(name, reason, frames.AsError(err))
	case err != nil:
		c.Invalid = frames.AsError(err)
	case name == "":
		c.Invalid = frames.NewError(frames.CodeValidationInput, "the call names no tool").WithReason("no_tool_name")
	}
	if err == nil && (reason.Complete() || strings.TrimSpace(arguments) == "") {
		c.Arguments, c.Repairs = string(object), repairs
	}
	c.Arguments = textOnly(c.Arguments)
	return c
}

// cutOff is why a call of a turn that was cut off does not run; where its text
// shows that too, with the position.
func cutOff(name string, reason StopReason, err *frames.Error) *frames.Error {
	if err != nil && err.Reason == argstream.ReasonIncomplete {
		return err.WithReason(argstream.ReasonTruncated)
	}
	return argstream.CutOff(name, string(reason))
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
