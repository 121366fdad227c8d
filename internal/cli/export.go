package cli

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// toolsExportCmd prints tools as a provider takes them.
type toolsExportCmd struct {
	Tools     []string `arg:"" optional:"" name:"tools" help:"Names or patterns, such as 'read_*'. Default: all that can be called."`
	Format    string   `name:"format" short:"f" required:"" enum:"openai,openai-responses,openai-strict,anthropic,gemini,gemini-parameters,vercel,mcp" help:"Form of the tools: ${enum}."`
	Strict    *bool    `name:"strict" negatable:"" help:"Say strict in the export, true or false. true goes out for each tool whose schema can be strict. Default: say nothing, but for openai-strict."`
	Names     bool     `name:"names" help:"Print an object: the tools, and the own names of those that are called otherwise in them."`
	Workspace string   `name:"workspace" short:"w" placeholder:"DIR" help:"Folder to serve where a mesh is started for this."`
}

// exportJSON is what --names prints.
type exportJSON struct {
	Tools json.RawMessage   `json:"tools"`
	Names map[string]string `json:"names"`
	Notes []export.Note     `json:"notes,omitempty"`
}

// Run prints the tools.
func (cmd *toolsExportCmd) Run(c *console) error {
	return c.withMesh(cmd.Workspace, func(ctx context.Context, m *mesh) error {
		opts := []client.ExportOption{client.ExportTools(cmd.Tools...)}
		if cmd.Strict != nil {
			opts = append(opts, client.ExportStrict(*cmd.Strict))
		}
		x, err := m.client.Export(ctx, export.Format(cmd.Format), opts...)
		if err != nil {
			return err
		}
		if len(cmd.Tools) > 0 && !c.JSON {
			ready, err := m.client.Tools(ctx, client.InState(client.StateReady), client.Named(cmd.Tools...))
			if err != nil {
				return err
			}
			c.noteMissing(cmd.Tools, ready)
		}
		return c.printExport(x, cmd.Names)
	})
}

func (c *console) printExport(x *client.Exported, names bool) error {
	if names {
		return c.printIndented(exportJSON{x.Tools, x.Names, x.Notes})
	}
	for _, n := range x.Notes {
		c.note("%s: %s", n.Tool, n.Text)
	}
	for _, wire := range slices.Sorted(maps.Keys(x.Names)) {
		c.note("%s: called %s", x.Names[wire], wire)
	}
	return c.printIndented(x.Tools)
}

// printIndented writes JSON, on one line for machines.
func (c *console) printIndented(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	if !c.JSON {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return frames.NewError(frames.CodeInternal, "cannot print: %w", err)
	}
	return nil
}
