package loop

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// fetch takes as many jobs as there are free slots, until ctx ends.
func (l *loop) fetch(ctx, work context.Context) {
	l.slots.Pull(ctx, l.taken, func(m jetstream.Msg) { l.begin(work, m) },
		func(err error) { l.log.Warn("cannot fetch jobs", "error", err) })
}

// begin works on a job in a slot that is taken already.
func (l *loop) begin(work context.Context, m jetstream.Msg) {
	l.working.Go(func() {
		defer l.slots.Free()
		key, ok := session.KeyOf(l.conn.Subjects, m.Subject())
		meta, err := m.Metadata()
		if !ok || err != nil {
			l.log.Error("a job that is none", "subject", m.Subject())
			_ = m.Term() // it is delivered again if this is lost
			return
		}
		l.work(work, newJob(l, m, key, meta))
	})
}

// work takes a job to its end and says so to the work queue.
func (l *loop) work(work context.Context, j *job) {
	l.addJob(j)
	defer l.removeJob(j)
	err := j.run(work)
	switch {
	case err == nil:
	case errors.Is(err, engine.ErrDrained), work.Err() != nil:
		// The owner stays: whoever gets the job next takes the session over.
		j.log.Info("session left", "error", err)
		_ = j.msg.Nak() // it is delivered again anyhow
	case errors.Is(err, errLost):
		j.log.Warn("session lost", "error", err)
	default:
		j.log.Error("session broken off", "error", err)
	}
}

func (l *loop) addJob(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[j.key] = j // one that lost the session to this one ends by itself
	if l.draining {
		j.drain()
	}
}

func (l *loop) removeJob(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs[j.key] == j {
		delete(l.jobs, j.key)
	}
}

// wake answers on the instance's own subject: META {wake} of a session, whose
// head is then read again; META {} is a sign of life.
func (l *loop) wake(_ context.Context, q *bus.Request) {
	for i := range q.Frames {
		if key, _, ok := session.WakeOf(&q.Frames[i]); ok {
			l.mu.Lock()
			j := l.jobs[key]
			l.mu.Unlock()
			if j != nil {
				j.wake()
			}
		}
	}
	if !q.Has(frames.TypeMeta, frames.TypeDescribe, frames.TypeCancel, frames.TypeAbort) {
		l.reply(q.Fail(frames.UnknownType(q.Frames[0].Type)), q)
		return
	}
	l.reply(q.End(frames.EndCompleted), q)
}
