package loop

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// fetchWait is how long one request for jobs stands.
	fetchWait = 5 * time.Second
	// fetchPause comes after a request for jobs that failed.
	fetchPause = 250 * time.Millisecond
)

// fetch takes as many jobs as there are free slots, until ctx ends.
func (l *loop) fetch(ctx, work context.Context) {
	for ctx.Err() == nil {
		n := l.freeSlots(ctx)
		if n == 0 {
			return
		}
		left, err := l.fetchSome(ctx, work, n)
		for range left {
			<-l.slots
		}
		if err != nil && ctx.Err() == nil {
			l.log.Warn("cannot fetch jobs", "error", err)
			pause(ctx, fetchPause)
		}
	}
}

// freeSlots waits for a free slot and takes all that are free; 0 when ctx ended.
func (l *loop) freeSlots(ctx context.Context) int {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; ; n++ {
		select {
		case l.slots <- struct{}{}:
		default:
			return n
		}
	}
}

// fetchSome takes up to n jobs as they come and gives how many slots are left.
func (l *loop) fetchSome(ctx, work context.Context, n int) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	batch, err := l.taken.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return n, err
	}
	for m := range batch.Messages() {
		n--
		l.begin(work, m)
	}
	if err = batch.Error(); errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = nil
	}
	return n, err
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// begin works on a job in a slot that is taken already.
func (l *loop) begin(work context.Context, m jetstream.Msg) {
	l.working.Go(func() {
		defer func() { <-l.slots }()
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
