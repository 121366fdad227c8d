package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// advance sends a new call, or puts it into its tool's queue.
func (d *Dispatcher) advance(r *running) {
	l := r.lane
	l.mu.Lock()
	if len(l.queue) == 0 && d.place(r) {
		l.mu.Unlock()
		d.send(r)
		return
	}
	if len(l.queue) >= d.cfg.QueueLimit {
		l.mu.Unlock()
		r.finish(failed(d.busy(r, "its queue is full")))
		return
	}
	l.enqueue(r, false)
	r.timer = time.AfterFunc(d.cfg.QueueWait, func() { r.waitedTooLong() })
	l.mu.Unlock()
	d.pump(l)
}

// place reserves a slot for the call, under the lane's lock.
func (d *Dispatcher) place(r *running) bool {
	t := d.reg.Get(r.Tool)
	if t == nil {
		return false
	}
	target, ok := r.lane.pick(r, t)
	if !ok {
		return false
	}
	r.target = target
	r.lane.inFlight[target.Instance]++
	r.state = sent
	r.ask = d.conn.NewAsk(r.answer)
	r.sentAt = time.Now()
	r.waited = r.sentAt.Sub(r.queuedAt)
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(r.timeout(), r.timedOut)
	return true
}

// pump sends every queued call that has a free instance, in order, and ends
// those that no instance serves any more.
func (d *Dispatcher) pump(l *lane) {
	var send, lost []*running
	l.mu.Lock()
	t := d.reg.Get(l.tool)
	for _, r := range append([]*running(nil), l.queue...) {
		switch {
		case t == nil || !served(t, r.key):
			l.dequeue(r)
			lost = append(lost, r)
		case d.place(r):
			l.dequeue(r)
			send = append(send, r)
		}
	}
	l.mu.Unlock()
	for _, r := range send {
		d.send(r)
	}
	for _, r := range lost {
		r.finish(failed(unserved(l.tool)))
	}
}

func served(t *registry.Tool, key string) bool {
	for _, s := range t.Instances {
		if key == "" || s.Owns(key) {
			return true
		}
	}
	return false
}

// send publishes a call that has its slot.
func (d *Dispatcher) send(r *running) {
	data, err := r.encode()
	if err == nil {
		err = r.ask.Send(d.subject(r), data, r.trace)
	}
	if err != nil {
		r.finish(failed(err))
	}
}

func (d *Dispatcher) subject(r *running) string {
	if to := r.target.Instance; to.ID != "" {
		return d.conn.InstTool(to.Identity, to.ID, r.Tool)
	}
	return d.conn.Tool(r.Tool)
}

func (r *running) encode() ([]byte, error) {
	f := frames.Call(r.Tool, r.Arguments, frames.WithCall(r.ID, r.Tool))
	set := func(key string, v any) {
		f.Metadata = append(f.Metadata, frames.Field{Key: key, Value: frames.Value(v)})
	}
	set("caller", r.Caller)
	set("timeoutMs", r.timeout().Milliseconds())
	if r.SessionID != "" {
		set("sessionId", r.SessionID)
	}
	if r.key != "" {
		set("workspace", r.key)
	}
	if r.Depth > 0 {
		set("depth", r.Depth)
	}
	return frames.Encode(encodingFor(r.Declaration), &f)
}

func encodingFor(d *frames.Declaration) frames.Encoding {
	if len(d.Encodings) == 1 && d.Encodings[0] == "json" {
		return frames.JSON
	}
	return frames.Msgpack
}

func (r *running) timeout() time.Duration {
	t := r.Declaration.Timeout()
	if r.Timeout > 0 && r.Timeout < t {
		return r.Timeout
	}
	return t
}

// answer takes what the tool's instance sends; it runs on the connection's
// delivery goroutine.
func (r *running) answer(m frames.Message, err error) {
	if err != nil {
		r.broken(err)
		return
	}
	for i := range m.Frames {
		f := &m.Frames[i]
		if f.Seq != 0 && !r.inOrder(f.Seq) {
			r.end(failed(frames.NewError(frames.CodeNoResult, "an answer of %s is missing", r.Tool)))
			return
		}
		r.take(f)
	}
}

func (r *running) inOrder(seq uint64) bool {
	r.lane.mu.Lock()
	defer r.lane.mu.Unlock()
	r.last++
	return seq == r.last
}

