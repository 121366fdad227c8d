package client

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// quiet is how long a reader of a session hears nothing before it asks whether
// it missed something.
const quiet = 5 * time.Second

// maxUnread bounds the messages of a session that wait for a slow reader; what
// is lost beyond is read again from the history.
const maxUnread = 4096

// askAgain is how soon a mesh that does not answer is asked again.
const askAgain = time.Second

// sendAgain is how soon input is sent again to a mesh that went away.
const sendAgain = 250 * time.Millisecond

// outageLimit is the default of [OutageLimit].
const outageLimit = 30 * time.Second

type readConfig struct{ outage time.Duration }

// ReadOption changes how sessions are read.
type ReadOption func(*readConfig) error

// OutageLimit is how long a mesh may be away, or may not answer for the session,
// before the reader gives up with UNAVAILABLE. Nothing is lost by that: what the
// session did is kept, and it can be read again. Default: 30 s.
func OutageLimit(d time.Duration) ReadOption {
	return func(c *readConfig) error {
		if d <= 0 {
			return frames.NewError(frames.CodeValidationInput, "outage limit: %v, want more than 0", d)
		}
		c.outage = d
		return nil
	}
}

func newReadConfig(opts []ReadOption) (readConfig, error) {
	cfg := readConfig{outage: outageLimit}
	for _, o := range opts {
		if err := o(&cfg); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// Session is a session of the client's caller: input goes in by Send, frames come
// out by Frames. It may be used by several goroutines, Frames by one at a time.
type Session struct {
	// ID is the session's id.
	ID string

	c   *Client
	cfg readConfig
	sub *nats.Subscription
	in  chan *nats.Msg
	// reconnects is their count when the session was attached to.
	reconnects uint64

	mu     sync.Mutex
	closed bool
}

// Session attaches to a session, which need not exist yet: the first input makes
// it. An empty id makes a new one. Close it after use; the session itself goes on.
func (c *Client) Session(ctx context.Context, id string, opts ...ReadOption) (*Session, error) {
	cfg, err := newReadConfig(opts)
	if err != nil {
		return nil, err
	}
	if id == "" {
		id = nuid.Next()
	}
	if !frames.ValidName(id) {
		return nil, frames.NewError(frames.CodeValidationInput, "session id %q: want letters, digits, _ and -, at most 64", id)
	}
	s := &Session{ID: id, c: c, cfg: cfg, in: make(chan *nats.Msg, maxUnread), reconnects: c.conn.NATS().Stats().Reconnects}
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
// same frames. Send does so itself where the mesh went away since the session was
// attached to, up to the [OutageLimit].
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
	began := time.Now()
	for {
		_, err := s.c.conn.Request(ctx, s.c.conn.In(s.c.Caller(), s.ID), ptrs...)
		if !lost(err) || !s.interrupted() || time.Since(began) >= s.cfg.outage || pause.For(ctx, sendAgain) != nil {
			return fs[0].ID, err
		}
	}
}

// lost reports whether an error says that nobody answered.
func lost(err error) bool {
	code := frames.CodeOf(err)
	return code == frames.CodeUnavailable || code == frames.CodeNoResult
}

// interrupted reports whether the connection was lost since the session was
// attached to.
func (s *Session) interrupted() bool {
	nc := s.c.conn.NATS()
	return !nc.IsConnected() || nc.Stats().Reconnects > s.reconnects
}

// Frames ranges over what happens in the session, from its beginning: every
// durable frame once and none missing, in order, and the live frames of the
// newest epoch as they come. after is the last entry that is known already, 0 for
// none. The range ends after END, or with an error: that of ctx when it ends;
// UNAVAILABLE where the mesh is away for longer than the [OutageLimit]; NOT_FOUND
// where the session is gone.
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
	// silent is since when nothing of the session is heard, nor an answer of its
	// harness; zero: something is.
	silent time.Time
}

// next waits for the next frames. Where durable ones are missing it reads the
// history.
func (r *reader) next(ctx context.Context) ([]frames.Frame, error) {
	if !r.asked {
		r.asked = true
		fs, err := r.catchUp(ctx)
		if lost(err) {
			return fs, err // it was not there to begin with
		}
		return fs, r.judge(err)
	}
	silence := time.NewTimer(r.patience())
	defer silence.Stop()
	select {
	case m := <-r.s.in:
		r.silent = time.Time{}
		fs, err := r.read(ctx, m)
		return fs, r.judge(err)
	case <-silence.C:
		fs, err := r.catchUp(ctx)
		return fs, r.judge(err)
	case <-ctx.Done():
		return nil, frames.AsError(context.Cause(ctx))
	}
}

// patience is how long to hear nothing before the history is asked for.
func (r *reader) patience() time.Duration {
	if r.silent.IsZero() {
		return quiet
	}
	return min(askAgain, max(r.s.cfg.outage-time.Since(r.silent), 0))
}

// judge gives the errors that end the range. A session that is not there yet may
// be on its way, and services that do not answer may be starting again: both for
// a while.
func (r *reader) judge(err error) error {
	missing := frames.CodeOf(err) == frames.CodeNotFound
	switch {
	case err == nil:
		r.silent = time.Time{}
		return nil
	case missing && r.entry > 0:
		return frames.NewError(frames.CodeNotFound, "session %s was deleted", r.s.ID)
	case !missing && !lost(err):
		return err
	case r.silent.IsZero():
		r.silent = time.Now()
		return nil
	case time.Since(r.silent) < r.s.cfg.outage:
		return nil
	case missing:
		return err
	}
	return r.s.gone(err)
}

func (s *Session) gone(err error) error {
	return frames.NewError(frames.CodeUnavailable,
		"the mesh has not answered for session %s for %v: %w", s.ID, s.cfg.outage, err)
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
