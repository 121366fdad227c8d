package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

const (
	// ownWorkers is how many calls of one own tool run at once in a process.
	ownWorkers = 16
	// ownKnown is how many call ids are remembered, against a call that comes again.
	ownKnown = 4096
	// answerPause and answerLimit: a result is sent again while nobody stores it.
	answerPause = 250 * time.Millisecond
	answerLimit = 30 * time.Second
)

// ServeTools serves tools of the client's own to the session, for as long as ctx
// lasts, and declares them to it (PARAM tool): the model may call them, the calls run
// in this process, and their results go into the session's record. A tool of the mesh
// of the same name is not called any more. Of several processes that serve a session
// one gets each call. Handlers end by their context when the call times out, when
// its turn is cancelled and when ctx ends; what they put out is not shown.
//
// The session need not have started; what it says against a declaration is an ERROR
// on the session, as for any input. The tools are known from the next turn on.
func (s *Session) ServeTools(ctx context.Context, tools *tool.Set) error {
	o := &own{s: s, tools: tools, running: map[string]context.CancelCauseFunc{}, known: map[string]bool{}}
	var declared []frames.Frame
	for _, d := range tools.Declarations() {
		if err := o.listen(ctx, d.Name); err != nil {
			return errors.Join(err, o.close())
		}
		declared = append(declared, frames.Param("tool", d.Raw()))
	}
	if len(declared) == 0 {
		return frames.NewError(frames.CodeValidationInput, "the set has no tool to serve")
	}
	err := o.watch()
	if err == nil {
		err = s.c.conn.Flush(ctx)
	}
	if err == nil {
		_, err = s.Send(ctx, declared...)
	}
	if err != nil {
		return errors.Join(err, o.close())
	}
	context.AfterFunc(ctx, func() { _ = o.close() }) // the subscriptions end with the connection at the latest
	return nil
}

// own serves a session's own tools.
type own struct {
	s     *Session
	tools *tool.Set
	subs  []*nats.Subscription

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc
	known   map[string]bool
	order   []string // of known, oldest first
}

// listen takes the calls of a tool. The session's id is the queue group: processes of
// other sessions hear the call too, and leave it.
func (o *own) listen(ctx context.Context, name string) error {
	conn := o.s.c.conn
	slots := make(chan struct{}, ownWorkers)
	sub, err := conn.NATS().QueueSubscribe(conn.Own(conn.Identity(), name), o.s.ID, func(m *nats.Msg) {
		f := o.call(m.Data)
		if f == nil {
			return
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			o.run(bus.WithTrace(ctx, m.Header), f)
		}()
	})
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot serve tool %s: %w", name, err)
	}
	o.subs = append(o.subs, sub)
	return nil
}

// call reads a call of this session that was not heard before.
func (o *own) call(data []byte) *frames.Frame {
	m, err := frames.Decode(data)
	if err != nil || len(m.Frames) == 0 {
		return nil
	}
	f := &m.Frames[0]
	if f.Type != frames.TypeToolCall || f.Metadata.Text("sessionId") != o.s.ID || !o.remember(f.ToolCallID) {
		return nil
	}
	return f
}

func (o *own) remember(id string) (isNew bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id == "" || o.known[id] {
		return false
	}
	o.known[id] = true
	if o.order = append(o.order, id); len(o.order) > ownKnown {
		delete(o.known, o.order[0])
		o.order = o.order[1:]
	}
	return true
}

func (o *own) run(ctx context.Context, f *frames.Frame) {
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.mu.Lock()
	o.running[f.ToolCallID] = cancel
	o.mu.Unlock()
	res := o.tools.Run(running, f)
	o.mu.Lock()
	_, open := o.running[f.ToolCallID]
	delete(o.running, f.ToolCallID)
	o.mu.Unlock()
	timedOut := res.Err != nil && res.Err.Code == frames.CodeTimeout // which the session says itself
	if open && !timedOut {                                           // else it has another result
		o.answer(context.WithoutCancel(ctx), f, res)
	}
}

// answer stores the result as the session's input. The frame's id is made of the
// call's, so that one that is sent twice counts once.
func (o *own) answer(ctx context.Context, f *frames.Frame, res *frames.ToolResult) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	out := frames.Result(res, frames.WithCall(f.ToolCallID, f.Name), frames.WithID("result-"+f.ToolCallID))
	for {
		_, err := o.s.Send(ctx, out)
		switch code := frames.CodeOf(err); {
		case code == frames.CodeTooLarge:
			e := frames.AsError(err).With(func(e *frames.Error) { e.Effect = frames.EffectDone })
			out = frames.FailedResult(e, frames.WithCall(f.ToolCallID, f.Name), frames.WithID("failed-"+f.ToolCallID))
		case err == nil, ctx.Err() != nil, code != frames.CodeUnavailable && code != frames.CodeBusy:
			return // what is lost times out
		default:
			_ = pause.For(ctx, answerPause) // an end is seen by the next Send
		}
	}
}

// watch hears of results that the session has of calls that run here.
func (o *own) watch() error {
	conn := o.s.c.conn
	sub, err := conn.NATS().Subscribe(conn.Out(conn.Identity(), o.s.ID), func(m *nats.Msg) {
		msg, err := frames.Decode(m.Data)
		if err != nil {
			return // not ours
		}
		for i := range msg.Frames {
			if f := &msg.Frames[i]; f.Type == frames.TypeToolResult && f.Entry > 0 {
				o.settled(f)
			}
		}
	})
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot read the session: %w", err)
	}
	o.subs = append(o.subs, sub)
	return nil
}

// settled ends a call that has its result: a time-out, or a cancel.
func (o *own) settled(f *frames.Frame) {
	o.mu.Lock()
	cancel := o.running[f.ToolCallID]
	delete(o.running, f.ToolCallID)
	o.mu.Unlock()
	if cancel == nil {
		return
	}
	if res, err := f.Result(); err == nil && res.Err != nil {
		cancel(res.Err)
		return
	}
	cancel(frames.Cancelled(f.Name))
}

func (o *own) close() error {
	var errs []error
	for _, sub := range o.subs {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
