package openai

import (
	"encoding/base64"
	"strings"

	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

type wireMessage struct {
	Role string `json:"role"`
	// Content is a string, a list of parts, or nil for null.
	Content          any        `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []wireCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitempty"`
}

type wireCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function wireCallBody `json:"function"`
}

type wireCallBody struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// dialect writes the messages of one request. It remembers under which id each
// call went out, so that its result goes out under the same.
type dialect struct {
	cfg   *Config
	tools *export.Set
	ids   map[string]string
}

func newDialect(cfg *Config, tools *export.Set) *dialect {
	return &dialect{cfg: cfg, tools: tools, ids: map[string]string{}}
}

func (d *dialect) messages(in []provider.Message) []wireMessage {
	out := make([]wireMessage, len(in))
	for i := range in {
		out[i] = d.message(&in[i])
	}
	return out
}

func (d *dialect) message(m *provider.Message) wireMessage {
	switch m.Role {
	case provider.RoleAssistant:
		return d.assistant(m)
	case provider.RoleTool:
		return wireMessage{Role: "tool", Content: m.Content(), ToolCallID: d.resultID(m.ToolCallID)}
	case provider.RoleUser:
		return wireMessage{Role: "user", Content: userContent(m)}
	}
	return wireMessage{Role: string(m.Role), Content: m.Content()}
}

// assistant writes null for a missing text beside calls, and only there.
func (d *dialect) assistant(m *provider.Message) wireMessage {
	out := wireMessage{Role: "assistant", Content: m.Content()}
	taken := map[string]bool{}
	for i := range m.Calls {
		out.ToolCalls = append(out.ToolCalls, d.call(&m.Calls[i], taken))
	}
	if len(out.ToolCalls) > 0 && out.Content == "" {
		out.Content = nil
	}
	if d.cfg.ReplayThinking {
		out.ReasoningContent = thinkingText(m.Thinking)
	}
	return out
}

func (d *dialect) call(c *provider.Call, taken map[string]bool) wireCall {
	name, arguments := c.Name, string(provider.ValidArguments(c.Arguments))
	if name == "" {
		name = "unnamed"
	}
	name, arguments = d.tools.Wire(name, arguments)
	return wireCall{ID: d.callID(c, taken), Type: "function", Function: wireCallBody{Name: name, Arguments: arguments}}
}

// callID gives the id that the model knows the call by; ours where it has none, or
// gave it to an earlier call of the message too: else nobody can tell whose a
// result is.
func (d *dialect) callID(c *provider.Call, taken map[string]bool) string {
	id := d.cfg.wireID(c.ModelID)
	if c.ModelID == "" || taken[id] && c.ID != "" {
		id = d.cfg.wireID(c.ID)
	}
	taken[id] = true
	if c.ID != "" {
		d.ids[c.ID] = id
	}
	return id
}

func (d *dialect) resultID(toolCallID string) string {
	if id, ok := d.ids[toolCallID]; ok {
		return id
	}
	return d.cfg.wireID(toolCallID)
}

func thinkingText(blocks []provider.Thinking) string {
	var b strings.Builder
	for _, block := range blocks {
		b.WriteString(block.Text)
	}
	return b.String()
}

type wirePart struct {
	Type     string     `json:"type"`
	Text     *string    `json:"text,omitempty"`
	ImageURL *wireImage `json:"image_url,omitempty"`
	Audio    *wireAudio `json:"input_audio,omitempty"`
}

type wireImage struct {
	URL string `json:"url"`
}

type wireAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

// userContent writes a list only if a part needs it: many servers read plain
// strings only.
func userContent(m *provider.Message) any {
	var rich bool
	parts := make([]wirePart, len(m.Parts))
	for i := range m.Parts {
		parts[i] = userPart(&m.Parts[i])
		rich = rich || parts[i].Type != "text"
	}
	if !rich {
		return m.Content()
	}
	return parts
}

func userPart(p *provider.Part) wirePart {
	switch {
	case p.Type == provider.PartImage && len(p.Data) > 0:
		return wirePart{Type: "image_url", ImageURL: &wireImage{dataURI(p)}}
	case p.Type == provider.PartImage && p.URI != "":
		return wirePart{Type: "image_url", ImageURL: &wireImage{p.URI}}
	case p.Type == provider.PartAudio && len(p.Data) > 0 && audioFormat(p.MediaType) != "":
		return wirePart{Type: "input_audio", Audio: &wireAudio{base64.StdEncoding.EncodeToString(p.Data), audioFormat(p.MediaType)}}
	}
	text := p.Describe()
	return wirePart{Type: "text", Text: &text}
}

func dataURI(p *provider.Part) string {
	mediaType := p.MediaType
	if mediaType == "" {
		mediaType = "image/png"
	}
	return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(p.Data)
}

func audioFormat(mediaType string) string {
	switch mediaType {
	case "audio/wav", "audio/x-wav", "audio/wave":
		return "wav"
	case "audio/mpeg", "audio/mp3":
		return "mp3"
	}
	return ""
}
