package router

import (
	"context"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// call answers wb.call.<caller>.<tool>. A tool that is not known to be served is
// looked for on a goroutine of its own: that may take a moment, in which the
// workers have others to answer.
func (r *router) call(ctx context.Context, q *bus.Request) {
	c, err := callFrom(q)
	switch {
	case err != nil:
		r.refuse(q, c, err)
	case r.d.Ready(c.Tool):
		r.start(ctx, q, c)
	default:
		r.looking.Go(func() { r.start(ctx, q, c) })
	}
}

// callFrom reads the one TOOL_CALL of a message; the subject says who calls
// what. Beside an error stands what could be read.
func callFrom(q *bus.Request) (dispatch.Call, error) {
	c := dispatch.Call{Caller: q.Tokens[1], Tool: q.Tokens[2]}
	f, err := onlyCall(q)
	if err != nil {
		return c, err
	}
	if c.ID = f.ToolCallID; c.ID == "" {
		c.ID = nuid.Next()
	}
	switch {
	case !frames.ValidName(c.ID):
		c.ID = ""
		return c, badCall("toolCallId: want 1 to 64 letters, digits, _ or -")
	case f.Name != "" && f.Name != c.Tool:
		return c, badCall("the frame names tool %.80q, the subject %q", f.Name, c.Tool)
	case f.Metadata.Bool("streaming"):
		return c, badCall("streamed arguments are not taken: send the whole call")
	}
	c.Arguments, err = f.Arguments()
	c.Workspace = f.Metadata.Text("workspace")
	c.Depth = int(f.Metadata.Int("depth"))
	c.Timeout = time.Duration(min(max(f.Metadata.Int("timeoutMs"), 0), frames.MaxTimeout.Milliseconds())) * time.Millisecond
	return c, err
}

func onlyCall(q *bus.Request) (*frames.Frame, error) {
	f := q.First(frames.TypeToolCall)
	if f == nil {
		return nil, frames.UnknownType(q.Frames[0].Type)
	}
	for i := range q.Frames {
		if g := &q.Frames[i]; g.Type == frames.TypeToolCall && g != f {
			return nil, badCall("more than one TOOL_CALL in a message")
		}
	}
	return f, nil
}

func badCall(format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeBadFrame, format, args...)
}

// refuse answers a call that does not start.
func (r *router) refuse(q *bus.Request, c dispatch.Call, err error) {
	r.newOpen(q, c).finish(&frames.ToolResult{Err: frames.AsError(err)})
}

func (r *router) start(ctx context.Context, q *bus.Request, c dispatch.Call) {
	o := r.newOpen(q, c)
	c.OnFrame = o.relay
	c.Arguments = r.ownArguments(ctx, q, &c)
	p, err := r.d.Prepare(ctx, c)
	if err != nil {
		r.refuse(q, c, err)
		return
	}
	r.mu.Lock()
	r.open[o] = struct{}{}
	r.mu.Unlock()
	r.d.Start(ctx, p, o.finish)
}

// control answers CANCEL of calls on wb.ctl.<caller>. Every router hears it; the
// one that runs the call acknowledges.
func (r *router) control(_ context.Context, q *bus.Request) {
	known := false
	var acks []frames.Frame
	for i := range q.Frames {
		f := &q.Frames[i]
		known = known || f.Type == frames.TypeCancel || f.Type == frames.TypeAbort // ABORT is for loops
		if f.Type != frames.TypeCancel {
			continue
		}
		id := f.ToolCallID
		if id == "" {
			id, _ = f.Content.Lookup("toolCallId").Text()
		}
		if r.d.Cancel(q.Caller(), id) {
			acks = append(acks, frames.Meta(map[string]any{"cancelling": id}))
		}
	}
	switch {
	case !known:
		r.sent(q.Fail(frames.UnknownType(q.Frames[0].Type)), q)
	case len(acks) > 0:
		r.sent(q.End(frames.EndCompleted, acks...), q)
	}
}

// sent logs an answer that could not be sent; there is nobody else to tell.
func (r *router) sent(err error, q *bus.Request) {
	if err != nil {
		r.log.Warn("cannot answer", "subject", q.Subject, "error", err)
	}
}
