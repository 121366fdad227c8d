package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// timedOut answers at once and sends CANCEL beside it.
func (a *attempt) timedOut() {
	a.stop(frames.Timeout(a.Tool, a.timeout()).WithReplay(a.Declaration.ReplaySafe()), 0)
}

// cancel ends the call: a queued one at once, a running one when the tool says
// its last word or after a grace.
func (r *running) cancel(cause error) {
	err := frames.Cancelled(r.Tool)
	if e, ok := errors.AsType[*frames.Error](cause); ok {
		err = e
	} else if errors.Is(cause, context.DeadlineExceeded) {
		err = frames.Timeout(r.Tool, time.Since(r.queuedAt)).WithReplay(r.Declaration.ReplaySafe())
	}
	r.hooks.stop(err)
	r.lane.mu.Lock()
	a := r.try
	if r.state == queued {
		r.lane.dequeue(r)
	}
	r.lane.mu.Unlock()
	if a != nil {
		a.stop(err, r.d.cfg.CancelGrace)
		return
	}
	r.finish(failed(unstarted(err)))
}

// stop ends an attempt with err: when its tool says its last word, but after
// grace in any case.
func (a *attempt) stop(err *frames.Error, grace time.Duration) {
	l := a.lane
	l.mu.Lock()
	first := a.state == sent
	if !a.current() || (!first && (a.state != cancelling || grace > 0)) {
		l.mu.Unlock()
		return
	}
	a.stopped = err
	if grace > 0 {
		a.state = cancelling
		a.setTimer(grace, func() { a.stop(err, 0) })
		l.mu.Unlock()
		a.d.sendCancel(a)
		return
	}
	a.state = abandoned
	a.setTimer(holdSlot, func() { a.end(nil) })
	l.mu.Unlock()
	if first {
		a.d.sendCancel(a)
	}
	a.deliver(failed(started(err)), a)
}

func (d *Dispatcher) sendCancel(a *attempt) {
	subject := d.conn.CtlTool(a.Tool)
	if to := a.target; to.Announced() {
		subject = d.conn.Inst(to.Identity, to.ID)
	}
	f := frames.Cancel(a.ID, a.Tool, frames.WithMeta("caller", a.Caller))
	if err := d.conn.Publish(context.Background(), subject, a.decl.Encoding(), &f); err != nil {
		d.cfg.Log.Warn("cannot send CANCEL", "tool", a.Tool, "call_id", a.ID, "error", err)
	}
}

// orphaned gives the call up that runs on an instance that is gone, when nothing
// can be under way from there any more: a dead one is silent at once, one that was
// only silent itself may still send what its calls say.
func (a *attempt) orphaned(dead bool) {
	a.lane.mu.Lock()
	defer a.lane.mu.Unlock()
	if !a.current() {
		return
	}
	if a.orphan != nil {
		a.orphan.Stop()
	}
	a.orphan = time.AfterFunc(a.patience(dead), func() { a.interrupt(dead) })
}

// patience is how long an instance that is gone may still be heard of, under the
// lane's lock.
func (a *attempt) patience(dead bool) time.Duration {
	if dead || a.heard.IsZero() {
		return goneGrace
	}
	return max(goneGrace, registry.AliveLimit-time.Since(a.heard))
}

// interrupt ends the call whose instance is gone, unless something was heard
// from it since, or it is back: then it looks again later.
func (a *attempt) interrupt(dead bool) {
	a.lane.mu.Lock()
	again := a.patience(dead) > goneGrace
	a.lane.mu.Unlock()
	if again || a.d.reg.Has(a.target) {
		a.orphaned(false)
		return
	}
	a.end(failed(a.interrupted()))
}

// end closes the tool's exchange: the slot is free, and the result goes to the
// caller unless it was answered before.
func (a *attempt) end(res *frames.ToolResult) {
	r, l := a.running, a.lane
	l.mu.Lock()
	if !a.current() {
		l.mu.Unlock()
		return
	}
	answered := r.state == abandoned
	r.state = finished
	r.timer.Stop()
	a.letGo()
	l.measure(time.Since(a.sentAt))
	delete(l.calls, r)
	l.mu.Unlock()
	if !answered {
		r.deliver(res, a)
	}
	r.d.pump(l)
}

// letGo hears no more answers and gives the slot back, under the lane's lock.
func (a *attempt) letGo() {
	if a.orphan != nil {
		a.orphan.Stop()
	}
	a.ask.Stop()
	a.lane.release(a.target)
}

// finish ends a call that waits, and is out of the queue.
func (r *running) finish(res *frames.ToolResult) {
	l := r.lane
	l.mu.Lock()
	waited := r.state == queued
	if waited {
		r.state = finished
		delete(l.calls, r)
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	l.mu.Unlock()
	if waited {
		r.deliver(res, nil)
	}
}

// deliver gives the one result to the caller, with what is known of the attempt
// that it comes from, if any.
func (r *running) deliver(res *frames.ToolResult, a *attempt) {
	res.Queue = r.waited
	if a != nil {
		res.Attempts = max(res.Attempts, 1)
		if a.target.Announced() {
			res.Instance = a.target.ID
		}
		if res.Duration == 0 {
			res.Duration = time.Since(a.sentAt)
		}
	}
	if r.hooked != nil {
		go r.afterwards(res) // takes time that the connection's other answers do not have
		return
	}
	r.conclude(res)
}

func (r *running) conclude(res *frames.ToolResult) {
	r.telling.Lock()
	r.told = true
	r.telling.Unlock()
	r.d.forget(r)
	r.done(res)
	r.d.told()
}

func failed(err error) *frames.ToolResult { return &frames.ToolResult{Err: frames.AsError(err)} }
