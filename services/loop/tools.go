package loop

import (
	"context"
	"encoding/json"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// tools are the mesh's tools as one run may call them.
type tools struct {
	conn     *bus.Conn
	d        *dispatch.Dispatcher
	patterns engine.Patterns
	// call is what all calls of the run have in common.
	call dispatch.Call
}

var _ engine.Tools = (*tools)(nil)

// Offer implements [engine.Tools].
func (t *tools) Offer(ctx context.Context) []provider.Tool {
	t.d.Registry().Settle(ctx)
	offered := t.offered()
	out := make([]provider.Tool, 0, len(offered))
	for _, tool := range offered {
		out = append(out, provider.Tool{Name: tool.Name, Description: tool.Description, Schema: tool.Schema})
	}
	return out
}

func (t *tools) offered() []*registry.Tool {
	var out []*registry.Tool
	for _, tool := range t.d.Registry().Tools() {
		if tool.Callable() && t.patterns.Match(tool.Name) && t.d.Registry().Check(tool) == nil {
			out = append(out, tool)
		}
	}
	return out
}

// polls reports whether a tool declares that it is called alike again and again.
func (t *tools) polls(name string) bool {
	tool := t.d.Registry().Get(name)
	return tool != nil && tool.Annotations.Polling
}

func (t *tools) notFound(name string) error {
	offered := t.offered()
	names := make([]string, 0, len(offered))
	for _, tool := range offered {
		names = append(names, tool.Name)
	}
	return frames.NotFound(name, names)
}

// Prepare implements [engine.Tools].
func (t *tools) Prepare(ctx context.Context, c engine.Call) (*engine.Ticket, error) {
	if !t.patterns.Match(c.Name) || !frames.ValidName(c.Name) {
		return nil, t.notFound(c.Name)
	}
	p, err := t.d.Prepare(ctx, t.dispatched(c))
	if e := frames.AsError(err); e != nil && e.Code == frames.CodeNotFound && e.Reason == "" {
		return nil, t.notFound(c.Name) // names what this run may call, not what the mesh has
	}
	if err != nil {
		return nil, err
	}
	return ticket(p, t.start(p, c.ID != "")), nil
}

func ticket(p *dispatch.Prepared, start engine.StartCall) *engine.Ticket {
	decl := p.Declaration
	return &engine.Ticket{
		Identity: decl.Identity, Replay: decl.Replay, Sequential: decl.ExecutionMode == frames.Sequential,
		Lock: dispatch.LockOf(decl, p.Arguments), Repairs: p.Repairs, Start: start,
		Limits: kept(decl.OutputLimits),
	}
}

// dispatched gives a call of the run as the dispatcher takes it.
func (t *tools) dispatched(c engine.Call) dispatch.Call {
	call := t.call
	call.Tool, call.Arguments, call.Repairs = c.Name, json.RawMessage(c.Arguments), c.Repairs
	return call
}

// kept leaves out of limits what is the default, since sessions keep them.
func kept(l frames.OutputLimits) frames.OutputLimits {
	if l.MaxBytes == frames.DefaultMaxBytes {
		l.MaxBytes = 0
	}
	if l.MaxLines == frames.DefaultMaxLines {
		l.MaxLines = 0
	}
	if l.Retain == frames.RetainHead {
		l.Retain = ""
	}
	return l
}

// start gives what starts a prepared call; second says that an earlier process
// started it before.
func (t *tools) start(p *dispatch.Prepared, second bool) engine.StartCall {
	return func(ctx context.Context, id string, live func(*frames.Frame), done func(*frames.ToolResult)) func(error) {
		started := *p
		started.ID, started.OnFrame = id, live
		if second {
			return t.startAgain(ctx, &started, done)
		}
		return t.d.Start(ctx, &started, done)
	}
}
