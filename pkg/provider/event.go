package provider

import "github.com/weavebus/weavebus/pkg/frames"

// Event is one step of a model turn: a [Text], [Thinking], [ToolCall] or
// [Stop]. The set is closed; switch on the type.
type Event interface{ event() }

// Text is the next piece of the answer, valid UTF-8, never empty.
type Text struct{ Text string }

// Thinking is the next piece of the model's reasoning. As an event it is a
// delta: pieces belong together until one carries a Signature. In a [Message]
// it is a whole block.
type Thinking struct {
	Text string `json:"text"`
	// Signature is opaque and goes back to the provider unchanged.
	Signature string `json:"signature,omitempty"`
	// Redacted marks a block whose text the provider withheld; Signature then
	// holds what it wants back.
	Redacted bool `json:"redacted,omitempty"`
}

// ToolCall is one whole call. Calls come in the model's order, after all text
// and just before [Stop], because only the stop reason tells whether they are
// complete. Make it with [NewToolCall].
type ToolCall struct {
	// ID is the model's own id of the call, never blank, unique in its turn.
	ID   string
	Name string
	// Arguments is the JSON text exactly as the model wrote it, unless Repairs
	// says what was mended; a blank text stands as {}. When Invalid is set it may
	// be anything that is valid UTF-8: bytes that were not stand as \xff, so that
	// it stays unreadable as JSON.
	Arguments string
	// Repairs names the lossless repairs that made Arguments of the model's text.
	Repairs []string
	// Invalid says why the call must not run: VALIDATION_INPUT with the
	// position and a bounded preview, reason arguments_truncated when the turn
	// was cut off, arguments_incomplete when only the text was, else invalid_json
	// or a narrower one (TOO_LARGE when the text is over the inline limit). The
	// model is answered with it. Nil means that Arguments is one complete JSON
	// object.
	Invalid *frames.Error
}

// StopReason says why a model turn ended.
type StopReason string

// The stop reasons. Calls run after [StopDone] and [StopToolCalls] only: every
// other reason means that the turn was cut off.
const (
	StopDone          StopReason = "stop"
	StopToolCalls     StopReason = "tool-calls"
	StopLength        StopReason = "length"
	StopContentFilter StopReason = "content-filter"
	StopError         StopReason = "error"
)

// Complete reports whether the model ended its turn by itself.
func (r StopReason) Complete() bool { return r == StopDone || r == StopToolCalls }

// Stop is the last event of a turn that did not fail. Reason is
// [StopToolCalls] whenever a complete turn has calls, whatever the provider said.
type Stop struct {
	Reason StopReason
	// Raw is the provider's own word, empty if it gave none.
	Raw   string
	Usage Usage
}

func (Text) event()     {}
func (Thinking) event() {}
func (ToolCall) event() {}
func (Stop) event()     {}
