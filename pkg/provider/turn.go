package provider

import (
	"iter"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Turn is a model turn put together from its events.
type Turn struct {
	Text     string
	Thinking []Thinking
	Calls    []ToolCall
	Stop     Stop
}

// Collect ranges over a stream and puts the turn together. On an error it gives
// what came before as well. A stream that ends without [Stop] is NO_RESULT.
func Collect(events iter.Seq2[Event, error]) (*Turn, error) {
	var c Collector
	for event, err := range events {
		if err != nil {
			return c.Turn(), frames.AsError(err)
		}
		c.Add(event)
	}
	if !c.stopped {
		return c.Turn(), frames.NewError(frames.CodeNoResult, "the model's stream ended without a stop")
	}
	return c.Turn(), nil
}

// Collector puts a turn together for callers that also pass its events on. The
// zero value is ready; it is not safe for concurrent use.
type Collector struct {
	turn    Turn
	text    strings.Builder
	open    bool // the last thinking block takes further pieces
	stopped bool
}

// Add takes the next event.
func (c *Collector) Add(event Event) {
	switch e := event.(type) {
	case Text:
		c.text.WriteString(e.Text)
	case Thinking:
		c.think(e)
	case ToolCall:
		c.turn.Calls = append(c.turn.Calls, e)
	case Stop:
		c.turn.Stop, c.stopped = e, true
	}
}

// Turn gives a copy of what was added so far.
func (c *Collector) Turn() *Turn {
	t := c.turn
	t.Text = c.text.String()
	t.Thinking = append([]Thinking(nil), t.Thinking...)
	t.Calls = append([]ToolCall(nil), t.Calls...)
	return &t
}

func (c *Collector) think(e Thinking) {
	if !c.open || e.Redacted {
		c.turn.Thinking = append(c.turn.Thinking, Thinking{Redacted: e.Redacted})
	}
	last := &c.turn.Thinking[len(c.turn.Thinking)-1]
	last.Text += e.Text
	last.Signature += e.Signature
	c.open = e.Signature == "" && !e.Redacted
}

// Message gives the assistant message of the turn. Its calls have ModelID set
// and ID blank: the runtime that opens them gives them theirs.
func (t *Turn) Message() Message {
	m := Message{Role: RoleAssistant, Text: t.Text, Thinking: t.Thinking}
	for _, c := range t.Calls {
		m.Calls = append(m.Calls, Call{ModelID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return m
}
