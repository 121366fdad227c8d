package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"text/tabwriter"

	"fmt"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// toolsCmd lists tools.
type toolsCmd struct {
	List   toolsListCmd   `cmd:"" default:"withargs" help:"List the tools."`
	Show   toolsShowCmd   `cmd:"" help:"Show a tool's whole declaration."`
	Export toolsExportCmd `cmd:"" help:"Print the tools that can be called in the form of a model provider, the Vercel AI SDK or MCP."`
}

type toolsListCmd struct {
	Workspace string `name:"workspace" short:"w" placeholder:"DIR" help:"Folder to serve where a mesh is started for this."`
}

type toolsShowCmd struct {
	Tool      string `arg:"" help:"Tool to show."`
	Workspace string `name:"workspace" short:"w" placeholder:"DIR" help:"Folder to serve where a mesh is started for this."`
}

// Run lists the tools.
func (cmd *toolsListCmd) Run(c *console) error {
	return c.withMesh(cmd.Workspace, func(ctx context.Context, m *mesh) error {
		tools, err := m.client.Tools(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return c.printTools(tools)
		}
		if len(tools) == 0 {
			c.say("No tools are currently available.")
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
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", t.Name, t.Version, t.Instances, stateOf(&t), clip(t.Description, 80))
	}
	if err := w.Flush(); err != nil {
		return frames.NewError(frames.CodeInternal, "cannot print: %w", err)
	}
	return nil
}

func stateOf(t *client.Tool) string {
	switch {
	case t.Refused != nil:
		return "refused"
	case t.Instances == 0:
		return "down"
	}
	return "ready"
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
		Refused   *frames.Error `json:"refused,omitempty"`
	}{stateOf(t), t.Instances, t.Workspaces(), t.Refused})
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

func indent(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return string(text)
	}
	return b.String()
}