func (r *running) take(f *frames.Frame) {
	switch f.Type {
	case frames.TypeToolResult:
		r.keep(f)
	case frames.TypeEnd:
		r.ended()
	case frames.TypeError: // never right for a call, but it says what happened
		r.keep(&frames.Frame{Content: frames.Fields{{Key: "isError", Value: frames.Value(true)}, {Key: "error", Value: f.Content}}.Raw()})
	case frames.TypeText, frames.TypeProgress, frames.TypeTick:
		if r.OnFrame != nil && r.live() {
			r.OnFrame(f)
		}
	}
}

func (r *running) live() bool {
	r.lane.mu.Lock()
	defer r.lane.mu.Unlock()
	return r.state == sent || r.state == cancelling
}

// keep holds the first result until END.
func (r *running) keep(f *frames.Frame) {
	res, err := f.Result()
	if err != nil {
		res = failed(err)
	}
	r.lane.mu.Lock()
	defer r.lane.mu.Unlock()
	if r.result == nil {
		r.result = res
	}
}

// ended is the end of the tool's exchange.
func (r *running) ended() {
	r.lane.mu.Lock()
	res := r.result
	cancelled := r.state == cancelling
	r.lane.mu.Unlock()
	switch {
	case res == nil && cancelled:
		r.end(failed(cancelledError(r.Tool)))
	case res == nil:
		r.end(failed(frames.NewError(frames.CodeNoResult, "%s ended without a result", r.Tool).With(r.replaySafe)))
	case refusal(res):
		r.elsewhere(res.Err)
	default:
		r.end(r.checked(res))
	}
}

// refusal reports whether an instance refused a call before its start, so that
// another may take it.
func refusal(res *frames.ToolResult) bool {
	return res.Err != nil && res.Err.Code == frames.CodeBusy && res.Err.Effect == frames.EffectNone
}

// checked holds a result to the tool's output schema; errors are not checked.
func (r *running) checked(res *frames.ToolResult) *frames.ToolResult {
	if res.Err != nil || r.Declaration.OutputSchema == nil {
		return res
	}
	if err := r.d.checkOutput(r.Declaration, res.Result); err != nil {
		return failed(err)
	}
	return res
}

// broken is an answer that cannot be read, or no answer at all.
func (r *running) broken(err error) {
	e := frames.AsError(err)
	switch e.Code {
	case frames.CodeUnavailable:
		silent := r.target.Instance
		r.elsewhere(e)
		r.d.reg.Gone(silent)
	case frames.CodeBadFrame:
		r.end(failed(frames.NewError(frames.CodeNoResult, "%s answered with an unreadable message: %w", r.Tool, err)))
	default:
		r.end(failed(err))
	}
}

// elsewhere tries another instance after this one refused the call.
func (r *running) elsewhere(why *frames.Error) {
	l := r.lane
	l.mu.Lock()
	if r.state != sent {
		l.mu.Unlock()
		r.end(failed(why))
		return
	}
	r.ask.Stop()
	r.timer.Stop()
	l.release(r.target.Instance)
	if r.refused == nil {
		r.refused = map[registry.Instance]bool{}
	}
	r.refused[r.target.Instance] = true
	r.state, r.result, r.last = queued, nil, 0
	l.enqueue(r, true)
	left := max(r.d.cfg.QueueWait-time.Since(r.queuedAt), 0)
	r.timer = time.AfterFunc(left, r.waitedTooLong)
	if l.retry == nil {
		l.retry = time.AfterFunc(busyPause, func() { r.d.forgive(l) })
	}
	l.mu.Unlock()
	r.d.pump(l)
}

// forgive lets the queued calls of a lane try the instances that refused them again.
func (d *Dispatcher) forgive(l *lane) {
	l.mu.Lock()
	l.retry = nil
	for _, r := range l.queue {
		r.refused = nil
	}
	l.mu.Unlock()
	d.pump(l)
}

func (r *running) waitedTooLong() {
	r.lane.mu.Lock()
	waiting := r.state == queued
	if waiting {
		r.lane.dequeue(r)
	}
	r.lane.mu.Unlock()
	if waiting {
		r.finish(failed(r.d.busy(r, "no instance became free")))
	}
}

