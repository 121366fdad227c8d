package router

import (
	"context"
	"time"

	"github.com/nats-io/nuid"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// tickEach is how often an open exchange says that it goes on.
const tickEach = 5 * time.Second

// openCall is a client's call that has no result yet.
type openCall struct {
	r    *bus.Request
	opts []frames.Option
}

// call answers wb.call.<caller>.<tool>. It does not block: a tool that is not
// known yet is looked for on a goroutine of its own.
func (r *router) call(ctx context.Context, q *bus.Request) {
	c, err := callFrom(q)
	if err != nil {
		r.reply(q.Fail(err), q)
		return
	}
	if r.d.Known(c.Tool) {
		r.start(ctx, q, c)
		return
	}
	go r.start(ctx, q, c)
}

// callFrom reads the one TOOL_CALL of a message; the subject says who calls what.
func callFrom(q *bus.Request) (dispatch.Call, error) {
	caller, tool := q.Tokens[1], q.Tokens[2]
	f := q.First(frames.TypeToolCall)
	if f == nil || len(q.Frames) != 1 {
		return dispatch.Call{}, frames.NewError(frames.CodeBadFrame, "want exactly one TOOL_CALL in a message")
	}
	if f.Name != "" && f.Name != tool {
		return dispatch.Call{}, frames.NewError(frames.CodeBadFrame, "the frame names tool %q, the subject %q", f.Name, tool)
	}
	args, err := f.Arguments()
	if err != nil {
		return dispatch.Call{}, err
	}
	c := dispatch.Call{
		ID: f.ToolCallID, Caller: caller, Tool: tool, Arguments: args, Workspace: f.Metadata.Text("workspace"),
		Timeout: time.Duration(min(max(f.Metadata.Int("timeoutMs"), 0), frames.MaxTimeout.Milliseconds())) * time.Millisecond,
	}
	if c.ID == "" {
		c.ID = nuid.Next()
	}
	if !frames.ValidName(c.ID) {
		return dispatch.Call{}, frames.NewError(frames.CodeBadFrame, "toolCallId: want letters, digits, _ and -, at most 64")
	}
	return c, nil
}

func (r *router) start(ctx context.Context, q *bus.Request, c dispatch.Call) {
	o := &openCall{r: q, opts: []frames.Option{frames.WithCall(c.ID, c.Tool)}}
	c.OnFrame = func(f *frames.Frame) {
		g := *f
		g.ToolCallID, g.Name = c.ID, c.Tool
		r.reply(q.Send(g), q)
	}
	p, err := r.d.Prepare(ctx, c)
	if err != nil {
		r.reply(q.End(frames.EndError, frames.FailedResult(err, o.opts...)), q)
		return
	}
	r.mu.Lock()
	r.open[o] = struct{}{}
	r.mu.Unlock()
	r.d.Start(ctx, p, func(res *frames.ToolResult) { r.finish(o, res) })
}

func (r *router) finish(o *openCall, res *frames.ToolResult) {
	r.mu.Lock()
	delete(r.open, o)
	r.mu.Unlock()
	err := o.r.End(endReason(res), frames.Result(res, o.opts...))
	if e := frames.AsError(err); e != nil && e.Code == frames.CodeTooLarge {
		err = o.r.End(frames.EndError, frames.FailedResult(e, o.opts...))
	}
	r.reply(err, o.r)
}

func endReason(res *frames.ToolResult) string {
	switch {
	case res.Err == nil:
		return frames.EndCompleted
	case res.Err.Code == frames.CodeCancelled:
		return frames.EndCancelled
	}
	return frames.EndError
}

// reply logs an answer that could not be sent; there is nobody else to tell.
func (r *router) reply(err error, q *bus.Request) {
	if err != nil {
		r.log.Warn("cannot answer", "subject", q.Subject, "error", err)
	}
}

// tick keeps every open exchange alive.
func (r *router) tick(ctx context.Context) {
	t := time.NewTicker(tickEach)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, o := range r.openCalls() {
			_ = o.r.Send(frames.Tick(o.opts...)) // a tick that is lost does no harm
		}
	}
}

func (r *router) openCalls() []*openCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*openCall, 0, len(r.open))
	for o := range r.open {
		out = append(out, o)
	}
	return out
}

// control answers CANCEL of calls on wb.ctl.<caller>. Every router hears it; the
// one that runs the call acknowledges.
func (r *router) control(_ context.Context, q *bus.Request) {
	for i := range q.Frames {
		f := &q.Frames[i]
		if f.Type != frames.TypeCancel {
			continue
		}
		id := f.ToolCallID
		if id == "" {
			id, _ = f.Content.Lookup("toolCallId").Text()
		}
		if r.d.Cancel(q.Caller(), id) {
			r.reply(q.End(frames.EndCompleted, frames.Meta(map[string]any{"cancelling": id})), q)
		}
	}
}
