package client

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// Exported are a mesh's tools in one format.
type Exported struct {
	// Tools is the value of a request's `tools`: a list, or for Vercel an object.
	// Of no tools it is empty: leave `tools` out of the request then.
	Tools json.RawMessage
	// Names gives the own names of tools that are called otherwise in Tools.
	Names map[string]string
	// Annotations are what tools say of their effects, by own name; a tool that says
	// nothing is not in it.
	Annotations map[string]frames.Annotations
	// Notes say where Tools differ from what was asked for.
	Notes []export.Note
}

type exportConfig struct {
	strict *bool
	tools  []string
}

// ExportOption changes an export.
type ExportOption func(*exportConfig)

// ExportStrict chooses strict, as [export.WithStrict] does. Default: not chosen.
func ExportStrict(strict bool) ExportOption { return func(c *exportConfig) { c.strict = &strict } }

// ExportTools chooses tools by names and patterns, as path.Match has them. Default: all.
func ExportTools(patterns ...string) ExportOption {
	return func(c *exportConfig) { c.tools = append(c.tools, patterns...) }
}

// Export gives the tools that the caller may call in the form of a provider. What
// a model then calls is in that form too: a program in Go exports [Client.Tools] with
// package export itself, whose Set reads calls back; others say the format in the
// metadata of their call (docs/protocol.md, section 4.1).
func (c *Client) Export(ctx context.Context, f export.Format, opts ...ExportOption) (*Exported, error) {
	var cfg exportConfig
	for _, o := range opts {
		o(&cfg)
	}
	content := map[string]any{"export": string(f)}
	if cfg.strict != nil {
		content["strict"] = *cfg.strict
	}
	if len(cfg.tools) > 0 {
		content["tools"] = cfg.tools
	}
	q := frames.NewFrame(frames.TypeDescribe, content)
	fs, err := c.conn.Request(ctx, c.conn.List(c.Caller()), &q)
	if err != nil {
		return nil, err
	}
	out := &Exported{Names: map[string]string{}, Annotations: map[string]frames.Annotations{}}
	for i := range fs {
		if fs[i].Type != frames.TypeData {
			continue
		}
		if err := out.add(fs[i].Content); err != nil {
			return nil, err
		}
	}
	if out.Tools == nil {
		return nil, frames.NewError(frames.CodeNoResult, "the router answered without an export")
	}
	return out, nil
}

func (x *Exported) add(content frames.Raw) error {
	text, err := content.Payload("result")
	if err != nil {
		return err
	}
	x.Tools = join(x.Tools, text)
	for wire, own := range content.Lookup("names").Pairs() {
		x.Names[wire], _ = own.Text()
	}
	for own, said := range content.Lookup("annotations").Pairs() {
		a, err := said.JSON()
		var known frames.Annotations
		if err == nil && json.Unmarshal(a, &known) == nil {
			x.Annotations[own] = known
		}
	}
	for n := range content.Lookup("notes").Items() {
		tool, _ := n.Lookup("tool").Text()
		note, _ := n.Lookup("text").Text()
		x.Notes = append(x.Notes, export.Note{Tool: tool, Text: note})
	}
	return nil
}

// join joins two lists, or two objects; empty ones add nothing.
func join(a, b json.RawMessage) json.RawMessage {
	const empty = len("[]")
	switch b = bytes.TrimSpace(b); {
	case len(a) <= empty:
		return b
	case len(b) <= empty:
		return a
	}
	return append(append(a[:len(a)-1:len(a)-1], ','), b[1:]...)
}