// timedOut answers at once and sends CANCEL beside it.
func (r *running) timedOut() {
	r.stop(frames.Timeout(r.Tool, r.timeout()).With(r.replaySafe), 0)
}

// replaySafe makes an error retryable if running the call again does no harm.
func (r *running) replaySafe(e *frames.Error) { e.Retryable = r.Declaration.ReplaySafe() }

// cancel ends the call: a queued one at once, a running one when the tool says
// its last word or after a grace.
func (r *running) cancel(cause error) {
	err := cancelledError(r.Tool)
	if e, ok := errors.AsType[*frames.Error](cause); ok {
		err = e
	} else if errors.Is(cause, context.DeadlineExceeded) {
		err = frames.Timeout(r.Tool, time.Since(r.queuedAt)).With(r.replaySafe)
	}
	r.stop(err, r.d.cfg.CancelGrace)
}

func cancelledError(tool string) *frames.Error {
	return frames.NewError(frames.CodeCancelled, "Tool %s was cancelled", tool)
}

// stop ends a call with err: at once if grace is 0 or the call never started.
func (r *running) stop(err *frames.Error, grace time.Duration) {
	l := r.lane
	l.mu.Lock()
	switch {
	case r.state == queued:
		l.dequeue(r)
		l.mu.Unlock()
		r.finish(failed(err.With(func(e *frames.Error) { e.Effect = frames.EffectNone })))
		return
	case r.state != sent && (r.state != cancelling || grace > 0):
		l.mu.Unlock()
		return
	}
	r.timer.Stop()
	if grace > 0 {
		r.state = cancelling
		r.timer = time.AfterFunc(grace, func() { r.stop(err, 0) })
		l.mu.Unlock()
		r.d.sendCancel(r)
		return
	}
	sendCancel := r.state == sent
	r.state = abandoned
	r.timer = time.AfterFunc(holdSlot, r.letGo)
	l.mu.Unlock()
	if sendCancel {
		r.d.sendCancel(r)
	}
	r.deliver(failed(err))
}

func (d *Dispatcher) sendCancel(r *running) {
	subject := d.conn.CtlTool(r.Tool)
	if to := r.target.Instance; to.ID != "" {
		subject = d.conn.Inst(to.Identity, to.ID)
	}
	f := frames.Cancel(r.ID, r.Tool, frames.WithMeta("caller", r.Caller))
	if err := d.conn.Publish(context.Background(), subject, encodingFor(r.Declaration), &f); err != nil {
		d.cfg.Log.Warn("cannot send CANCEL", "tool", r.Tool, "call_id", r.ID, "error", err)
	}
}

// letGo gives the slot of an abandoned call back though the tool never ended.
func (r *running) letGo() { r.end(nil) }

// end closes the tool's exchange: the slot is free, and the result goes to the
// caller unless it was answered before.
func (r *running) end(res *frames.ToolResult) {
	l := r.lane
	l.mu.Lock()
	if r.state == finished || r.state == queued {
		l.mu.Unlock()
		return
	}
	answered := r.state == abandoned
	r.state = finished
	r.timer.Stop()
	r.ask.Stop()
	l.release(r.target.Instance)
	delete(l.calls, r)
	l.mu.Unlock()
	if !answered {
		r.deliver(res)
	}
	r.d.pump(l)
}

// finish ends a call that holds no slot.
func (r *running) finish(res *frames.ToolResult) {
	l := r.lane
	l.mu.Lock()
	if r.state == sent { // its publish failed
		r.ask.Stop()
		l.release(r.target.Instance)
	}
	done := r.state == finished
	r.state = finished
	if r.timer != nil {
		r.timer.Stop()
	}
	delete(l.calls, r)
	l.mu.Unlock()
	if !done {
		r.deliver(res)
	}
}

// deliver gives the one result to the caller.
func (r *running) deliver(res *frames.ToolResult) {
	res.Queue = r.waited
	if !r.sentAt.IsZero() {
		res.Attempts = 1
		res.Instance = r.target.Instance.ID
		if res.Duration == 0 {
			res.Duration = time.Since(r.sentAt)
		}
	}
	r.done(res)
	r.d.forget(r)
}

func failed(err error) *frames.ToolResult { return &frames.ToolResult{Err: frames.AsError(err)} }
