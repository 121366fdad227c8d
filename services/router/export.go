package router

import (
	"encoding/json"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// export answers a DESCRIBE whose content names a format: DATA with the tools that
// the caller may call, in that format. A long export comes in several, each whole.
func (r *router) export(q *bus.Request, f *frames.Frame) {
	set, tools, err := r.exported(f)
	if err != nil {
		r.sent(q.Fail(err), q)
		return
	}
	parts := set.Split(listChunk)
	if len(parts) == 0 {
		parts = []*export.Set{set}
	}
	for _, part := range parts[:len(parts)-1] {
		r.sent(q.Send(exportFrame(part, tools)), q)
	}
	r.sent(q.End(frames.EndCompleted, exportFrame(parts[len(parts)-1], tools)), q)
}

func (r *router) exported(f *frames.Frame) (*export.Set, []*registry.Tool, error) {
	name, _ := f.Content.Lookup("export").Text()
	format, err := export.ParseFormat(name)
	if err != nil {
		return nil, nil, err
	}
	patterns, err := patternsFrom(f)
	if err != nil {
		return nil, nil, err
	}
	var opts []export.Option
	if v := f.Content.Lookup("strict"); !v.Absent() {
		strict, ok := v.Bool()
		if !ok {
			return nil, nil, badField("strict", "want true or false")
		}
		opts = append(opts, export.WithStrict(strict))
	}
	var tools []*registry.Tool
	var list []export.Tool
	for _, t := range r.d.Registry().Tools() {
		if t.Callable() && r.d.Registry().Check(t) == nil && wanted(patterns, t.Name) && (f.Name == "" || f.Name == t.Name) {
			tools, list = append(tools, t), append(list, export.FromDeclaration(t.Declaration))
		}
	}
	if f.Name != "" && len(list) == 0 {
		return nil, nil, r.d.Registry().Unserved(f.Name)
	}
	set, err := export.Export(format, list, opts...)
	return set, tools, err
}

// exportFrame says what a part of an export holds: the tools, the own names of those
// that are called otherwise there, what each says of its effects, and notes.
func exportFrame(part *export.Set, tools []*registry.Tool) frames.Frame {
	names, effects := map[string]any{}, map[string]any{}
	for wire, own := range part.Names().Changed() {
		names[wire] = own
	}
	for _, t := range tools {
		if !part.Has(t.Name) {
			continue
		}
		d := frames.Description(t.Declaration)
		if said := d.Content.Lookup("annotations"); said.Len() > 0 {
			effects[t.Name] = said
		}
	}
	notes := make([]any, 0, len(part.Notes()))
	for _, n := range part.Notes() {
		notes = append(notes, map[string]any{"tool": n.Tool, "text": n.Text})
	}
	return frames.Data(map[string]any{
		"type": "export", "format": string(part.Format()), "resultJson": string(part.JSON()),
		"names": names, "annotations": effects, "notes": notes,
	})
}

// readExport takes the format in whose terms a call's arguments are, if the caller
// names one: they are read back from it.
func readExport(c *dispatch.Call, exported frames.Raw) error {
	if exported.Absent() {
		return nil
	}
	name, _ := exported.Text()
	format, err := export.ParseFormat(name)
	if err != nil {
		return err
	}
	c.Translate = func(d *frames.Declaration, args json.RawMessage) json.RawMessage {
		return json.RawMessage(export.OwnArguments(format, d.Schema, string(args)))
	}
	return nil
}
