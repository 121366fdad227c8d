package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// toolsCmd lists tools, and is where an operator switches them.
type toolsCmd struct {
	List     toolsListCmd     `cmd:"" default:"withargs" help:"List the tools, those that cannot be called with the reason."`
	Show     toolsShowCmd     `cmd:"" help:"Show a tool's whole declaration."`
	Describe toolsDescribeCmd `cmd:"" help:"Print the tools that can be called as a text for a prompt."`
	Disable  toolsDisableCmd  `cmd:"" help:"Switch tools off: their calls are DISABLED until they are enabled."`
	Enable   toolsEnableCmd   `cmd:"" help:"Switch tools on again that were disabled or retired."`
	Retire   toolsRetireCmd   `cmd:"" help:"Take tools' names away: their calls are NOT_FOUND until they are enabled."`
	Swap     toolsSwapCmd     `cmd:"" help:"Give a tool's name to another identity that serves it."`
	Limits   toolsLimitsCmd   `cmd:"" help:"Bound a tool's calls more tightly than it declares."`
	Export   toolsExportCmd   `cmd:"" help:"Print the tools that can be called in the form of a model provider, the Vercel AI SDK or MCP."`
}

type toolsListCmd struct {
	Workspace string   `name:"workspace" short:"w" placeholder:"DIR" help:"Folder to serve where a mesh is started for this."`
	State     []string `name:"in" placeholder:"STATE" help:"Only tools in these states: ready, down, disabled, retired, refused, conflict. Default: all but retired."`
}

type toolsShowCmd struct {
	Tool      string `arg:"" help:"Tool to show."`
	Workspace string `name:"workspace" short:"w" placeholder:"DIR" help:"Folder to serve where a mesh is started for this."`
}

type toolsDescribeCmd struct {
	Tools     []string `arg:"" optional:"" name:"tools" help:"Names or patterns, such as 'read_*'. Default: all."`
	Workspace string   `name:"workspace" short:"w" placeholder:"DIR" help:"Folder to serve where a mesh is started for this."`
}

// Run lists the tools.
func (cmd *toolsListCmd) Run(c *console) error {
	return c.withMesh(cmd.Workspace, func(ctx context.Context, m *mesh) error {
		tools, err := m.client.Tools(ctx, client.InState(cmd.State...))
		if err != nil {
			return err
		}
		if c.JSON {
			return c.printTools(tools)
		}
		if len(tools) == 0 {
			c.say("%s", client.PromptText(nil))
			c.noteOwn(m)
			c.note("Serve some: weavebus up --workspace DIR, or a tool of your own as in examples/hello-tool.")
			return nil
		}
		return c.tableOfTools(tools)
	})
}

func (c *console) tableOfTools(tools []client.Tool) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tVERSION\tINSTANCES\tSTATE\tDESCRIPTION")
	for _, t := range tools {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", t.Name, t.Version, t.Instances, stateOf(&t), aboutTool(&t))
	}
	if err := w.Flush(); err != nil {
		return frames.NewError(frames.CodeInternal, "cannot print: %w", err)
	}
	return nil
}

// aboutTool gives a tool's description, or who declared what is refused, and why.
func aboutTool(t *client.Tool) string {
	if t.Refused == nil {
		return clip(t.Description, 80)
	}
	by := t.Identity
	if t.Instance != "" {
		by += "/" + t.Instance
	}
	return clip(by+": "+t.Refused.Message, 200)
}

func stateOf(t *client.Tool) string {
	switch {
	case t.State != "":
		return t.State
	case t.Refused != nil:
		return client.StateRefused
	case t.Instances == 0:
		return client.StateDown
	}
	return client.StateReady
}

func (c *console) printTools(tools []client.Tool) error {
	out := make([]json.RawMessage, 0, len(tools))
	for _, t := range tools {
		text, err := toolJSON(&t)
		if err != nil {
			return err
		}
		out = append(out, text)
	}
	return c.print(out)
}

