package llm

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/modelbus"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// tickEach is how often a request says that it goes on.
const tickEach = 5 * time.Second

// request is one that is not answered yet.
type request struct {
	id     string
	q      *bus.Request
	p      provider.Provider
	cancel context.CancelCauseFunc
}

// errGone is what ends a request that nobody waits for.
var errGone = frames.NewError(frames.CodeCancelled, "nobody waits for the answer any more")

// take begins a request; it does not block.
func (a *adapter) take(ctx context.Context, q *bus.Request, p provider.Provider) {
	req, err := modelbus.ReadRequest(p.Name(), &q.Message)
	if err != nil {
		a.reply(q.Fail(err), q)
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &request{id: nuid.Next(), q: q, p: p, cancel: cancel}
	if err := a.add(r); err != nil {
		cancel(err)
		a.reply(q.Fail(err), q)
		return
	}
	go func() {
		defer a.requests.Done()
		defer a.remove(r)
		defer cancel(nil)
		a.handle(ctx, r, req)
	}()
}

func (a *adapter) add(r *request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := a.cfg.Concurrency + a.cfg.QueueLimit; len(a.open) >= most {
		e := frames.NewError(frames.CodeBusy, "%d model requests are open already", most)
		e.Reason, e.RetryAfter = "busy", time.Second
		return e
	}
	a.open[r.id] = r
	a.requests.Add(1)
	return nil
}

func (a *adapter) remove(r *request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, r.id)
}

// handle answers one request, with a TICK each 5 s from its arrival on.
func (a *adapter) handle(ctx context.Context, r *request, req *provider.Request) {
	quiet := a.tick(r)
	err := a.answer(ctx, r, req)
	quiet()
	if err != nil {
		e := failure(ctx, err)
		a.log.Info("model request failed", "provider", r.p.Name(), "model", req.Model, "stream", req.StreamID, "error", e)
		a.reply(r.q.End(endReason(e), frames.Fail(e)), r.q)
		return
	}
	a.reply(r.q.End(frames.EndCompleted), r.q)
}

// failure gives why a request failed: what ended it comes before what the
// provider made of that.
func failure(ctx context.Context, err error) *frames.Error {
	cause := context.Cause(ctx)
	if cause == nil {
		return frames.AsError(err)
	}
	if e, ok := errors.AsType[*frames.Error](cause); ok {
		return e
	}
	return frames.NewError(frames.CodeUnavailable, "the model adapter stopped before the answer was whole: %w", cause)
}

func endReason(e *frames.Error) string {
	if e.Code == frames.CodeCancelled {
		return frames.EndCancelled
	}
	return frames.EndError
}

func (a *adapter) tick(r *request) (quiet func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(tickEach)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = r.q.Tick(func() { r.cancel(errGone) }) // one that is lost does no harm
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// answer waits for a slot and passes the model's events on.
func (a *adapter) answer(ctx context.Context, r *request, req *provider.Request) (err error) {
	if err := r.q.Send(modelbus.Accepted{Request: r.id, Identity: a.conn.Identity(), Instance: a.instance}.Frame()); err != nil {
		return err
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("provider panicked", "provider", r.p.Name(), "panic", p)
			err = frames.NewError(frames.CodeInternal, "provider %s panicked", r.p.Name())
		}
	}()
	for event, err := range r.p.Stream(ctx, req) {
		if err == nil {
			err = r.q.Send(modelbus.EventFrame(a.priced(r.p.Name()+"/"+req.Model, event)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// priced tells what a turn cost where its provider did not.
func (a *adapter) priced(model string, event provider.Event) provider.Event {
	stop, ok := event.(provider.Stop)
	price, known := a.cfg.Prices[model]
	if ok && known && stop.Usage.CostMicros == 0 {
		stop.Usage.CostMicros = price.Cost(stop.Usage)
		return stop
	}
	return event
}

// control answers on the instance's own subject: ABORT or CANCEL of a request by
// its id, and META {} as a sign of life.
func (a *adapter) control(_ context.Context, q *bus.Request) {
	for i := range q.Frames {
		switch f := &q.Frames[i]; f.Type {
		case frames.TypeAbort, frames.TypeCancel:
			a.end(q, f.StreamID)
		case frames.TypeMeta, frames.TypeDescribe:
			a.reply(q.End(frames.EndCompleted), q)
		default:
			continue
		}
		return
	}
	a.reply(q.Fail(frames.UnknownType(q.Frames[0].Type)), q)
}

func (a *adapter) end(q *bus.Request, id string) {
	a.mu.Lock()
	r := a.open[id]
	a.mu.Unlock()
	if r == nil {
		a.reply(q.End(frames.EndCompleted), q)
		return
	}
	r.cancel(frames.NewError(frames.CodeCancelled, "the model request was cancelled"))
	a.reply(q.End(frames.EndCompleted, frames.Meta(map[string]any{"cancelling": id})), q)
}

// reply logs an answer that could not be sent; there is nobody else to tell.
func (a *adapter) reply(err error, q *bus.Request) {
	if err != nil {
		a.log.Warn("cannot answer", "subject", q.Subject, "error", err)
	}
}
