package harness

import (
	"context"
	"sync"
	"time"

	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
)

// followPause comes before another attempt at what failed.
const followPause = time.Second

// expire ends the calls of waiting sessions whose time is over, until ctx ends. The
// time stands in the session, so it holds whoever dies; of several replicas that
// see it one writes.
func (h *harness) expire(ctx, work context.Context) {
	w := &waiting{h: h, work: work, timers: map[session.Key]*time.Timer{}}
	defer w.stop()
	for ctx.Err() == nil {
		err := session.FollowDeadlines(ctx, h.js, h.prefix, w.at)
		if err != nil && ctx.Err() == nil {
			h.log.Warn("cannot follow the sessions that wait", "error", err)
			_ = pause.For(ctx, followPause) // an end is seen above
		}
	}
}

// waiting holds a timer for each session that waits.
type waiting struct {
	h    *harness
	work context.Context //nolint:containedctx // what the timers run under, as long as this is followed

	mu      sync.Mutex
	stopped bool
	timers  map[session.Key]*time.Timer
}

// at sets a session's deadline, in milliseconds since 1970; 0 is none.
func (w *waiting) at(key session.Key, deadline int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.timers[key]; old != nil {
		old.Stop()
		delete(w.timers, key)
	}
	if deadline == 0 || w.stopped {
		return
	}
	w.timers[key] = time.AfterFunc(time.Until(time.UnixMilli(deadline)), func() { w.over(key) })
}

// over ends what is over of a session. Where that fails it is tried again.
func (w *waiting) over(key session.Key) {
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return
	}
	w.h.work.Add(1)
	w.mu.Unlock()
	defer w.h.work.Done()
	if err := w.h.endWaits(w.work, key); err != nil {
		w.h.log.Warn("a session's time-out is not handled yet", "session_id", key.SID, "caller", key.Caller, "error", err)
		w.at(key, time.Now().Add(followPause).UnixMilli())
	}
}

func (w *waiting) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, t := range w.timers {
		t.Stop()
	}
}

// endWaits times out the calls that a session waits for in vain, and sees to it
// that it goes on.
func (h *harness) endWaits(ctx context.Context, key session.Key) error {
	ctx, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	head, err := h.store.Update(ctx, key, func(s *session.State) ([]session.Change, error) { return s.Expire(time.Now()), nil })
	if gone(err) {
		return nil
	}
	if err == nil {
		err = h.store.Publish(ctx, h.conn, &head.Entry)
	}
	if err == nil {
		err = h.underWay(ctx, &head)
	}
	return err
}

// gone reports whether there is no such session any more.
func gone(err error) bool { return frames.CodeOf(err) == frames.CodeNotFound }
