package provider

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Role says who speaks in a message.
type Role string

// The roles; no others are read.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Valid reports whether r is one of the four roles.
func (r Role) Valid() bool {
	switch r {
	case RoleSystem, RoleUser, RoleAssistant, RoleTool:
		return true
	}
	return false
}

// Message is one message of a conversation, in the form of PROTOCOL section 7.
// It reads and writes its own JSON; numbers, arguments and provider data keep
// their text.
type Message struct {
	Role Role
	// Text is the content when Parts is nil.
	Text string
	// Parts is the content as a list; it then stands instead of Text.
	Parts []Part
	// Calls are an assistant's.
	Calls []Call
	// ToolCallID is the call that a tool message answers.
	ToolCallID string
	// IsError marks a tool message that reports a failure.
	IsError  bool
	Thinking []Thinking
	// ProviderData is opaque and goes back to the provider that gave it.
	ProviderData json.RawMessage

	// Timestamp (milliseconds since 1970), Epoch and Entry stand on history
	// items only; 0 is absent.
	Timestamp int64
	Epoch     uint64
	Entry     uint64
}

// Call is a tool call in an assistant message.
type Call struct {
	// ID is the runtime's toolCallId.
	ID string
	// ModelID is the provider's own id, which only providers see.
	ModelID string
	Name    string
	// Arguments is JSON text; it may be broken when the model's was.
	Arguments string
}

// PartType says what a part of a content holds.
type PartType string

// The part types; no others are read.
const (
	PartText     PartType = "text"
	PartImage    PartType = "image"
	PartAudio    PartType = "audio"
	PartResource PartType = "resource"
)

// Part is one piece of a content.
type Part struct {
	Type PartType `json:"type"`
	Text string   `json:"text,omitempty"`
	// MediaType is needed with Data.
	MediaType string `json:"mediaType,omitempty"`
	// Data is padded base64 in JSON.
	Data []byte `json:"data,omitempty"`
	URI  string `json:"uri,omitempty"`
	Name string `json:"name,omitempty"`
}

// Content gives the message's text: Text, or one line or more for each of Parts,
// in which a part without text is named by [Part.Describe].
func (m *Message) Content() string {
	if m.Parts == nil {
		return m.Text
	}
	lines := make([]string, 0, len(m.Parts))
	for i := range m.Parts {
		lines = append(lines, m.Parts[i].Describe())
	}
	return strings.Join(lines, "\n")
}

// Describe gives the part's text, or one line that names what it holds:
// "[image image/png, 1234 bytes]".
func (p *Part) Describe() string {
	if p.Type == PartText || p.Text != "" {
		return p.Text
	}
	var words []string
	for _, word := range []string{string(p.Type), p.MediaType, p.Name, p.URI} {
		if word != "" && !strings.HasPrefix(word, "data:") {
			words = append(words, clip(strings.Join(strings.Fields(word), " "), 1024))
		}
	}
	line := strings.Join(words, " ")
	if len(p.Data) > 0 {
		line += ", " + strconv.Itoa(len(p.Data)) + " bytes"
	}
	return "[" + line + "]"
}
