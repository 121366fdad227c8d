package dispatch

import (
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// advance sends a call, or puts it into its tool's queue.
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
		r.finish(err)
		return
	}
	l.queue = append(l.queue, r)
	r.wait(r.waitLeft(r.queuedAt), r.waitedTooLong)
	l.mu.Unlock()
	d.pump(l) // the tool may be gone, or an instance free, since it was looked at
}

// place reserves a slot for the call, under the lane's lock; nil where none is free.
func (d *Dispatcher) place(r *running, t *registry.Tool) *attempt {
	if t == nil || r.lock != "" && r.lane.locked(r.lock) {
		return nil
	}
	target, ahead, ok := r.lane.pick(r.key, t)
	if !ok {
		return nil
	}
	now := time.Now()
	if r.attempts == 0 {
		r.begun = now
	}
	a := &attempt{
		running: r, index: r.attempts, target: target, decl: t.Declaration,
		sentAt: now, startedAt: now, ahead: ahead, waits: ahead, before: r.waited, limit: r.limit(now),
	}
	r.lane.take(a)
	a.ask = d.conn.NewAsk(a.answer)
	r.try, r.state = a, sent
	r.attempts++
	r.waited += now.Sub(r.queuedAt)
	if r.waiting != nil {
		r.waiting.Stop()
	}
	a.timer = time.AfterFunc(a.left(now), a.due)
	return a
}

// wait replaces what ends the call's present wait, under the lane's lock.
func (r *running) wait(after time.Duration, f func()) {
	if r.waiting != nil {
		r.waiting.Stop()
	}
	r.waiting = time.AfterFunc(after, f)
}

// setTimer replaces what ends the attempt's present phase, under the lane's lock.
func (a *attempt) setTimer(after time.Duration, f func()) {
	a.timer.Stop()
	a.timer = time.AfterFunc(after, f)
}

// waitLeft is how long a call may still wait for an instance.
func (r *running) waitLeft(now time.Time) time.Duration {
	left := r.d.cfg.QueueWait - now.Sub(r.queuedAt)
	if r.attempts > 0 {
		left = min(left, r.budget(now))
	}
	return max(left, 0)
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
		r.finish(d.reg.Unserved(l.tool))
	}
}

// takeReady takes calls out of the queue: those that have a slot now, and those
// that nobody serves. Of each key, and of each lock, it tries until the first
// that has to wait.
func (d *Dispatcher) takeReady(l *lane) (ready []*attempt, lost []*running) {
	if len(l.queue) == 0 {
		return nil, nil
	}
	t := d.reg.Get(l.tool)
	full, locked := map[string]bool{}, map[string]bool{}
	kept := l.queue[:0]
	for _, r := range l.queue {
		if full[r.key] || r.lock != "" && locked[r.lock] {
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
		if r.lock != "" && l.locked(r.lock) {
			locked[r.lock] = true
		} else {
			full[r.key] = true
		}
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
	if phase, why := a.standing(); phase != runs {
		a.end(failed(unstarted(why)))
		return
	}
	data, err := a.encode()
	if err == nil {
		err = a.ask.Send(d.subject(a), data, a.trace)
	}
	if err != nil {
		a.end(failed(err))
		return
	}
	if phase, _ := a.standing(); phase == cancelling || phase == abandoned {
		d.sendCancel(a)
	}
}

// standing gives the attempt's phase, and why its call was stopped; nil where it
// was not.
func (a *attempt) standing() (phase, *frames.Error) {
	a.lane.mu.Lock()
	defer a.lane.mu.Unlock()
	return a.phase, a.stopped
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
	set("timeoutMs", a.limit.Milliseconds())
	if a.SessionID != "" {
		set("sessionId", a.SessionID)
	}
	if a.key != "" {
		set("workspace", a.key)
	}
	if a.Depth > 0 {
		set("depth", a.Depth)
	}
	if a.index > 0 {
		set("attempt", a.index)
	}
	if a.ahead {
		set("ahead", true)
	}
	return frames.Encode(a.decl.Encoding(), &f)
}

// elsewhere tries another instance after this one refused the call, which is no
// attempt of it.
func (a *attempt) elsewhere(why *frames.Error) {
	r, l := a.running, a.lane
	l.mu.Lock()
	if a.phase != runs {
		if r.stopped != nil {
			why = unstarted(r.stopped)
		}
		l.mu.Unlock()
		a.end(failed(why))
		return
	}
	a.letGo()
	r.try, r.state = nil, queued
	r.attempts--
	r.waited = a.before
	if a.ahead {
		l.notAhead = time.Now().Add(aheadPause)
	}
	if !a.waits {
		l.rest(a.target, func() { a.d.forgive(l) })
	}
	l.queue = append(l.queue, nil)
	copy(l.queue[1:], l.queue)
	l.queue[0] = r
	r.wait(r.waitLeft(time.Now()), r.waitedTooLong)
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
	r.finish(err)
}

// busy is what a call gets that could not be placed; the estimate is the time
// that the calls before it need. Under the lane's lock.
func (d *Dispatcher) busy(l *lane, t *registry.Tool, why string) *frames.Error {
	const least = 100 * time.Millisecond
	after := min(max(l.estimate(t, time.Now()), least), d.cfg.QueueWait)
	return frames.Busy(l.tool, after).With(func(e *frames.Error) {
		e.Reason, e.Message = "busy", e.Message+": "+why
	})
}
