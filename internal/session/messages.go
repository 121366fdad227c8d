package session

import (
	"slices"

	"github.com/weavebus/weavebus/internal/results"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// ToolMessage gives what a model sees of a TOOL_RESULT's content.
func ToolMessage(callID string, content frames.Raw) provider.Message {
	return provider.ToolMessage(callID, toolResult(content))
}

// Shown gives the outcome of a call, with what a model sees of it by the limits.
func Shown(callID string, r *frames.ToolResult, l frames.OutputLimits) Outcome {
	m, kept := results.Shown(callID, r, l)
	return OutcomeOf(callID, kept, &m)
}

// OutcomeOf gives the outcome of a call whose result was shown as m.
func OutcomeOf(callID string, r *frames.ToolResult, m *provider.Message) Outcome {
	f := frames.Result(r)
	o := Outcome{CallID: callID, Content: f.Content, Metadata: f.Metadata}
	if results.Ref(r) != "" {
		o.Message = m
	}
	return o
}

func toolResult(content frames.Raw) *frames.ToolResult {
	f := frames.NewFrame(frames.TypeToolResult, content)
	r, err := f.Result()
	if err != nil {
		r = &frames.ToolResult{Err: frames.AsError(err)}
	}
	return r
}

// results puts the results of calls that an entry holds into the map.
func (e *Entry) results(into map[string]*frames.ToolResult) {
	for i := range e.Changes {
		if c := &e.Changes[i]; c.Kind == ChangeResult {
			into[c.CallID] = toolResult(c.Result)
		}
	}
}

// Messages gives what an entry appends to the history, results in the order
// they came in.
func (e *Entry) Messages() []provider.Message {
	var out []provider.Message
	for i := range e.Changes {
		if m, ok := e.Changes[i].message(); ok {
			m.Timestamp, m.Epoch, m.Entry = e.State.Updated, e.Changes[i].Epoch, e.N
			out = append(out, m)
		}
	}
	return out
}

func (c *Change) message() (provider.Message, bool) {
	switch {
	case c.Kind == ChangeResult && c.Message == nil:
		return ToolMessage(c.CallID, c.Result), true
	case c.Kind == ChangeResult:
		m := *c.Message
		m.Role, m.ToolCallID = provider.RoleTool, c.CallID
		return m, true
	case c.Message != nil:
		return *c.Message, true
	}
	return provider.Message{}, false
}

// conversation puts the messages of entries together.
type conversation struct {
	out []provider.Message
	// calls are those of the last assistant message, in its order, and results
	// the tool messages that came for them so far.
	calls   []provider.Call
	results []provider.Message
	// open are the same, as they were given.
	open map[string]*frames.ToolResult
}

func (c *conversation) add(e *Entry) {
	defer func() { e.results(c.open) }()
	for _, m := range e.Messages() {
		if m.Role == provider.RoleTool {
			c.results = append(c.results, m)
			continue
		}
		c.flush()
		c.out = append(c.out, m)
		c.calls, c.open = m.Calls, map[string]*frames.ToolResult{}
	}
}

// flush appends the results of a round in the model's order.
func (c *conversation) flush() {
	slices.SortStableFunc(c.results, func(a, b provider.Message) int {
		return c.place(a.ToolCallID) - c.place(b.ToolCallID)
	})
	c.out = append(c.out, c.results...)
	c.results = nil
}

func (c *conversation) place(id string) int {
	return slices.IndexFunc(c.calls, func(call provider.Call) bool { return call.ID == id })
}

func (c *conversation) messages() []provider.Message {
	c.flush()
	return c.out
}
