package dispatch

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// budget is what is left of the time of all attempts and pauses together, from
// the first attempt on.
func (r *running) budget(now time.Time) time.Duration {
	return r.begun.Add(r.total()).Sub(now)
}

// total is the time of all attempts together: a caller's time-out bounds them
// as it bounds one.
func (r *running) total() time.Duration {
	total := r.Declaration.Backoff.Total()
	if r.Timeout > 0 {
		total = min(total, r.Timeout)
	}
	return total
}

// limit is how long an attempt that begins now may run.
func (r *running) limit(now time.Time) time.Duration {
	return max(min(r.Declaration.TimeoutOr(r.d.cfg.DefaultTimeout), r.budget(now)), time.Millisecond)
}

// left is how long the attempt may still run, and be silent, under the lane's lock.
func (a *attempt) left(now time.Time) time.Duration {
	left := a.startedAt.Add(a.limit).Sub(now)
	if idle := a.Declaration.IdleTimeout(); idle > 0 {
		last := a.startedAt
		if a.heard.After(last) {
			last = a.heard
		}
		left = min(left, last.Add(idle).Sub(now))
	}
	return left
}

// due ends an attempt that ran, or was silent, for too long; what it said
// meanwhile gives it more time to be silent.
func (a *attempt) due() {
	l := a.lane
	l.mu.Lock()
	now := time.Now()
	left := a.left(now)
	if a.phase != runs || left > 0 {
		if a.phase == runs {
			a.timer.Reset(left)
		}
		l.mu.Unlock()
		return
	}
	err := a.timeout(now)
	l.mu.Unlock()
	a.giveUp(err)
}

// timeout is why an attempt ends now, under the lane's lock.
func (a *attempt) timeout(now time.Time) *frames.Error {
	limit, reason := a.limit, ""
	switch {
	case now.Before(a.startedAt.Add(a.limit)):
		limit, reason = a.Declaration.IdleTimeout(), "idle"
	case a.index > 0 && a.budget(now) <= 0:
		limit = a.total()
	}
	return frames.Timeout(a.Tool, limit).WithReplay(a.Declaration.ReplaySafe()).WithReason(reason)
}

// settle takes the result of an attempt: it is the call's, unless another
// attempt is due, or another way was found already.
func (a *attempt) settle(res *frames.ToolResult) {
	r, l := a.running, a.lane
	l.mu.Lock()
	if r.try != a || r.state == finished {
		l.mu.Unlock()
		return
	}
	r.try = nil
	a.stamp(res)
	pause, again := r.again(a, res)
	if !again {
		r.leave()
		l.mu.Unlock()
		r.deliver(res)
		return
	}
	r.d.stats.retries.Add(1)
	r.last, r.acted = res, r.acted || res.Err.Effect != frames.EffectNone
	r.state = pausing
	r.wait(pause, r.resume)
	l.mu.Unlock()
}

// again says whether, and after which pause, another attempt follows one that
// failed, under the lane's lock.
func (r *running) again(a *attempt, res *frames.ToolResult) (time.Duration, bool) {
	if r.stopped != nil || r.attempts > r.Declaration.Retries || !mayRepeat(r.Declaration, a, res.Err) {
		return 0, false
	}
	pause := rand.N(r.Declaration.Backoff.Most(r.attempts) + 1) //nolint:gosec // a pause, no secret
	if res.Err.Code != frames.CodeTimeout {
		pause = max(pause, res.Err.RetryAfter)
	}
	return pause, pause < r.budget(time.Now())
}

// mayRepeat reports whether the same call may be made once more after err: it
// may help, and it does no harm.
func mayRepeat(d *frames.Declaration, a *attempt, err *frames.Error) bool {
	if err == nil || !err.Retryable && !a.unsaid {
		return false
	}
	harmless := err.Effect == frames.EffectNone || d.ReplaySafe()
	switch err.Code {
	case frames.CodeTimeout:
		return d.ReplaySafe()
	case frames.CodeExecution, frames.CodeInternal, frames.CodeInterrupted, frames.CodeNoResult, frames.CodeUnavailable:
		return harmless || d.Annotations.Idempotent || d.Annotations.ReadOnly
	}
	return false
}

// resume makes the next attempt.
func (r *running) resume() {
	l := r.lane
	l.mu.Lock()
	if r.state != pausing {
		l.mu.Unlock()
		return
	}
	r.state, r.queuedAt = queued, time.Now()
	l.mu.Unlock()
	r.d.advance(r)
}

// leave ends the call, under the lane's lock.
func (r *running) leave() {
	r.state = finished
	r.lane.open--
	if r.waiting != nil {
		r.waiting.Stop()
	}
}

// counted says in an error how often the tool was tried.
func counted(e *frames.Error, attempts int) *frames.Error {
	if e.Code != frames.CodeExecution || attempts < 2 {
		return e
	}
	return e.With(func(e *frames.Error) {
		e.Message += fmt.Sprintf(" after %d attempts", attempts)
		if e.LLMMessage != "" {
			e.LLMMessage += fmt.Sprintf(" (It was tried %d times.)", attempts)
		}
	})
}
