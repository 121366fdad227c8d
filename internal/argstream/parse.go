package argstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Limits that hold before any other reader sees the text: a big exponent or a
// long literal costs an exact reader seconds, depth costs it its stack.
const (
	MaxDepth    = 64
	MaxDigits   = 1000
	MaxExponent = 400
)

// The reasons of the errors of this package.
const (
	// ReasonTruncated: the text ends inside the value.
	ReasonTruncated = "arguments_truncated"
	// ReasonInvalid: no JSON, or more than one value.
	ReasonInvalid = "invalid_json"
	// ReasonUTF8: bytes, or a lone surrogate escape, that are no text.
	ReasonUTF8 = "invalid_utf8"
	// ReasonDuplicate: one object has a key twice.
	ReasonDuplicate = "duplicate_key"
	// ReasonNotObject: JSON, but no object.
	ReasonNotObject = "not_an_object"
	// ReasonLimit: deeper, or a longer number, than is read.
	ReasonLimit = "over_limit"
	// ReasonTooLarge: more bytes than are taken (code TOO_LARGE).
	ReasonTooLarge = "arguments_too_large"
)

// PositionError is the cause of each error of [Parse].
type PositionError struct {
	Reason string
	// What says what is wrong, without the place.
	What string
	// Offset is the byte at which it was seen, from 0.
	Offset int
	// Preview is a bounded, quoted piece of the text around Offset.
	Preview string
}

// Error gives what is wrong, where, and the preview.
func (e *PositionError) Error() string {
	return fmt.Sprintf("%s at byte %d, near %s", e.What, e.Offset, e.Preview)
}

// Parse reads the whole text of a call's arguments and gives it back unchanged,
// sharing its memory; a blank text is {}. Anything but one complete JSON object
// is VALIDATION_INPUT with a [PositionError] as its cause, a text over
// [MaxBytes] is TOO_LARGE.
func Parse(text []byte) (json.RawMessage, error) {
	if len(text) > MaxBytes {
		return nil, tooLarge(MaxBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return json.RawMessage("{}"), nil
	}
	s := scanner{text: text}
	if fault := s.document(); fault != nil {
		return nil, fault.refuse(text)
	}
	return text, nil
}

// fault is a PositionError that has no preview yet.
type fault struct {
	reason string
	what   string
	at     int
}

func (f *fault) refuse(text []byte) *frames.Error {
	cause := &PositionError{Reason: f.reason, What: f.what, Offset: f.at, Preview: preview(text, f.at)}
	e := frames.NewError(frames.CodeValidationInput, "the arguments are refused: %w", cause).WithReason(f.reason)
	advice := "Send the call again with one complete JSON object."
	if f.reason == ReasonTruncated {
		advice = "The output was cut off before the arguments were complete, so the call did not run. Send it again, shorter or in smaller steps."
	}
	e.LLMMessage = e.Message + ". " + advice
	return e
}

// runeRest counts the bytes of a rune that text ends in the middle of.
func runeRest(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) && !utf8.FullRune(last) {
			return n
		}
	}
	return 0
}

// preview quotes up to 51 bytes around a place, cut at runes.
func preview(text []byte, at int) string {
	const before, after = 32, 16
	from, to := max(0, at-before), min(len(text), at+after)
	from -= runeRest(text[:from])
	to -= runeRest(text[:to])
	head, tail := "", ""
	if from > 0 {
		head = "…"
	}
	if to < len(text) {
		tail = "…"
	}
	return head + fmt.Sprintf("%q", text[from:to]) + tail
}
