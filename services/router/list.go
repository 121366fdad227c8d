package router

import (
	"context"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// listChunk bounds how much of a list goes into one message.
const listChunk = 256 << 10

// list answers DESCRIBE on wb.list.<caller>: a DESCRIPTION for each tool, or for
// the one that is named, each with metadata that says how it stands.
func (r *router) list(ctx context.Context, q *bus.Request) {
	f := q.First(frames.TypeDescribe)
	switch {
	case f == nil:
		r.sent(q.Fail(frames.UnknownType(q.Frames[0].Type)), q)
	case !f.Content.Lookup("export").Absent():
		r.d.Registry().Settle(ctx)
		r.export(q, f)
	case f.Name == "":
		r.d.Registry().Settle(ctx)
		r.describeAll(q)
	case r.d.Ready(f.Name):
		r.describeOne(ctx, q, f.Name)
	default:
		r.looking.Go(func() { r.describeOne(ctx, q, f.Name) }) // has to look for it
	}
}

func (r *router) describeOne(ctx context.Context, q *bus.Request, name string) {
	t, err := r.d.Lookup(ctx, name)
	if err != nil {
		r.sent(q.Fail(err), q)
		return
	}
	r.sent(q.End(frames.EndCompleted, r.description(t)), q)
}

func (r *router) describeAll(q *bus.Request) {
	var chunk []frames.Frame
	size := 0
	for _, t := range append(r.d.Registry().Tools(), r.d.Registry().Refused()...) {
		f := r.description(t)
		if size += len(f.Content); size > listChunk && len(chunk) > 0 {
			r.sent(q.Send(chunk...), q)
			chunk, size = nil, len(f.Content)
		}
		chunk = append(chunk, f)
	}
	r.sent(q.End(frames.EndCompleted, chunk...), q)
}

func (r *router) description(t *registry.Tool) frames.Frame {
	f := frames.Description(t.Declaration, frames.WithMeta("instances", len(t.Instances)))
	if keys := t.Keys(); keys != nil {
		f.Metadata.Set("keys", frames.Value(keys))
	}
	if err := r.d.Registry().Check(t); err != nil {
		f.Metadata.Set("refused", err.Raw())
	}
	return f
}
