package provider

import "github.com/weavebus/weavebus/pkg/frames"

// ToolMessage gives what a model sees of a call's result: its parts, else the
// text of [frames.ToolResult.ForModel].
func ToolMessage(callID string, r *frames.ToolResult) Message {
	m := Message{Role: RoleTool, ToolCallID: callID, IsError: r.Err != nil}
	if len(r.Parts) == 0 {
		m.Text = r.ForModel()
		return m
	}
	m.Parts = make([]Part, len(r.Parts))
	for i, p := range r.Parts {
		m.Parts[i] = Part{Type: PartType(p.Type), Text: p.Text, MediaType: p.MediaType, Data: p.Data, URI: p.URI, Name: p.Name}
	}
	return m
}
