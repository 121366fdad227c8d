package dispatch

import (
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// advance sends a new call, or puts it into its tool's queue.
func (d *Dispatcher) advance(r *running) {
	l, t := r.lane, d.reg.Get(r.Tool)
	l.mu.Lock()
	if r.state != queued { // cancelled already
		l.mu.Unlock()
		return
	}
	if !l.waits(r.key) {
		if a := d.place(r, t); a != nil {
			l.mu.Unlock()
			d.send(a)
			return
		}
	}
	if len(l.queue) >= d.cfg.QueueLimit {
		err := d.busy(l, t, "its queue is full")
		l.mu.Unlock()
		r.finish(failed(err))
		return
	}
	l.queue = append(l.queue, r)
	r.timer = time.AfterFunc(d.cfg.QueueWait, r.waitedTooLong)
	l.mu.Unlock()
	d.pump(l) // the tool may be gone, or an instance free, since it was looked at
}

// place reserves a slot for the call, under the lane's lock; nil where none is free.
func (d *Dispatcher) place(r *running, t *registry.Tool) *attempt {
	if t == nil {
		return nil
	}
	target, ok := r.lane.pick(r.key, t)
	if !ok {
		return nil
	}
	r.lane.take(target)
	a := &attempt{running: r, target: target, decl: t.Declaration, sentAt: time.Now()}
	a.ask = d.conn.NewAsk(a.answer)
	r.try, r.state, r.waited = a, sent, a.sentAt.Sub(r.queuedAt)
	r.setTimer(r.timeout(), a.timedOut)
	return a
}

// setTimer replaces what ends the call's present state, under the lane's lock.
func (r *running) setTimer(after time.Duration, f func()) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(after, f)
}

// pump sends every queued call that has a free instance, in order, and ends
// those that no instance serves any more.
func (d *Dispatcher) pump(l *lane) {
	l.mu.Lock()
	ready, lost := d.takeReady(l)
	l.mu.Unlock()
	for _, a := range ready {
		d.send(a)
	}
	for _, r := range lost {
		r.finish(failed(d.reg.Unserved(l.tool)))
	}
}

// takeReady takes calls out of the queue: those that have a slot now, and those
// that nobody serves. Of each key it tries until the first that has to wait.
func (d *Dispatcher) takeReady(l *lane) (ready []*attempt, lost []*running) {
	if len(l.queue) == 0 {
		return nil, nil
	}
	t := d.reg.Get(l.tool)
	full := map[string]bool{}
	kept := l.queue[:0]
	for _, r := range l.queue {
		if full[r.key] {
			kept = append(kept, r)
			continue
		}
		if a := d.place(r, t); a != nil {
			ready = append(ready, a)
			continue
		}
		if !served(t, r.key) {
			lost = append(lost, r)
			continue
		}
		full[r.key] = true
		kept = append(kept, r)
	}
	clear(l.queue[len(kept):])
	l.queue = kept
	return ready, lost
}

func served(t *registry.Tool, key string) bool {
	if t == nil {
		return false
	}
	for i := range t.Instances {
		if owns(&t.Instances[i], key) {
			return true
		}
	}
	return false
}

func owns(s *registry.Served, key string) bool { return key == "" || s.Owns(key) }

// send publishes a call that has its slot. One that was stopped by now is not
// sent; where it is stopped meanwhile, CANCEL goes out behind it once more.
func (d *Dispatcher) send(a *attempt) {
	if why := a.stoppedBefore(); why != nil {
		a.end(failed(unstarted(why)))
		return
	}
	data, err := a.encode()
	if err == nil {
		err = a.ask.Send(d.subject(a), data, a.trace)
	}
	switch {
	case err != nil:
		a.end(failed(err))
	case a.stoppedBefore() != nil:
		d.sendCancel(a)
	}
}

// stoppedBefore says why the call is not to run any more; nil where it is.
func (a *attempt) stoppedBefore() *frames.Error {
	a.lane.mu.Lock()
	defer a.lane.mu.Unlock()
	return a.stopped
}

func (d *Dispatcher) subject(a *attempt) string {
	if to := a.target; to.Announced() {
		return d.conn.InstTool(to.Identity, to.ID, a.Tool)
	}
	return d.conn.Tool(a.Tool)
}

func (a *attempt) encode() ([]byte, error) {
	f := frames.Call(a.Tool, a.Arguments, frames.WithCall(a.ID, a.Tool))
	f.Metadata = make(frames.Fields, 0, 5)
	set := func(key string, v any) {
		f.Metadata = append(f.Metadata, frames.Field{Key: key, Value: frames.Value(v)})
	}
	set("caller", a.Caller)
	set("timeoutMs", a.timeout().Milliseconds())
	if a.SessionID != "" {
		set("sessionId", a.SessionID)
	}
	if a.key != "" {
		set("workspace", a.key)
	}
	if a.Depth > 0 {
		set("depth", a.Depth)
	}
	return frames.Encode(a.decl.Encoding(), &f)
}

func (r *running) timeout() time.Duration {
	t := r.Declaration.Timeout()
	if r.Timeout > 0 && r.Timeout < t {
		return r.Timeout
	}
	return t
}

// elsewhere tries another instance after this one refused the call.
func (a *attempt) elsewhere(why *frames.Error) {
	r, l := a.running, a.lane
	l.mu.Lock()
	if !a.current() || a.state != sent {
		if a.stopped != nil {
			why = unstarted(a.stopped)
		}
		l.mu.Unlock()
		a.end(failed(why))
		return
	}
	a.letGo()
	l.rest(a.target, func() { a.d.forgive(l) })
	r.try, r.state, r.waited = nil, queued, 0
	l.queue = append(l.queue, nil)
	copy(l.queue[1:], l.queue)
	l.queue[0] = r
	r.setTimer(max(a.d.cfg.QueueWait-time.Since(r.queuedAt), 0), r.waitedTooLong)
	l.mu.Unlock()
	if why.Reason == "draining" && a.target.Announced() {
		a.d.reg.Drained(a.target)
	}
	a.d.pump(l)
}

// forgive lets the calls of a lane try the instances that refused some again.
func (d *Dispatcher) forgive(l *lane) {
	l.mu.Lock()
	l.wake()
	l.mu.Unlock()
	d.pump(l)
}

func (r *running) waitedTooLong() {
	l, t := r.lane, r.d.reg.Get(r.Tool)
	l.mu.Lock()
	if r.state != queued {
		l.mu.Unlock()
		return
	}
	l.dequeue(r)
	err := r.d.busy(l, t, "no instance became free")
	l.mu.Unlock()
	r.finish(failed(err))
}

// busy is what a call gets that could not be placed; the estimate is the time
// that the calls before it need. Under the lane's lock.
func (d *Dispatcher) busy(l *lane, t *registry.Tool, why string) *frames.Error {
	const least = 100 * time.Millisecond
	after := min(max(l.estimate(t), least), d.cfg.QueueWait)
	return frames.Busy(l.tool, after).With(func(e *frames.Error) {
		e.Reason, e.Message = "busy", e.Message+": "+why
	})
}
