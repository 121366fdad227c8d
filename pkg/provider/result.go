package provider

import (
	"fmt"

	"github.com/weavebus/weavebus/pkg/frames"
)

// maxAttached is how many parts without text a model sees of a result.
const maxAttached = 64

// ToolMessage gives what a model sees of a call's result: its parts, else the text
// of [frames.ToolResult.ForModel]. A part of a type that no model takes is its text,
// or the line that names it. Of parts without text the first 64 count, with a line
// that says how many others there are.
func ToolMessage(callID string, r *frames.ToolResult) Message {
	m := Message{Role: RoleTool, ToolCallID: callID, IsError: r.Err != nil}
	if len(r.Parts) == 0 {
		m.Text = r.ForModel()
		return m
	}
	attached := 0
	m.Parts = make([]Part, 0, len(r.Parts))
	for i := range r.Parts {
		p := partOf(&r.Parts[i])
		if p.Text == "" {
			attached++
		}
		if p.Text != "" || attached <= maxAttached {
			m.Parts = append(m.Parts, p)
		}
	}
	if attached > maxAttached {
		m.Parts = append(m.Parts, Part{Type: PartText, Text: fmt.Sprintf("[%d more parts are left out]", attached-maxAttached)})
	}
	return m
}

func partOf(p *frames.Part) Part {
	out := Part{Type: PartType(p.Type), Text: p.Text, MediaType: p.MediaType, Data: p.Data, URI: p.URI, Name: p.Name}
	if !out.Type.valid() {
		return Part{Type: PartText, Text: out.Describe()}
	}
	return out
}
