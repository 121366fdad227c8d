package client

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// quiet is how long a reader of a session hears nothing before it asks whether
// it missed something.
const quiet = 5 * time.Second

// maxUnread bounds the messages of a session that wait for a slow reader; what
// is lost beyond is read again from the history.
const maxUnread = 4096

// Session is a session of the client's caller: input goes in by Send, frames come
// out by Frames. It may be used by several goroutines, Frames by one at a time.
type Session struct {
	// ID is the session's id.
	ID string

	c   *Client
	sub *nats.Subscription
	in  chan *nats.Msg

	mu     sync.Mutex
	closed bool
}

// Session attaches to a session, which need not exist yet: the first input makes
// it. An empty id makes a new one. Close it after use; the session itself goes on.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	if id == "" {
		id = nuid.Next()
	}
	if !frames.ValidName(id) {
		return nil, frames.NewError(frames.CodeValidationInput, "session id %q: want letters, digits, _ and -, at most 64", id)
	}
	s := &Session{ID: id, c: c, in: make(chan *nats.Msg, maxUnread)}
	sub, err := c.conn.NATS().ChanSubscribe(c.conn.Out(c.Caller(), id), s.in)
	if err != nil {
		return nil, frames.NewError(frames.CodeUnavailable, "cannot read the session: %w", bus.Words(err))
	}
	s.sub = sub
	if err := c.conn.Flush(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close stops reading; it does not end the session.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if err := s.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return frames.NewError(frames.CodeUnavailable, "cannot stop reading the session: %w", bus.Words(err))
	}
	return nil
}

// Send stores input and gives the id of its first frame, by which an ERROR on
// the session names what it refuses. It returns once the input is stored; order
// holds for a caller that waits for that. Frames without an id get one, and input
// whose id was seen before is dropped: to send again after an error, send the
// same frames.
func (s *Session) Send(ctx context.Context, fs ...frames.Frame) (string, error) {
	if len(fs) == 0 {
		return "", frames.NewError(frames.CodeBadFrame, "no frame to send")
	}
	ptrs := make([]*frames.Frame, len(fs))
	for i := range fs {
		if fs[i].ID == "" {
			fs[i].ID = nuid.Next()
		}
		ptrs[i] = &fs[i]
	}
	_, err := s.c.conn.Request(ctx, s.c.conn.In(s.c.Caller(), s.ID), ptrs...)
	return fs[0].ID, err
}

// Frames ranges over what happens in the session, from its beginning: every
// durable frame once and none missing, in order, and the live frames of the
// newest epoch as they come. after is the last entry that is known already, 0 for
// none. The range ends after END, or with an error when ctx ends.
func (s *Session) Frames(ctx context.Context, after uint64) iter.Seq2[frames.Frame, error] {
	return func(yield func(frames.Frame, error) bool) {
		r := &reader{s: s, entry: after}
		for {
			fs, err := r.next(ctx)
			for _, f := range fs {
				if !yield(f, nil) || durableEnd(&f) {
					return
				}
			}
			if err != nil {
				yield(frames.Frame{}, err)
				return
			}
		}
	}
}

func durableEnd(f *frames.Frame) bool { return f.Type == frames.TypeEnd && f.Entry > 0 }

// reader puts a session's frames in order.
type reader struct {
	s *Session
	// entry is the last one that was given whole, part the last of the next one.
	entry uint64
	part  int
	epoch uint64
	// asked: the history behind entry was read once.
	asked bool
}

// next waits for the next frames. Where durable ones are missing it reads the
// history.
func (r *reader) next(ctx context.Context) ([]frames.Frame, error) {
	if !r.asked {
		r.asked = true
		fs, err := r.catchUp(ctx)
		if frames.CodeOf(err) == frames.CodeNotFound {
			return nil, nil // not there yet: its first input is on its way
		}
		return fs, err
	}
	silence := time.NewTimer(quiet)
	defer silence.Stop()
	select {
	case m := <-r.s.in:
		return r.read(ctx, m)
	case <-silence.C:
		fs, err := r.catchUp(ctx)
		if code := frames.CodeOf(err); code == frames.CodeNotFound || code == frames.CodeUnavailable {
			return nil, nil // every service may be restarting: they will be back
		}
		return fs, err
	case <-ctx.Done():
		return nil, frames.AsError(context.Cause(ctx))
	}
}

func (r *reader) read(ctx context.Context, m *nats.Msg) ([]frames.Frame, error) {
	msg, err := frames.Decode(m.Data)
	if err != nil {
		return nil, nil //nolint:nilerr // not ours; a durable frame that is lost so is read again
	}
	var out []frames.Frame
	for i := range msg.Frames {
		f := &msg.Frames[i]
		switch {
		case f.Entry == 0:
			if f.Epoch >= r.epoch {
				r.epoch = f.Epoch
				out = append(out, *f)
			}
		case r.follows(f):
			out = append(out, r.take(f))
		case f.Entry > r.entry:
			missed, err := r.catchUp(ctx)
			return append(out, missed...), err
		}
	}
	return out, nil
}

// follows reports whether a durable frame is the next one.
func (r *reader) follows(f *frames.Frame) bool {
	return f.Entry == r.entry+1 && f.Part == r.part+1
}

func (r *reader) take(f *frames.Frame) frames.Frame {
	r.part = f.Part
	if f.Last {
		r.entry, r.part = f.Entry, 0
	}
	r.epoch = max(r.epoch, f.Epoch)
	return *f
}

// catchUp reads the durable frames behind the last one from the history.
func (r *reader) catchUp(ctx context.Context) ([]frames.Frame, error) {
	var out []frames.Frame
	for {
		fs, more, err := r.s.c.history(ctx, r.s.ID, r.entry)
		if err != nil {
			return out, err
		}
		for i := range fs {
			switch f := &fs[i]; {
			case r.follows(f):
				out = append(out, r.take(f))
			case f.Entry > r.entry+1:
				return out, r.gap(f.Entry)
			}
		}
		if !more || len(fs) == 0 {
			return out, nil
		}
	}
}

// Watch ranges over the frames of all sessions of the caller, live and durable,
// from now on; each has the session's id in metadata.sessionId. Frames may be lost;
// [Session.Frames] loses none. The range ends with an error when ctx ends.
func (c *Client) Watch(ctx context.Context) iter.Seq2[frames.Frame, error] {
	return func(yield func(frames.Frame, error) bool) {
		in := make(chan *nats.Msg, maxUnread)
		sub, err := c.conn.NATS().ChanSubscribe(c.conn.Out(c.Caller(), "*"), in)
		if err != nil {
			yield(frames.Frame{}, frames.NewError(frames.CodeUnavailable, "cannot watch: %w", bus.Words(err)))
			return
		}
		defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
		for {
			select {
			case m := <-in:
				if !c.watched(m, yield) {
					return
				}
			case <-ctx.Done():
				yield(frames.Frame{}, frames.AsError(context.Cause(ctx)))
				return
			}
		}
	}
}

func (c *Client) watched(m *nats.Msg, yield func(frames.Frame, error) bool) bool {
	msg, err := frames.Decode(m.Data)
	if err != nil {
		return true // not ours
	}
	tokens := c.conn.Tokens(m.Subject)
	for i := range msg.Frames {
		f := msg.Frames[i]
		f.Metadata.Set("sessionId", frames.Value(tokens[len(tokens)-1]))
		if !yield(f, nil) {
			return false
		}
	}
	return true
}
