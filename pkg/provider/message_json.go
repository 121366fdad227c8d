package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
)

// ParseMessages reads a JSON list of messages. Its error is VALIDATION_INPUT and
// names the message.
func ParseMessages(data []byte) ([]Message, error) {
	if !utf8.Valid(data) {
		return nil, frames.NewError(frames.CodeValidationInput, "messages: invalid UTF-8")
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		return nil, frames.NewError(frames.CodeValidationInput, "messages: not a list of messages: %w", err)
	}
	out := make([]Message, len(raws))
	for i, raw := range raws {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, atMessage(i, err)
		}
	}
	return out, nil
}

func atMessage(i int, err error) error {
	text := err.Error()
	if e, ok := err.(*frames.Error); ok { //nolint:errorlint // our own, unwrapped
		text = e.Message
	}
	e := frames.NewError(frames.CodeValidationInput, "messages[%d]: %s", i, text)
	e.Issues = []frames.Issue{{Path: "/" + strconv.Itoa(i), Message: text}}
	return e
}

type wireMessage struct {
	Role         Role            `json:"role"`
	Content      json.RawMessage `json:"content"`
	Calls        []wireCall      `json:"toolCalls,omitempty"`
	ToolCallID   string          `json:"toolCallId,omitempty"`
	IsError      bool            `json:"isError,omitempty"`
	Thinking     []Thinking      `json:"thinking,omitempty"`
	ProviderData json.RawMessage `json:"providerData,omitempty"`
	Timestamp    json.Number     `json:"timestamp,omitempty"`
	Epoch        json.Number     `json:"epoch,omitempty"`
	Entry        json.Number     `json:"entry,omitempty"`
}

type wireCall struct {
	ID            string          `json:"toolCallId,omitempty"`
	ModelID       string          `json:"modelCallId,omitempty"`
	Name          string          `json:"name"`
	ArgumentsJSON *string         `json:"argumentsJson,omitempty"`
	Arguments     json.RawMessage `json:"arguments,omitempty"`
}

// MarshalJSON writes the form of PROTOCOL section 7; arguments go out as
// argumentsJson.
func (m Message) MarshalJSON() ([]byte, error) {
	content, err := m.wireContent()
	if err != nil {
		return nil, err
	}
	w := wireMessage{
		Role: m.Role, Content: content, ToolCallID: m.ToolCallID, IsError: m.IsError,
		Thinking: m.Thinking, ProviderData: m.ProviderData,
		Timestamp: number(m.Timestamp), Epoch: number(m.Epoch), Entry: number(m.Entry),
	}
	for _, c := range m.Calls {
		w.Calls = append(w.Calls, wireCall{ID: c.ID, ModelID: c.ModelID, Name: c.Name, ArgumentsJSON: &c.Arguments})
	}
	return json.Marshal(w)
}

func (m *Message) wireContent() (json.RawMessage, error) {
	if m.Parts != nil {
		return json.Marshal(m.Parts)
	}
	return json.Marshal(m.Text)
}

func number[N int64 | uint64](n N) json.Number {
	if n == 0 {
		return ""
	}
	return json.Number(fmt.Sprint(n))
}

// UnmarshalJSON reads the form of PROTOCOL section 7. An unknown role or part
// type is VALIDATION_INPUT; unknown keys are ignored.
func (m *Message) UnmarshalJSON(data []byte) error {
	var w wireMessage
	if err := json.Unmarshal(data, &w); err != nil {
		return frames.NewError(frames.CodeValidationInput, "not a message: %w", err)
	}
	if !w.Role.Valid() {
		return frames.NewError(frames.CodeValidationInput, "role %q is not one of system, user, assistant, tool", brief(string(w.Role)))
	}
	out := Message{
		Role: w.Role, ToolCallID: w.ToolCallID, IsError: w.IsError,
		Thinking: w.Thinking, ProviderData: w.ProviderData,
	}
	if err := out.readContent(w.Content); err != nil {
		return err
	}
	if err := out.readCalls(w.Calls); err != nil {
		return err
	}
	if err := out.readExtras(&w); err != nil {
		return err
	}
	*m = out
	return nil
}

func (m *Message) readContent(raw json.RawMessage) error {
	switch kind(raw) {
	case 0, 'n':
		return nil
	case '"':
		return json.Unmarshal(raw, &m.Text)
	case '[':
		return m.readParts(raw)
	}
	return frames.NewError(frames.CodeValidationInput, "content is neither a string nor a list of parts")
}

func (m *Message) readParts(raw json.RawMessage) error {
	m.Parts = []Part{}
	if err := json.Unmarshal(raw, &m.Parts); err != nil {
		return frames.NewError(frames.CodeValidationInput, "content: %w", err)
	}
	for i := range m.Parts {
		if !m.Parts[i].Type.valid() {
			return frames.NewError(frames.CodeValidationInput,
				"content[%d]: type %q is not one of text, image, audio, resource", i, brief(string(m.Parts[i].Type)))
		}
	}
	return nil
}

func (t PartType) valid() bool {
	switch t {
	case PartText, PartImage, PartAudio, PartResource:
		return true
	}
	return false
}

func (m *Message) readCalls(calls []wireCall) error {
	for i, w := range calls {
		if w.Name == "" {
			return frames.NewError(frames.CodeValidationInput, "toolCalls[%d] has no name", i)
		}
		m.Calls = append(m.Calls, Call{ID: w.ID, ModelID: w.ModelID, Name: w.Name, Arguments: w.arguments()})
	}
	return nil
}

// arguments gives the text of argumentsJson, else the JSON of arguments, else {}.
func (w *wireCall) arguments() string {
	switch {
	case w.ArgumentsJSON != nil:
		return *w.ArgumentsJSON
	case kind(w.Arguments) == 0 || kind(w.Arguments) == 'n':
		return "{}"
	}
	return string(w.Arguments)
}

func (m *Message) readExtras(w *wireMessage) error {
	ts, err := whole("timestamp", w.Timestamp, math.MaxInt64)
	if err != nil {
		return err
	}
	m.Timestamp = int64(ts)
	if m.Epoch, err = whole("epoch", w.Epoch, math.MaxUint64); err != nil {
		return err
	}
	m.Entry, err = whole("entry", w.Entry, math.MaxUint64)
	return err
}

// whole reads a count in any numeric form: 5, 5.0 and 5e0 are the same.
func whole(key string, n json.Number, limit uint64) (uint64, error) {
	if n == "" {
		return 0, nil
	}
	if v, err := strconv.ParseUint(string(n), 10, 64); err == nil && v <= limit {
		return v, nil
	}
	if f, err := strconv.ParseFloat(string(n), 64); err == nil && f >= 0 && f < 1<<53 && f == math.Trunc(f) {
		return uint64(f), nil
	}
	return 0, frames.NewError(frames.CodeValidationInput, "%s is not a whole number: %s", key, brief(string(n)))
}

// kind gives the first byte of a JSON value, 0 when there is none.
func kind(raw json.RawMessage) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// clip bounds a foreign word for an error message.
// brief clips what is named in an error.
func brief(s string) string { return clip(s, 64) }

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
