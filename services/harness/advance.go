package harness

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// errNotYet says that a session's work is not under way yet, and soon will be.
var errNotYet = errors.New("not under way yet")

// advance brings a session up to its input: each stored message becomes one
// entry, whose frames are published once it is committed. Then it sees to it that
// what the head asks for is under way. Only behind that the input is dropped: a
// crash before leaves the wake-up, which does all of it again. upTo is the newest
// input that is known, again says that this was tried before.
func (h *harness) advance(ctx context.Context, key session.Key, upTo uint64, again bool) error {
	head, err := h.store.Head(ctx, key)
	if err != nil && frames.CodeOf(err) != frames.CodeNotFound {
		return err
	}
	if again && head.N > 0 {
		if err := h.store.Publish(ctx, h.conn, &head.Entry); err != nil {
			return err
		}
	}
	if head, err = h.applyAll(ctx, key, head); err != nil || head.N == 0 {
		return err
	}
	if head.State.Cursor < upTo {
		return errNotYet // the read came from a replica that lags
	}
	if err := h.underWay(ctx, &head); err != nil {
		return err
	}
	h.dropInput(ctx, key, head.State.Cursor)
	return nil
}

func (h *harness) applyAll(ctx context.Context, key session.Key, head session.Head) (session.Head, error) {
	for {
		in, ok, err := h.nextInput(ctx, key, head.State.Cursor)
		if err != nil || !ok {
			return head, err
		}
		if head, err = h.commit(ctx, key, head, in); err != nil {
			return head, err
		}
		if err := h.store.Publish(ctx, h.conn, &head.Entry); err != nil {
			return head, err
		}
	}
}

// input is a stored message, or what is wrong with it.
type input struct {
	session.Input
	err error
}

func (in *input) apply(s *session.State) []session.Change {
	if in.err != nil {
		return s.Refuse(in.Input, in.err)
	}
	return s.Apply(in.Input)
}

// nextInput reads the first stored message behind the cursor.
func (h *harness) nextInput(ctx context.Context, key session.Key, cursor uint64) (in input, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	msg, err := h.inbox.GetMsg(ctx, cursor+1, jetstream.WithGetMsgSubject(h.conn.Inbox(key.Caller, key.SID)))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return input{}, false, nil
	case err != nil:
		return input{}, false, frames.NewError(frames.CodeUnavailable, "the input of session %s cannot be read: %w", key.SID, bus.Words(err))
	}
	in.Sequence = msg.Sequence
	in.Message, in.err = frames.Decode(msg.Data)
	return in, true, nil
}

// commit makes one entry of an input. One that does not fit is refused by an
// entry that says so.
func (h *harness) commit(ctx context.Context, key session.Key, head session.Head, in input) (session.Head, error) {
	written, err := h.write(ctx, key, head.N == 0, in)
	if frames.CodeOf(err) == frames.CodeTooLarge {
		in.err = err
		return h.write(ctx, key, head.N == 0, in)
	}
	return written, err
}

func (h *harness) write(ctx context.Context, key session.Key, first bool, in input) (session.Head, error) {
	apply := func(s *session.State) ([]session.Change, error) { return in.apply(s), nil }
	if !first {
		return h.store.Update(ctx, key, apply)
	}
	head, err := h.store.Create(ctx, key, apply)
	if frames.CodeOf(err) == frames.CodeConflict { // another replica made it
		head, err = h.store.Update(ctx, key, apply)
	}
	return head, err
}

// wakeTimeout is how long an owner may take to say that it heard.
const wakeTimeout = 2 * time.Second

// underWay sees to it that a loop works, or will, on what the head asks for.
func (h *harness) underWay(ctx context.Context, head *session.Head) error {
	s := &head.State
	if s.Status.Final() || (s.Owner == nil && !s.Work()) {
		return nil
	}
	stands, err := h.jobs.Post(ctx, s.Key())
	switch {
	case err != nil:
		return err
	case s.Owner != nil:
		return h.wakeOwner(ctx, head)
	case !stands:
		return nil
	}
	return h.jobIsNew(ctx, s)
}

// jobIsNew tells a job that a loop will take from the one that its owner
// released with this head and is about to acknowledge: that one wakes nobody.
func (h *harness) jobIsNew(ctx context.Context, s *session.State) error {
	job, err := h.jobs.Standing(ctx, s.Key())
	if err == nil && (job == 0 || job == s.Job) {
		err = errNotYet
	}
	return err
}

// wakeOwner tells the owner that its session has moved on. An owner that is gone
// needs no telling: its job is delivered again, and who takes it reads the head.
func (h *harness) wakeOwner(ctx context.Context, head *session.Head) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	wake := session.Wake(head.State.Key(), head.N)
	owner := head.State.Owner
	_, err := h.conn.Request(ctx, h.conn.Inst(owner.Identity, owner.Instance), &wake)
	if frames.CodeOf(err) == frames.CodeUnavailable {
		return nil
	}
	return err
}

// dropInput removes stored input up to the cursor. What stays is below the
// cursor, does no harm, and goes the next time.
func (h *harness) dropInput(ctx context.Context, key session.Key, cursor uint64) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := h.inbox.Purge(ctx, jetstream.WithPurgeSubject(h.conn.Inbox(key.Caller, key.SID)), jetstream.WithPurgeSequence(cursor+1))
	if err != nil {
		h.log.Warn("applied input is not removed", "session_id", key.SID, "caller", key.Caller, "error", err)
	}
}
