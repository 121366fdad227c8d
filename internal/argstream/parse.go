package argstream

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// The reasons of the errors of this package.
const (
	// ReasonTruncated: the model's output was cut off, however whole the text looks.
	ReasonTruncated = "arguments_truncated"
	// ReasonIncomplete: the text ends inside the value, or its call was never closed.
	ReasonIncomplete = "arguments_incomplete"
	// ReasonInvalid: no JSON, or more than one value.
	ReasonInvalid = "invalid_json"
	// ReasonUTF8: bytes, or a lone surrogate escape, that are no text.
	ReasonUTF8 = "invalid_utf8"
	// ReasonDuplicate: one object has a key twice.
	ReasonDuplicate = "duplicate_key"
	// ReasonNotObject: JSON, but no object.
	ReasonNotObject = "not_an_object"
	// ReasonLimit: deeper, more values, or a longer number, than is read.
	ReasonLimit = "over_limit"
	// ReasonTooLarge: more bytes than are taken (code TOO_LARGE).
	ReasonTooLarge = "arguments_too_large"
)

var reasons = map[jsontext.Kind]string{
	jsontext.Syntax: ReasonInvalid, jsontext.Trailing: ReasonInvalid, jsontext.Empty: ReasonInvalid,
	jsontext.Unfinished: ReasonIncomplete, jsontext.DuplicateKey: ReasonDuplicate, jsontext.BadText: ReasonUTF8,
	jsontext.TooDeep: ReasonLimit, jsontext.TooMany: ReasonLimit, jsontext.BigNumber: ReasonLimit, jsontext.TooLong: ReasonLimit,
}

// PositionError is the cause of each error of [Parse].
type PositionError struct {
	Reason string
	// What says what is wrong, without the place.
	What string
	// Offset is the byte at which it was seen, from 0.
	Offset int
	// Path is the JSON Pointer of the value that was read there.
	Path string
	// Preview is a bounded, printable piece of the text around Offset.
	Preview string
}

// Error gives what is wrong, where, and the preview.
func (e *PositionError) Error() string {
	return fmt.Sprintf("%s at byte %d, near %q", e.What, e.Offset, e.Preview)
}

// Parse reads the whole text of a call's arguments and gives it back unchanged,
// sharing its memory; a blank text is {}. Anything but one complete JSON object
// is VALIDATION_INPUT with a [PositionError] as its cause and one issue, a text
// over [MaxBytes] is TOO_LARGE.
func Parse(text []byte) (json.RawMessage, error) {
	if len(text) > MaxBytes {
		return nil, tooLarge(MaxBytes)
	}
	if blank(text) {
		return json.RawMessage("{}"), nil
	}
	if p := check(text); p != nil {
		return nil, p.refuse(text)
	}
	return text, nil
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// problem is a PositionError that has no preview yet.
type problem struct {
	reason, what, path string
	at                 int
}

// check gives what is wrong with a text as arguments; nil where nothing is.
func check(text []byte) *problem {
	if p := jsontext.Check(text, jsontext.Limits{}); p != nil {
		return &problem{reason: reasons[p.Kind], what: p.Reason, path: p.Path, at: p.Offset}
	}
	at := len(text) - len(bytes.TrimLeft(text, " \t\r\n"))
	if text[at] != '{' {
		return &problem{reason: ReasonNotObject, what: kindOf(text[at]) + " where a JSON object should be", at: at}
	}
	return nil
}

func kindOf(first byte) string {
	switch first {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func (p *problem) refuse(text []byte) *frames.Error {
	cause := &PositionError{Reason: p.reason, What: p.what, Offset: p.at, Path: p.path, Preview: jsontext.Near(text, p.at)}
	e := frames.NewError(frames.CodeValidationInput, "the arguments are refused: %w", cause).WithReason(p.reason)
	advice := "Send the call again with one complete JSON object."
	if p.reason == ReasonIncomplete {
		advice = "The output was cut off before the arguments were complete, so the call did not run. Send it again, shorter or in smaller steps."
	}
	e.LLMMessage = e.Message + ". " + advice
	e.Issues = []frames.Issue{{
		Path: p.path, Message: fmt.Sprintf("%s, at byte %d", p.what, p.at), Expected: "one complete JSON object", Got: cause.Preview,
	}}
	return e
}

// CutOff is why a call does not run whose turn the model did not end by itself;
// why is the turn's stop reason.
func CutOff(tool, why string) *frames.Error {
	e := frames.NewError(frames.CodeValidationInput,
		"the output was cut off (%s) in the turn that calls %q", jsontext.Clip(why, 64), jsontext.Clip(tool, 64)).WithReason(ReasonTruncated)
	e.LLMMessage = e.Message + ", so the call did not run. Send it again, shorter or in smaller steps."
	return e
}
