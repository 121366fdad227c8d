package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// cancel ends the call: one that has no attempt under way at once, another when
// its tool says its last word or after a grace. The first cause counts.
func (r *running) cancel(cause error) {
	err := r.why(cause)
	r.hooks.stop(err)
	l := r.lane
	l.mu.Lock()
	if r.state == finished || r.stopped != nil {
		l.mu.Unlock()
		return
	}
	r.stopped = err
	if a := r.try; a != nil {
		told := a.phase == runs
		if told {
			a.phase = cancelling
			a.setTimer(r.d.cfg.CancelGrace, func() { a.giveUp(err) })
		}
		l.mu.Unlock()
		if told {
			r.d.sendCancel(a)
		}
		return
	}
	if r.state == queued {
		l.dequeue(r)
		r.waited += time.Since(r.queuedAt)
	}
	r.leave()
	l.mu.Unlock()
	r.deliver(failed(unstarted(err)))
}

// why gives the error of a call that was cancelled for a cause.
func (r *running) why(cause error) *frames.Error {
	if e, ok := errors.AsType[*frames.Error](cause); ok {
		return e
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return frames.Timeout(r.Tool, time.Since(r.opened)).WithReplay(r.Declaration.ReplaySafe())
	}
	return frames.Cancelled(r.Tool)
}

// giveUp ends the wait for an attempt: its tool is told to stop, and its slot is
// held until it does.
func (a *attempt) giveUp(err *frames.Error) {
	l := a.lane
	l.mu.Lock()
	if a.phase != runs && a.phase != cancelling {
		l.mu.Unlock()
		return
	}
	told := a.phase == cancelling
	a.phase = abandoned
	a.setTimer(holdSlot, func() { a.end(nil) })
	l.mu.Unlock()
	if !told {
		a.d.sendCancel(a)
	}
	a.settle(failed(started(err)))
}

func (d *Dispatcher) sendCancel(a *attempt) {
	subject := d.conn.CtlTool(a.Tool)
	if to := a.target; to.Announced() {
		subject = d.conn.Inst(to.Identity, to.ID)
	}
	opts := []frames.Option{frames.WithMeta("caller", a.Caller)}
	if a.Declaration.Retries > 0 { // the next attempt has the same id
		opts = append(opts, frames.WithMeta("attempt", a.index))
	}
	f := frames.Cancel(a.ID, a.Tool, opts...)
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
	if a.phase == over {
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

// end closes the tool's exchange: the slot is free, and the result is the
// call's if that waits for one. nil is none.
func (a *attempt) end(res *frames.ToolResult) {
	r, l := a.running, a.lane
	l.mu.Lock()
	if a.phase == over {
		l.mu.Unlock()
		return
	}
	a.letGo()
	l.pace.measure(time.Since(a.startedAt))
	l.mu.Unlock()
	if res != nil {
		a.settle(res)
	}
	r.d.pump(l)
}

// letGo hears no more answers and gives the slot back, under the lane's lock.
func (a *attempt) letGo() {
	a.phase = over
	a.timer.Stop()
	if a.orphan != nil {
		a.orphan.Stop()
	}
	a.ask.Stop()
	a.lane.release(a)
}

// finish ends a call that waits, and is out of the queue, with the result of its
// attempt before, else with err.
func (r *running) finish(err *frames.Error) {
	l := r.lane
	l.mu.Lock()
	if r.state != queued {
		l.mu.Unlock()
		return
	}
	r.leave()
	r.waited += time.Since(r.queuedAt)
	res := r.last
	if res == nil {
		res = failed(err)
	}
	l.mu.Unlock()
	r.deliver(res)
}

// stamp writes what is known of the attempt on its result.
func (a *attempt) stamp(res *frames.ToolResult) {
	res.Instance = ""
	if a.target.Announced() {
		res.Instance = a.target.ID
	}
	if took := time.Since(a.startedAt); res.Duration <= 0 || res.Duration > took {
		res.Duration = took
	}
	res.Attempts = min(max(res.Attempts, a.index+1), frames.MaxRetries+1)
}

// deliver gives the one result to the caller.
func (r *running) deliver(res *frames.ToolResult) {
	res.Queue = r.waited
	if len(r.Repairs) > 0 {
		res.Metadata.Set(repairsKey, frames.Value(r.Repairs))
	}
	if res.Err != nil {
		res.Err = counted(res.Err, res.Attempts)
		if r.acted && res.Err.Effect == frames.EffectNone {
			res.Err = started(res.Err)
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
