package loop

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

const (
	// ownWait is how long a client may take to say that it has a call.
	ownWait = 3 * time.Second
	// ownTries is how often a call that may run again is offered; one that may not
	// is offered once, and waited for as long.
	ownTries = 3
)

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
		Lock: lockOf(d, args), Outside: true, Start: t.startOwn(d, args, c.ID != ""),
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

// run offers the call to the client and says what came of that; then it waits for
// the time-out or a cancel. A result comes by another way: the session's record.
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

// offer sends the call until a client says that it has it; a result says that none
// has, or what the client has against it.
func (o *ownCall) offer(ctx context.Context) *frames.ToolResult {
	wait, tries := ownWait, ownTries
	if !o.d.ReplaySafe() {
		wait, tries = ownWait*ownTries, 1
	}
	for try := range tries {
		res, err := o.send(ctx, try+1, wait)
		switch code := frames.CodeOf(err); {
		case err == nil:
			return res
		case ctx.Err() != nil:
			return nil // the cause says what comes of it
		case code == frames.CodeUnavailable && try == 0:
			return answerError(frames.Unavailable(o.d.Name))
		case code != frames.CodeTimeout && code != frames.CodeUnavailable:
			return answerError(err)
		}
	}
	return answerError(frames.Unavailable(o.d.Name).With(func(e *frames.Error) {
		e.Message += ": no client of the session took the call"
		e.Effect = frames.EffectUnknown
	}))
}

// send makes one request of it. Any answer says that the client has the call; a
// TOOL_RESULT that it does not run it any more.
func (o *ownCall) send(ctx context.Context, attempt int, wait time.Duration) (*frames.ToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	call := o.t.call
	f := frames.Call(o.d.Name, o.args, frames.WithCall(o.id, o.d.Name), frames.WithMeta("caller", call.Caller),
		frames.WithMeta("sessionId", call.SessionID), frames.WithMeta("epoch", o.t.epoch),
		frames.WithMeta("attempt", attempt), frames.WithMeta("timeoutMs", o.d.Timeout().Milliseconds()))
	if call.Workspace != "" {
		f.Metadata.Set("workspace", frames.Value(call.Workspace))
	}
	x, err := o.t.conn.Open(ctx, o.t.conn.Own(call.Caller, o.d.Name), o.d.Encoding(), &f)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	answer, err := x.Next(ctx)
	switch {
	case err != nil:
		return nil, err
	case answer.Type == frames.TypeToolResult:
		return answer.Result()
	case answer.Type == frames.TypeError:
		return nil, answer.Err()
	}
	return nil, nil //nolint:nilnil // the client has it, and no result yet
}
