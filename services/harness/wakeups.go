package harness

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/session"
)

const (
	// handleTimeout bounds the handling of one wake-up; then it comes again.
	handleTimeout = 30 * time.Second
	nakDelay      = 250 * time.Millisecond
	maxNakDelay   = 5 * time.Second
)

// follow takes wake-ups until ctx ends: stored inputs, each a hint that its
// session has input. They are handled under work.
func (h *harness) follow(ctx, work context.Context) {
	h.slots.Pull(ctx, h.wakeups, func(m jetstream.Msg) { h.take(work, m) },
		func(err error) { h.log.Warn("cannot fetch wake-ups", "error", err) })
}

// wakeup says that a session has input. One that is not acknowledged stands for
// all of its session: whoever gets it, handles all input.
type wakeup struct {
	msg jetstream.Msg
	// sequence is the input's, deliveries how often the wake-up came.
	sequence, deliveries uint64
	// again says that it, or one that it stands for, came before.
	again bool
}

func wakeupOf(m jetstream.Msg) wakeup {
	meta, err := m.Metadata()
	if err != nil {
		return wakeup{msg: m, deliveries: 1}
	}
	return wakeup{m, meta.Sequence.Stream, meta.NumDelivered, meta.NumDelivered > 1}
}

// sessionWork is the one goroutine that handles a session's wake-ups: two would
// only race for its record.
type sessionWork struct {
	next *wakeup
}

// take hands a wake-up to its session's goroutine.
func (h *harness) take(work context.Context, m jetstream.Msg) {
	key, ok := session.KeyOf(h.conn.Subjects, m.Subject())
	if !ok {
		h.log.Warn("a wake-up without a session", "subject", m.Subject())
		_ = m.Term() // else it comes again
		h.slots.Free()
		return
	}
	w := wakeupOf(m)
	h.mu.Lock()
	defer h.mu.Unlock()
	if running, ok := h.running[key]; ok {
		h.wait(running, w)
		return
	}
	h.running[key] = &sessionWork{next: &w}
	h.work.Go(func() { h.handle(work, key) })
}

// wait lets a wake-up wait. Of two that wait the newer stands for both, so that
// a session has few slots and few deliveries, however much input it has.
func (h *harness) wait(running *sessionWork, w wakeup) {
	old := running.next
	if old == nil {
		running.next = &w
		return
	}
	if w.sequence < old.sequence {
		w, *old = *old, w
	}
	w.again = w.again || old.again
	_ = old.msg.Ack() // else it comes again
	running.next = &w
	h.slots.Free()
}

// handle handles a session's wake-ups until none waits.
func (h *harness) handle(work context.Context, key session.Key) {
	for w := h.next(key); w != nil; w = h.next(key) {
		h.settle(key, w, h.wake(work, key, w))
		h.slots.Free()
	}
}

func (h *harness) next(key session.Key) *wakeup {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.running[key].next
	h.running[key].next = nil
	if w == nil {
		delete(h.running, key)
	}
	return w
}

func (h *harness) wake(work context.Context, key session.Key, w *wakeup) error {
	ctx, cancel := context.WithTimeout(work, handleTimeout)
	defer cancel()
	err := h.advance(ctx, key, w.sequence, w.again)
	if err != nil && !errors.Is(err, errNotYet) {
		h.log.Warn("a session's input is not handled yet", "session_id", key.SID, "caller", key.Caller, "error", err)
	}
	return err
}

// settle acknowledges a wake-up whose session is under way, or that a newer one
// stands for; else it has it delivered again soon. A lost acknowledgement does no
// harm: the same happens.
func (h *harness) settle(key session.Key, w *wakeup, err error) {
	if err == nil || h.superseded(key, w) {
		_ = w.msg.Ack()
		return
	}
	_ = w.msg.NakWithDelay(nakAfter(w.deliveries))
}

func (h *harness) superseded(key session.Key, w *wakeup) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.running[key].next
	if next == nil || next.sequence < w.sequence {
		return false
	}
	next.again = true
	return true
}

func nakAfter(deliveries uint64) time.Duration {
	shift := min(max(deliveries, 1)-1, 10)
	return min(nakDelay<<shift, maxNakDelay)
}
