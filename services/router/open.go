package router

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// tickEach is how often an open exchange says that it goes on.
	tickEach = 5 * time.Second
	// maxAbsent is how many TICKs in a row nobody may have heard before the
	// caller counts as gone: it had time to connect again.
	maxAbsent = 2
	// resendEach and resendFor: an answer is sent again while there is no
	// connection, for as long as the caller waits.
	resendEach = 250 * time.Millisecond
	resendFor  = bus.SilenceLimit
)

// openCall is a client's call that has no result yet.
type openCall struct {
	r    *router
	q    *bus.Request
	call dispatch.Call
	opts []frames.Option
	// repairs names what was done to the arguments.
	repairs []string

	unheard atomic.Bool // nobody listened for the last TICK
	absent  int         // TICKs in a row that nobody heard; of the ticking goroutine
}

func (r *router) newOpen(q *bus.Request, c dispatch.Call) *openCall {
	return &openCall{r: r, q: q, call: c, opts: []frames.Option{frames.WithCall(c.ID, c.Tool)}}
}

// relay passes on what the running tool says. The router sends TICK itself.
func (o *openCall) relay(f *frames.Frame) {
	if f.Type == frames.TypeTick {
		return
	}
	g := *f
	g.ToolCallID, g.Name = o.call.ID, o.call.Tool
	o.r.sent(o.q.Send(g), o.q)
}

// finish answers the call.
func (o *openCall) finish(res *frames.ToolResult) {
	o.r.mu.Lock()
	delete(o.r.open, o)
	o.r.mu.Unlock()
	err := o.answer(res)
	if frames.CodeOf(err) == frames.CodeUnavailable {
		o.r.resending.Go(func() { o.again(res) })
		return
	}
	o.r.sent(err, o.q)
}

// answer sends the result; where that cannot travel, why it cannot.
func (o *openCall) answer(res *frames.ToolResult) error {
	var out []frames.Frame
	if len(o.repairs) > 0 {
		out = append(out, frames.Meta(map[string]any{"repairs": o.repairs}, o.opts...))
	}
	err := o.q.End(endReason(res), append(out, frames.Result(res, o.opts...))...)
	bad := frames.AsError(err)
	if bad == nil {
		return nil
	}
	switch bad.Code {
	case frames.CodeTooLarge:
	case frames.CodeBadFrame: // a number without a form in JSON
		bad = bad.With(func(e *frames.Error) { e.Code = frames.CodeValidationOutput })
	default:
		return err
	}
	bad = bad.With(func(e *frames.Error) { e.Effect = frames.EffectDone })
	return o.q.End(frames.EndError, frames.FailedResult(bad, o.opts...))
}

// again sends the answer when there is a connection again.
func (o *openCall) again(res *frames.ToolResult) {
	each, limit := time.NewTicker(resendEach), time.NewTimer(resendFor)
	defer each.Stop()
	defer limit.Stop()
	for {
		over := false
		select {
		case <-each.C:
		case <-limit.C:
			over = true
		case <-o.r.over:
			over = true
		}
		err := o.answer(res)
		if over || frames.CodeOf(err) != frames.CodeUnavailable {
			o.r.sent(err, o.q)
			return
		}
	}
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
			o.tick()
		}
		r.expireStreams()
	}
}

// tick says that the call goes on. One whose caller has not listened for a while
// is cancelled: nobody would hear its result.
func (o *openCall) tick() {
	if !o.unheard.Swap(false) {
		o.absent = 0
	} else if o.absent++; o.absent == maxAbsent {
		o.r.log.Info("the caller is gone", "caller", o.call.Caller, "tool", o.call.Tool, "call_id", o.call.ID)
		o.r.d.Cancel(o.call.Caller, o.call.ID)
		return
	}
	_ = o.q.Tick(func() { o.unheard.Store(true) }) // a TICK that is lost does no harm
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
