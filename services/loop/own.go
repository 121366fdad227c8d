package loop

import (
	"context"
	"errors"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// ownWait is how long it is heard whether a client listens. A client that does
// answers on the session, not here.
const ownWait = 250 * time.Millisecond

// sessionTools are the mesh's tools and those that clients serve for the session,
// which come first: of two with one name a client's own is called.
type sessionTools struct {
	*tools
	j     *job
	epoch uint64
	own   map[string]*frames.Declaration
	order []*frames.Declaration
}

var _ engine.Tools = (*sessionTools)(nil)

func newSessionTools(j *job, mesh *tools) *sessionTools {
	t := &sessionTools{tools: mesh, j: j, epoch: j.head.State.Epoch, own: map[string]*frames.Declaration{}}
	t.order = j.head.State.OwnTools()
	for _, d := range t.order {
		d.Identity = mesh.call.Caller // whatever it says
		t.own[d.Name] = d
	}
	return t
}

// Offer implements [engine.Tools].
func (t *sessionTools) Offer(ctx context.Context) []provider.Tool {
	var out []provider.Tool
	for _, d := range t.order {
		out = append(out, provider.Tool{Name: d.Name, Description: d.Description, Schema: d.Schema})
	}
	for _, tool := range t.tools.Offer(ctx) {
		if t.own[tool.Name] == nil {
			out = append(out, tool)
		}
	}
	return out
}

// polls reports whether a tool declares that it is called alike again and again.
func (t *sessionTools) polls(name string) bool {
	if d := t.own[name]; d != nil {
		return d.Annotations.Polling
	}
	return t.tools.polls(name)
}

// Prepare implements [engine.Tools].
func (t *sessionTools) Prepare(ctx context.Context, c engine.Call) (*engine.Ticket, error) {
	d := t.own[c.Name]
	if d == nil {
		ticket, err := t.tools.Prepare(ctx, c)
		if e := frames.AsError(err); e != nil && e.Code == frames.CodeNotFound && e.Reason == "" {
			err = frames.NotFound(c.Name, t.names(ctx))
		}
		return ticket, err
	}
	return t.prepareOwn(ctx, d, c)
}

func (t *sessionTools) prepareOwn(ctx context.Context, d *frames.Declaration, c engine.Call) (*engine.Ticket, error) {
	call, second := t.dispatched(c), c.ID != ""
	if second && !d.ReplaySafe() { // it was decided about, and a client may have it
		return t.handed(&dispatch.Prepared{Call: call, Declaration: d}, second), nil
	}
	p, err := t.d.PrepareOutside(ctx, call, d)
	switch {
	case err != nil:
		return nil, err
	case p.Answered():
		return ticket(p, t.start(p, second)), nil
	}
	return t.handed(p, second), nil
}

// handed gives the ticket of a call that a client runs.
func (t *sessionTools) handed(p *dispatch.Prepared, second bool) *engine.Ticket {
	out := ticket(p, t.startOwn(p, second))
	out.Outside = true
	return out
}

func (t *sessionTools) names(ctx context.Context) []string {
	var names []string
	for _, tool := range t.Offer(ctx) {
		names = append(names, tool.Name)
	}
	return names
}

// ownCall is a call of a client's own tool, in the hands of this loop until the
// session is given up.
type ownCall struct {
	t *sessionTools
	*dispatch.Prepared
	// second: an earlier loop may have offered it.
	second bool
	done   func(*frames.ToolResult)
}

func (t *sessionTools) startOwn(p *dispatch.Prepared, second bool) engine.StartCall {
	return func(ctx context.Context, id string, _ func(*frames.Frame), done func(*frames.ToolResult)) func(error) {
		d, started := p.Declaration, *p
		started.ID = id
		limit := d.Timeout()
		t.j.leased(id, limit)
		ctx, cancel := context.WithCancelCause(ctx)
		timeout := time.AfterFunc(limit, func() { cancel(frames.Timeout(d.Name, limit).WithReplay(d.ReplaySafe())) })
		o := &ownCall{t: t, Prepared: &started, second: second, done: done}
		go func() {
			defer timeout.Stop()
			o.run(ctx)
		}()
		return cancel
	}
}

// run offers the call and says what came of that; then it waits for the time-out or
// a cancel. A call that an earlier loop may have offered is offered again only where
// it may run twice. Its result comes by another way: the session's record.
func (o *ownCall) run(ctx context.Context) {
	if o.Declaration.ReplaySafe() || !o.second {
		o.t.d.HandOver(ctx, o.Prepared)
		if res := o.offer(ctx); res != nil {
			o.done(res)
			return
		}
	}
	o.done(nil)
	<-ctx.Done()
	if e, ok := errors.AsType[*frames.Error](context.Cause(ctx)); ok {
		o.done(answerError(e))
	}
}

// offer sends the call to the clients that listen. A result says that none does, or
// that what was sent could not be read there: whoever has the call cannot answer
// here, but on the session.
func (o *ownCall) offer(ctx context.Context) *frames.ToolResult {
	listening, cancel := context.WithTimeout(ctx, ownWait)
	defer cancel()
	x, err := o.t.conn.Open(listening, o.t.conn.Own(o.Caller, o.Tool), o.Declaration.Encoding(), o.frame())
	if err != nil {
		return answerError(err)
	}
	defer x.Close()
	answer, err := x.Next(listening)
	switch {
	case listening.Err() != nil:
		return nil // heard nothing against it
	case frames.CodeOf(err) == frames.CodeUnavailable:
		return answerError(frames.Unavailable(o.Tool).With(func(e *frames.Error) { e.Message += ": no client serves it now" }))
	case err != nil:
		return answerError(err)
	}
	res, err := answer.Result()
	if err != nil || answer.Type != frames.TypeToolResult {
		return nil
	}
	return res
}

func (o *ownCall) frame() *frames.Frame {
	attempt := 0
	if o.second {
		attempt = 1
	}
	f := frames.Call(o.Tool, o.Arguments, frames.WithCall(o.ID, o.Tool), frames.WithMeta("caller", o.Caller),
		frames.WithMeta("sessionId", o.SessionID), frames.WithMeta("epoch", o.t.epoch),
		frames.WithMeta("attempt", attempt), frames.WithMeta("timeoutMs", o.Declaration.Timeout().Milliseconds()))
	if o.Workspace != "" {
		f.Metadata.Set("workspace", frames.Value(o.Workspace))
	}
	return &f
}
