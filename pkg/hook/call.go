package hook

import (
	"encoding/json"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Call is a tool call as hooks see it.
type Call struct {
	// ID is the call's; empty before a model's call got one, which is after the
	// gates.
	ID   string
	Tool string
	// Caller is who asks, as the bus has proved.
	Caller string
	// SessionID is empty outside of a session.
	SessionID string
	// Workspace is the one that was asked for; empty for the only one there is.
	Workspace string
	// Depth is how many runs the call lies inside of.
	Depth int
	// Identity serves the tool; empty where the tool was not found.
	Identity string
	// Annotations are what the tool says of its effects.
	Annotations frames.Annotations
	// Arguments are what the tool runs on: JSON text that fits its schema, with the
	// changes of the gates before. Where they were refused, they are as they came.
	Arguments json.RawMessage
	// Raw is the arguments' text as it came.
	Raw json.RawMessage
}

// Decode reads the arguments into what v points to: a struct, or a map[string]any
// with its numbers as json.Number. Keys match exactly, so that a gate reads what
// the tool reads.
func (c *Call) Decode(v any) error { return schema.Decode(c.Arguments, v) }