func toolJSON(t *client.Tool) (json.RawMessage, error) {
	f := frames.Description(t.Declaration)
	text, err := f.ContentJSON()
	if err != nil {
		return nil, err
	}
	state, err := json.Marshal(struct {
		State     string        `json:"state"`
		Instances int           `json:"instances"`
		Workspace []string      `json:"workspaces,omitempty"`
		Limits    limitsJSON    `json:"limits,omitzero"`
		Refused   *frames.Error `json:"refused,omitempty"`
	}{stateOf(t), t.Instances, t.Workspaces(), limitsOf(t.Limits), t.Refused})
	if err != nil {
		return nil, frames.NewError(frames.CodeInternal, "cannot print: %w", err)
	}
	return append(append(text[:len(text)-1:len(text)-1], ','), state[1:]...), nil
}

// Run shows one tool.
func (cmd *toolsShowCmd) Run(c *console) error {
	return c.withMesh(cmd.Workspace, func(ctx context.Context, m *mesh) error {
		t, err := m.client.Tool(ctx, cmd.Tool)
		if err != nil {
			return err
		}
		text, err := toolJSON(t)
		if err != nil {
			return err
		}
		if !c.JSON {
			text = []byte(indent(text))
		}
		c.say("%s", text)
		return nil
	})
}

// Run prints the text for a prompt.
func (cmd *toolsDescribeCmd) Run(c *console) error {
	return c.withMesh(cmd.Workspace, func(ctx context.Context, m *mesh) error {
		tools, err := m.client.Tools(ctx, client.InState(client.StateReady), client.Named(cmd.Tools...))
		if err != nil {
			return err
		}
		c.noteMissing(cmd.Tools, tools)
		text := client.PromptText(tools)
		if c.JSON {
			return c.print(map[string]string{"text": text})
		}
		c.say("%s", text)
		return nil
	})
}

// noteMissing names what was asked for and is not among the tools that can be called.
func (c *console) noteMissing(asked []string, ready []client.Tool) {
	for _, name := range asked {
		isName := func(t client.Tool) bool { return t.Name == name || strings.ContainsAny(name, "*?") }
		if !c.JSON && !slices.ContainsFunc(ready, isName) {
			c.note("%s: no such tool can be called now; see weavebus tools", name)
		}
	}
}

func indent(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return string(text)
	}
	return b.String()
}

// limitsJSON is how an operator's limits are printed.
type limitsJSON struct {
	Concurrency int   `json:"concurrency,omitempty"`
	TimeoutMs   int64 `json:"timeoutMs,omitempty"`
}

func limitsOf(l client.Limits) limitsJSON {
	return limitsJSON{l.Concurrency, l.Timeout.Milliseconds()}
}

func (l limitsJSON) String() string {
	count, timeout := "none", "none"
	if l.Concurrency > 0 {
		count = fmt.Sprint(l.Concurrency)
	}
	if l.TimeoutMs > 0 {
		timeout = fmt.Sprintf("%d ms", l.TimeoutMs)
	}
	return "concurrency " + count + ", time-out " + timeout
}

// settingJSON is how what operators decided is printed.
type settingJSON struct {
	Tool     string     `json:"tool"`
	State    string     `json:"state,omitempty"`
	Disabled bool       `json:"disabled"`
	Retired  bool       `json:"retired"`
	Identity string     `json:"identity,omitempty"`
	Limits   limitsJSON `json:"limits,omitzero"`
	By       string     `json:"by,omitempty"`
}

// printSetting says what holds for a tool now.
func (c *console) printSetting(s *client.Setting) error {
	if c.JSON {
		return c.print(settingJSON{s.Tool, s.State, s.Disabled, s.Retired, s.Identity, limitsOf(s.Limits), s.By})
	}
	line := s.Tool + ": " + cmp.Or(s.State, client.StateDown)
	if s.Identity != "" {
		line += ", of " + s.Identity
	}
	if s.Limits != (client.Limits{}) {
		line += ", " + limitsOf(s.Limits).String()
	}
	c.say("%s", line)
	return nil
}
