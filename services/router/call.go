package router

import (
	"bytes"
	"context"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// call answers wb.call.<caller>.<tool>. A tool that is not known to be served is
// looked for on a goroutine of its own: that may take a moment, in which the
// workers have others to answer.
func (r *router) call(ctx context.Context, q *bus.Request) {
	c, f, err := callFrom(q)
	switch {
	case err != nil:
		r.refuse(q, c, err)
	case r.streams.has(c.Caller, c.ID):
		r.refuse(q, c, frames.NewError(frames.CodeConflict, "call %s is open already: its arguments come in pieces", c.ID))
	case f.Metadata.Bool("streaming"):
		r.openStream(q, c, f.StreamID)
	case r.d.Ready(c.Tool):
		r.start(ctx, q, c)
	default:
		r.looking.Go(func() { r.start(ctx, q, c) })
	}
}

// callFrom reads the one TOOL_CALL of a message; the subject says who calls
// what. Beside an error stands what could be read.
func callFrom(q *bus.Request) (dispatch.Call, *frames.Frame, error) {
	c := dispatch.Call{Caller: q.Tokens[1], Tool: q.Tokens[2]}
	f, err := onlyCall(q)
	if err != nil {
		return c, nil, err
	}
	if c.ID = f.ToolCallID; f.Metadata.Bool("streaming") {
		c.ID = frames.StreamedCallID(f)
	}
	if c.ID == "" {
		c.ID = nuid.Next()
	}
	switch {
	case !frames.ValidName(c.ID):
		c.ID = ""
		return c, nil, badCall("toolCallId: want 1 to 64 letters, digits, _ or -")
	case f.Name != "" && f.Name != c.Tool:
		return c, nil, badCall("the frame names tool %.80q, the subject %q", f.Name, c.Tool)
	}
	if cut, _ := cutOff(f); cut != "" {
		return c, nil, argstream.CutOff(c.Tool, cut)
	}
	c.Workspace = f.Metadata.Text("workspace")
	c.Depth = int(f.Metadata.Int("depth"))
	c.Timeout = time.Duration(min(max(f.Metadata.Int("timeoutMs"), 0), frames.MaxTimeout.Milliseconds())) * time.Millisecond
	if err := readExport(&c, f.Metadata.Get("exported")); err != nil {
		return c, nil, err
	}
	return c, f, readArguments(&c, f)
}

// readArguments takes the argument text of a call. One whose arguments come in
// pieces has none of its own.
func readArguments(c *dispatch.Call, f *frames.Frame) error {
	args, err := f.Arguments()
	if text, isText := f.Content.Lookup("argumentsJson").Bytes(); isText {
		args, err = text, nil // as it came: what is wrong with it is told with the place
	}
	switch blank := bytes.TrimSpace(args); {
	case err != nil:
		return err
	case !f.Metadata.Bool("streaming"):
		c.Arguments = args
	case len(blank) > 0 && string(blank) != "{}":
		return badCall("the arguments of a streamed call come in pieces: leave the content of the TOOL_CALL empty")
	}
	return nil
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
	r.mu.Lock()
	r.open[o] = struct{}{} // hooks may take their time
	r.mu.Unlock()
	p, err := r.d.Prepare(ctx, c)
	if err != nil {
		o.finish(&frames.ToolResult{Err: frames.AsError(err)})
		return
	}
	o.repairs = p.Repairs
	r.d.Start(ctx, p, o.finish)
}

// control answers CANCEL of calls on wb.ctl.<caller>. Every router hears it; the
// one that runs the call acknowledges.
func (r *router) control(_ context.Context, q *bus.Request) {
	if err := q.CheckControl(); err != nil {
		r.sent(q.Fail(err), q)
		return
	}
	var acks []frames.Frame
	for i := range q.Frames {
		f := &q.Frames[i]
		if f.Type != frames.TypeCancel { // ABORT is for loops
			continue
		}
		id := f.ToolCallID
		if r.d.Cancel(q.Caller(), id) || r.cancelStream(q.Caller(), id) {
			acks = append(acks, frames.Meta(map[string]any{"cancelling": id}))
		}
	}
	if len(acks) > 0 {
		r.sent(q.End(frames.EndCompleted, acks...), q)
	}
}

// cancelStream stops a call whose arguments still come.
func (r *router) cancelStream(caller, id string) bool {
	k := argstream.Key{Owner: caller, Call: id}
	return r.streams.fail(k, unstarted(r.streams.tool(k)))
}

func unstarted(tool string) *frames.Error {
	return frames.Cancelled(tool).WithEffect(frames.EffectNone)
}

// sent logs an answer that could not be sent; there is nobody else to tell.
func (r *router) sent(err error, q *bus.Request) {
	if err != nil {
		r.log.Warn("cannot answer", "subject", q.Subject, "error", err)
	}
}
