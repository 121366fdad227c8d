package loop

import (
	"context"
	"encoding/json"
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
	args := json.RawMessage(c.Arguments)
	if n, most := len(args), t.conn.InlineLimit(); n > most {
		return nil, frames.TooLarge("arguments of tool "+d.Name, int64(n), int64(most))
	}
	schema, err := t.d.Registry().Arguments(d)
	if err == nil {
		err = schema.Validate(args)
	}
	if err != nil {
		return nil, err
	}
	return &engine.Ticket{
		Identity: t.call.Caller, Replay: d.Replay, Sequential: d.ExecutionMode == frames.Sequential,
		Lock: dispatch.LockOf(d, args), Outside: true, Limits: kept(d.OutputLimits), Start: t.startOwn(d, args, c.ID != ""),
	}, nil
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
	t    *sessionTools
	d    *frames.Declaration
	id   string
	args json.RawMessage
	// second: an earlier loop may have offered it.
	second bool
	done   func(*frames.ToolResult)
}

func (t *sessionTools) startOwn(d *frames.Declaration, args json.RawMessage, second bool) engine.StartCall {
	return func(ctx context.Context, id string, _ func(*frames.Frame), done func(*frames.ToolResult)) func(error) {
		limit := d.Timeout()
		t.j.leased(id, limit)
		ctx, cancel := context.WithCancelCause(ctx)
		timeout := time.AfterFunc(limit, func() { cancel(frames.Timeout(d.Name, limit).WithReplay(d.ReplaySafe())) })
		o := &ownCall{t: t, d: d, id: id, args: args, second: second, done: done}
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
	if o.d.ReplaySafe() || !o.second {
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
	x, err := o.t.conn.Open(listening, o.t.conn.Own(o.t.call.Caller, o.d.Name), o.d.Encoding(), o.frame())
	if err != nil {
		return answerError(err)
	}
	defer x.Close()
	answer, err := x.Next(listening)
	switch {
	case listening.Err() != nil:
		return nil // heard nothing against it
	case frames.CodeOf(err) == frames.CodeUnavailable:
		return answerError(frames.Unavailable(o.d.Name).With(func(e *frames.Error) { e.Message += ": no client serves it now" }))
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
	call, attempt := o.t.call, 0
	if o.second {
		attempt = 1
	}
	f := frames.Call(o.d.Name, o.args, frames.WithCall(o.id, o.d.Name), frames.WithMeta("caller", call.Caller),
		frames.WithMeta("sessionId", call.SessionID), frames.WithMeta("epoch", o.t.epoch),
		frames.WithMeta("attempt", attempt), frames.WithMeta("timeoutMs", o.d.Timeout().Milliseconds()))
	if call.Workspace != "" {
		f.Metadata.Set("workspace", frames.Value(call.Workspace))
	}
	return &f
}
