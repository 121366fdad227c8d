package client

import (
	"context"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Watch ranges over the frames of all sessions of the caller, live and durable,
// from now on; each has the session's id in metadata.sessionId. Frames may be lost;
// [Session.Frames] loses none. The range ends with an error: that of ctx when it
// ends, UNAVAILABLE where the connection is lost for longer than the [OutageLimit],
// DENIED where the caller may not read sessions.
func (c *Client) Watch(ctx context.Context, opts ...ReadOption) iter.Seq2[frames.Frame, error] {
	return func(yield func(frames.Frame, error) bool) {
		w, err := c.beginWatch(ctx, opts)
		if err != nil {
			yield(frames.Frame{}, err)
			return
		}
		defer func() { _ = w.sub.Unsubscribe() }() // fails only on a closed connection
		if err := w.read(ctx, yield); err != nil {
			yield(frames.Frame{}, err)
		}
	}
}

// watching is a range over all sessions.
type watching struct {
	c   *Client
	cfg readConfig
	sub *nats.Subscription
	in  chan *nats.Msg
	// away is since when the connection is lost; zero: it is not.
	away time.Time
}

func (c *Client) beginWatch(ctx context.Context, opts []ReadOption) (*watching, error) {
	cfg, err := newReadConfig(opts)
	if err != nil {
		return nil, err
	}
	w := &watching{c: c, cfg: cfg, in: make(chan *nats.Msg, maxUnread)}
	if w.sub, err = c.conn.NATS().ChanSubscribe(c.conn.Out(c.Caller(), "*"), w.in); err != nil {
		return nil, frames.NewError(frames.CodeUnavailable, "cannot watch: %w", bus.Words(err))
	}
	if err := c.conn.Flush(ctx); err != nil {
		_ = w.sub.Unsubscribe() // likewise
		return nil, err
	}
	return w, nil
}

// read gives what comes to yield; nil: the range was left.
func (w *watching) read(ctx context.Context, yield func(frames.Frame, error) bool) error {
	look := time.NewTicker(askAgain)
	defer look.Stop()
	for {
		select {
		case m := <-w.in:
			if !w.pass(m, yield) {
				return nil
			}
		case <-look.C:
			if err := w.connected(); err != nil {
				return err
			}
		case <-ctx.Done():
			return frames.AsError(context.Cause(ctx))
		}
	}
}

func (w *watching) connected() error {
	switch {
	case w.c.conn.NATS().IsConnected():
		w.away = time.Time{}
	case w.away.IsZero():
		w.away = time.Now()
	case time.Since(w.away) >= w.cfg.outage:
		return frames.NewError(frames.CodeUnavailable, "the connection to the mesh has been lost for %v", w.cfg.outage)
	}
	return nil
}

func (w *watching) pass(m *nats.Msg, yield func(frames.Frame, error) bool) bool {
	msg, err := frames.Decode(m.Data)
	if err != nil {
		return true // not ours
	}
	tokens := w.c.conn.Tokens(m.Subject)
	for i := range msg.Frames {
		f := msg.Frames[i]
		f.Metadata.Set("sessionId", frames.Value(tokens[len(tokens)-1]))
		if !yield(f, nil) {
			return false
		}
	}
	return true
}
