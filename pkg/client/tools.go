package client

import (
	"context"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// States of a tool.
const (
	StateReady    = "ready"    // it can be called
	StateDown     = "down"     // nobody serves it now
	StateDisabled = "disabled" // an operator switched it off
	StateRetired  = "retired"  // an operator took the name away
	StateRefused  = "refused"  // its declaration is at fault
	StateConflict = "conflict" // another identity has the name
)

// Tool is a tool as the router lists it.
type Tool struct {
	*frames.Declaration
	// State says how it stands, by one of the constants above.
	State string
	// Instances is how many processes serve it now.
	Instances int
	// Owned are the keys that its instances own: names of workspaces, and their
	// roots as frames.PathKey gives them.
	Owned []string
	// Refused says why it cannot be called; nil where its declaration is good.
	Refused *frames.Error
	// Limits are those that an operator set.
	Limits Limits
}

// Workspaces gives the names of the workspaces that its instances own.
func (t *Tool) Workspaces() []string {
	return slices.DeleteFunc(slices.Clone(t.Owned), frames.IsPathKey)
}

// ListOption changes which tools are listed.
type ListOption func(*listConfig)

type listConfig struct{ states, tools []string }

// InState lists the tools in these states only. Default: all but the retired.
func InState(states ...string) ListOption {
	return func(l *listConfig) { l.states = append(l.states, states...) }
}

// InAnyState lists the retired tools too.
func InAnyState() ListOption {
	return InState(StateReady, StateDown, StateDisabled, StateRetired, StateRefused, StateConflict)
}

// Named lists the tools with these names only, or that fit these patterns, in
// which * stands for any letters. Default: all.
func Named(patterns ...string) ListOption {
	return func(l *listConfig) { l.tools = append(l.tools, patterns...) }
}

// Tools lists the tools that the caller may see. A name may be listed more than
// once: a declaration that is refused stands beside the one that is called.
func (c *Client) Tools(ctx context.Context, opts ...ListOption) ([]Tool, error) {
	var l listConfig
	for _, o := range opts {
		o(&l)
	}
	content := frames.Fields{}
	if len(l.states) > 0 {
		content.Set("states", frames.Value(l.states))
	}
	if len(l.tools) > 0 {
		content.Set("tools", frames.Value(l.tools))
	}
	q := frames.NewFrame(frames.TypeDescribe, content.Raw())
	return c.describe(ctx, q)
}

// Tool describes one tool; one that does not exist is NOT_FOUND. One that cannot
// be called is described too: its State says so.
func (c *Client) Tool(ctx context.Context, name string) (*Tool, error) {
	tools, err := c.describe(ctx, frames.Describe(name))
	if err != nil {
		return nil, err
	}
	if len(tools) == 0 {
		return nil, frames.NotFound(name, nil)
	}
	return &tools[0], nil
}

func (c *Client) describe(ctx context.Context, q frames.Frame) ([]Tool, error) {
	fs, err := c.conn.Request(ctx, c.conn.List(c.Caller()), &q)
	if err != nil {
		return nil, err
	}
	var out []Tool
	for i := range fs {
		if fs[i].Type == frames.TypeDescription {
			out = append(out, toolFrom(&fs[i]))
		}
	}
	return out, nil
}

func toolFrom(f *frames.Frame) Tool {
	d, err := frames.DeclarationFrom(f.Content)
	t := Tool{
		Declaration: d, State: f.Metadata.Text("state"), Instances: int(f.Metadata.Int("instances")),
		Refused: frames.AsError(err), Limits: limitsFrom(f.Metadata.Get("limits")),
	}
	for key := range f.Metadata.Get("keys").Items() {
		name, _ := key.Text()
		t.Owned = append(t.Owned, name)
	}
	if e := f.Metadata.Get("refused"); e != nil {
		t.Refused = frames.ErrorFrom(e)
	}
	return t
}

// noTools is the prompt's text where there is nothing to call.
const noTools = "No tools are currently available."

// PromptText describes the tools that can be called to a model, each in a line
// "- name: description"; without any it says that no tools are available.
func PromptText(tools []Tool) string {
	var lines []string
	for i := range tools {
		if t := &tools[i]; t.State == StateReady {
			lines = append(lines, "- "+t.Name+": "+oneLine(t.Description))
		}
	}
	if len(lines) == 0 {
		return noTools
	}
	return strings.Join(lines, "\n")
}

// oneLine joins the lines of a text.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " ")
}
