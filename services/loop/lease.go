package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// lease keeps a job in this loop's hands. What proves that the session is this
// loop's is its head; the lease only keeps others from taking the job.
type lease struct {
	j       *job
	ackWait time.Duration
	wakes   chan struct{}

	mu    sync.Mutex
	proof time.Time // when the session was known to be this loop's
}

func newLease(j *job) *lease {
	return &lease{j: j, ackWait: j.l.taken.CachedInfo().Config.AckWait, wakes: make(chan struct{}, 1)}
}

// proved notes that the session was this loop's at the time.
func (e *lease) proved(at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at.After(e.proof) {
		e.proof = at
	}
}

func (e *lease) age() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.proof)
}

// look makes the lease read the head now.
func (e *lease) look() {
	select {
	case e.wakes <- struct{}{}:
	default: // it will
	}
}

// check says whether calls may be started: not where the last proof is older
// than half an ack wait, unless the head proves it anew.
func (e *lease) check(ctx context.Context) error {
	if e.age() < e.ackWait/2 {
		return nil
	}
	return e.read(ctx)
}

// read reads the head: errLost where the session is another's.
func (e *lease) read(ctx context.Context) error {
	begun := time.Now()
	head, err := e.j.l.store.Head(ctx, e.j.key)
	if frames.CodeOf(err) == frames.CodeNotFound {
		return errLost // deleted
	}
	if err != nil {
		return err
	}
	if o := head.State.Owner; !head.State.Status.Final() && (o == nil || o.Nonce != e.j.owner.Nonce) {
		return errLost
	}
	e.proved(begun)
	e.j.seen(ctx, &head)
	return nil
}

// keep renews the lease each third of an ack wait, and reads the head when it is
// woken, until the function it gives is called. lost is called with errLost once
// the session is another's.
func (e *lease) keep(ctx context.Context, lost context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		t := time.NewTicker(e.ackWait / 3)
		defer t.Stop()
		for {
			var err error
			select {
			case <-t.C:
				err = e.renew(ctx)
			case <-e.wakes:
				err = e.read(ctx)
			case <-ctx.Done():
				return
			}
			if errors.Is(err, errLost) {
				e.j.out.close()
				lost(err)
				return
			}
			if err != nil && ctx.Err() == nil {
				e.j.log.Warn("cannot renew the lease", "error", err)
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// renew says that the job is worked on, reads the head, and sees that the job
// stands: one that was lost was posted anew by this, and whoever gets it takes
// the session over.
func (e *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.ackWait/2)
	defer cancel()
	if err := inProgress(ctx, e.j.l.conn.NATS(), e.j.msg.Reply()); err != nil {
		return err
	}
	if err := e.read(ctx); err != nil {
		return err
	}
	stands, err := e.j.l.queue.Post(ctx, e.j.key)
	if err == nil && !stands {
		return errLost
	}
	return err
}

// inProgress tells the work queue that a job is worked on, and waits for its word.
func inProgress(ctx context.Context, nc *nats.Conn, reply string) error {
	if _, err := nc.RequestWithContext(ctx, reply, []byte("+WPI")); err != nil {
		return frames.NewError(frames.CodeUnavailable, "the job's lease is not renewed: %w", bus.Words(err))
	}
	return nil
}
