package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// errLost says that the session is another loop's, or may be.
var errLost error = session.ErrLostOwner

// job is a session that this loop works on, from the job's delivery until the
// session is given up.
type job struct {
	l     *loop
	key   session.Key
	msg   jetstream.Msg
	seq   uint64 // of the job in WB_RUN
	again bool   // the job was delivered before
	owner session.Owner
	out   *out
	log   *slog.Logger
	lease *lease

	// head is the newest that this job read or wrote; only its own goroutine uses it.
	head session.Head

	mu       sync.Mutex
	outside  outside
	runner   *engine.Runner // of the turn that runs
	turn     uint64         // the epoch with which that turn began
	cancel   uint64         // the same of a turn that somebody wants to end
	draining bool
}

func newJob(l *loop, msg jetstream.Msg, key session.Key, meta *jetstream.MsgMetadata) *job {
	j := &job{
		l: l, key: key, msg: msg, seq: meta.Sequence.Stream, again: meta.NumDelivered > 1,
		owner: session.Owner{Nonce: nuid.Next(), Identity: l.conn.Identity(), Instance: l.instance},
		out:   &out{conn: l.conn, subject: l.conn.Out(key.Caller, key.SID)},
		log:   l.log.With("caller", key.Caller, "session_id", key.SID),
	}
	j.lease = newLease(j)
	j.outside = outside{pending: map[string]uint64{}, leases: map[string]session.Lease{}}
	return j
}

// run works on the session until it is given up and the job is acknowledged. An
// error leaves the job as it is.
func (j *job) run(work context.Context) error {
	head, err := j.l.store.Head(work, j.key)
	if frames.CodeOf(err) == frames.CodeNotFound {
		return j.ack(work) // deleted
	}
	if err != nil {
		return err
	}
	if j.again || !head.State.Work() {
		j.publish(work, &head) // who wrote it may have ended before that
	}
	taken, err := j.take(work)
	if err != nil || !taken {
		return err
	}
	defer j.out.close()
	return j.workUntilReleased(work)
}

// take makes this loop the owner. Where there is no work it acknowledges the job.
func (j *job) take(ctx context.Context) (bool, error) {
	begun := time.Now()
	head, err := j.l.store.Update(ctx, j.key, func(s *session.State) ([]session.Change, error) { return s.Take(j.owner) })
	if frames.CodeOf(err) == frames.CodeConflict {
		return false, j.nothing(ctx)
	}
	if err != nil {
		return false, err
	}
	j.lease.proved(begun)
	j.written(ctx, head)
	return true, nil
}

// nothing acknowledges a job without work. Work that came after the look at the
// head, and found the job still standing, gets a job of its own.
func (j *job) nothing(ctx context.Context) error {
	if err := j.ack(ctx); err != nil {
		return err
	}
	head, err := j.l.store.Head(ctx, j.key)
	if err != nil || !head.State.Work() || head.State.Owner != nil {
		return err
	}
	_, err = j.l.queue.Post(ctx, j.key)
	return err
}

// ack takes the job out of the work queue and knows that it is.
func (j *job) ack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ackLimit)
	defer cancel()
	if err := j.msg.DoubleAck(ctx); err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot acknowledge the job: %w", bus.Words(err))
	}
	return nil
}

// ackLimit bounds an acknowledgement: an election takes 4 to 9 s.
const ackLimit = 5 * time.Second

func (j *job) workUntilReleased(work context.Context) error {
	for {
		if err := j.turns(work); err != nil {
			return err
		}
		released, err := j.release(work)
		if err != nil {
			return err
		}
		if released {
			return j.ack(work)
		}
	}
}

// turns runs turns while there are some and this loop can go on with them, and
// keeps the lease meanwhile.
func (j *job) turns(work context.Context) error {
	ctx, lost := context.WithCancelCause(work)
	defer lost(nil)
	defer j.lease.keep(ctx, lost)()
	for j.head.State.Work() {
		err := j.runTurn(ctx)
		if errors.Is(err, engine.ErrParked) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// release gives the session up by a revision; false where there is work again.
func (j *job) release(ctx context.Context) (bool, error) {
	head, err := j.update(ctx, func(s *session.State) ([]session.Change, error) { return s.Release(j.owner, j.seq, j.leases()) })
	switch {
	case err == nil:
		j.written(ctx, head)
		return true, nil
	case frames.CodeOf(err) != frames.CodeConflict || errors.Is(err, errLost):
		return false, err
	}
	j.head, err = j.l.store.Head(ctx, j.key)
	return false, err
}

// runTurn runs one user turn, or what is left of it.
func (j *job) runTurn(ctx context.Context) error {
	cfg, err := j.config(ctx)
	if err == nil {
		err = j.drive(ctx, cfg)
	}
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, errLost), errors.Is(err, engine.ErrDrained), errors.Is(err, engine.ErrParked):
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	case frames.CodeOf(err) == frames.CodeUnavailable:
		return err // the next to get the job tries again
	}
	j.log.Error("turn failed", "error", err)
	return j.endTurn(ctx, err)
}

func (j *job) drive(ctx context.Context, cfg engine.Config) error {
	r := engine.New(cfg)
	j.attach(r, j.head.State.TurnEpoch)
	defer j.attach(nil, 0)
	_, err := r.Run(ctx)
	return err
}

// endTurn ends a turn that cannot be run.
func (j *job) endTurn(ctx context.Context, cause error) error {
	head, err := j.update(ctx, func(s *session.State) ([]session.Change, error) {
		return s.EndTurn(j.owner, frames.EndError, frames.AsError(cause))
	})
	if err != nil {
		return err
	}
	j.written(ctx, head)
	return nil
}

// attach makes r the runner that is told to cancel and to drain.
func (j *job) attach(r *engine.Runner, turn uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runner, j.turn = r, turn
	if r == nil {
		return
	}
	if j.draining {
		r.Drain()
	}
	if j.cancel == turn {
		r.Cancel()
	}
}

func (j *job) drain() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.draining = true
	if j.runner != nil {
		j.runner.Drain()
	}
}

// wake makes the job read its session's head.
func (j *job) wake() { j.lease.look() }

// seen acts on a head that was read or written: clients may have answered calls,
// and somebody may want the turn to end. A head that was read late means no turn
// after its own.
func (j *job) seen(ctx context.Context, head *session.Head) {
	j.answered(ctx, head)
	s := &head.State
	if !s.Cancel {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cancel = max(j.cancel, s.TurnEpoch)
	if j.runner != nil && j.turn == s.TurnEpoch {
		j.runner.Cancel()
	}
}

// update writes a transition of the owned session; errLost where it is not any more.
func (j *job) update(ctx context.Context, t session.Transition) (session.Head, error) {
	begun := time.Now()
	head, err := j.l.store.Update(ctx, j.key, t)
	if err == nil {
		j.lease.proved(begun)
	}
	return head, err
}

// written keeps a head that this job wrote, and publishes it.
func (j *job) written(ctx context.Context, head session.Head) {
	j.head = head
	j.publish(ctx, &head)
	j.out.begin(head.State.Epoch, head.State.WireEncoding())
	j.seen(ctx, &head)
}

func (j *job) publish(ctx context.Context, head *session.Head) {
	if err := j.l.store.Publish(ctx, j.l.conn, &head.Entry); err != nil {
		j.log.Warn("readers miss an entry until they ask for it", "entry", head.N, "error", err)
	}
}
