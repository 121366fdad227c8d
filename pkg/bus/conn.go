// Package bus carries frames over NATS: subjects as functions, exchanges of one
// request and any number of answers up to END, the check of reply subjects,
// queue subscriptions with bounded concurrency, and drain.
package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Options gives the NATS options that every connection of a mesh wants: inboxes
// under the identity's own prefix, reconnects for ever, no buffer of commands
// while there is no connection, a ping each 20 s; what goes wrong behind the back
// of a call goes to slog.Default(). Further options may follow.
func Options(identity string) []nats.Option {
	return []nats.Option{
		nats.Name(identity),
		nats.CustomInboxPrefix(InboxPrefix(identity)),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(20 * time.Second),
		nats.ErrorHandler(quietErrors()),
	}
}

// Stats counts what a connection refused or dropped.
type Stats struct {
	// BadFrames are messages that could not be read.
	BadFrames uint64
	// RefusedReplies are requests whose reply subject was not the caller's.
	RefusedReplies uint64
	// UnknownFrames are frames of a type that is not spoken.
	UnknownFrames uint64
	// LateAnswers came after their exchange was over.
	LateAnswers uint64
}

type counters struct{ badFrames, refusedReplies, unknownFrames, lateAnswers atomic.Uint64 }

// Conn is an identity's connection to a mesh. It is safe for concurrent use.
type Conn struct {
	Subjects

	nc       *nats.Conn
	identity string
	inbox    *inbox
	counters counters
	refusals refusals
	// closeNATS is set where the NATS connection is the Conn's own.
	closeNATS func()
}

// Option sets up a Conn.
type Option func(*Conn) error

// WithPrefix sets the mesh's prefix, default "wb".
func WithPrefix(prefix string) Option {
	return func(c *Conn) error {
		if !frames.ValidName(prefix) {
			return frames.NewError(frames.CodeValidationInput, "prefix %q: want letters, digits, _ and -", prefix)
		}
		c.Prefix = prefix
		return nil
	}
}

// New takes over a NATS connection that was made with [Options] of the same
// identity. The caller still owns nc and closes it, after [Conn.Close].
func New(nc *nats.Conn, identity string, opts ...Option) (*Conn, error) {
	if !frames.ValidName(identity) || identity == "tool" || identity == "sys" {
		return nil, frames.NewError(frames.CodeValidationInput,
			"identity %q: want letters, digits, _ and -, and neither tool nor sys", identity)
	}
	if got := nc.Opts.InboxPrefix; got != InboxPrefix(identity) {
		return nil, frames.NewError(frames.CodeConflict,
			"the connection's inbox prefix is %q, want %q: connect with bus.Options", got, InboxPrefix(identity))
	}
	c := &Conn{nc: nc, identity: identity}
	for _, o := range opts {
		if err := o(c); err != nil {
			return nil, err
		}
	}
	c.inbox = newInbox(c)
	c.hearRefusals()
	return c, c.inbox.open()
}

// Close gives up the connection's inbox: open exchanges get no more answers. It
// closes the NATS connection only where [Connect] made it.
func (c *Conn) Close() {
	c.inbox.close()
	if c.closeNATS != nil {
		c.closeNATS()
	}
}

// NATS gives the connection beneath.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// Identity gives who the connection speaks as.
func (c *Conn) Identity() string { return c.identity }

// InlineLimit is how many bytes of arguments, result or request travel inline.
func (c *Conn) InlineLimit() int { return frames.InlineLimit(c.nc.MaxPayload()) }

// Stats gives the counts so far.
func (c *Conn) Stats() Stats {
	n := &c.counters
	return Stats{n.badFrames.Load(), n.refusedReplies.Load(), n.unknownFrames.Load(), n.lateAnswers.Load()}
}

// Publish sends frames to a subject in one message.
func (c *Conn) Publish(ctx context.Context, subject string, enc frames.Encoding, fs ...*frames.Frame) error {
	data, err := frames.Encode(enc, fs...)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: subject, Data: data, Header: TraceHeader(ctx)})
}

// PublishData sends a message that is encoded already.
func (c *Conn) PublishData(subject string, data []byte) error {
	return c.send(&nats.Msg{Subject: subject, Data: data})
}

// send publishes a message; over the server's limit it is TOO_LARGE, without a
// connection UNAVAILABLE.
func (c *Conn) send(m *nats.Msg) error {
	if most := c.nc.MaxPayload(); int64(len(m.Data)) > most {
		return frames.NewError(frames.CodeTooLarge, "message of %d bytes, the server's max_payload is %d", len(m.Data), most)
	}
	err := c.nc.PublishMsg(m)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return frames.NewError(frames.CodeTooLarge, "message of %d bytes: %w", len(m.Data), Words(err))
	case errors.Is(err, nats.ErrBadSubject):
		return frames.NewError(frames.CodeValidationInput, "subject %q: %w", m.Subject, Words(err))
	}
	return unavailable("cannot publish", err)
}

// flushLimit bounds a flush whose context has no deadline.
const flushLimit = 10 * time.Second

// Flush waits until the server has seen what was published and subscribed so
// far, at most 10 s where ctx has no deadline. It is DENIED where the server
// refused a subscription of the connection, then or before.
func (c *Conn) Flush(ctx context.Context) error {
	limited := ctx
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, flushLimit)
		defer cancel()
	}
	err := c.nc.FlushWithContext(limited)
	switch {
	case err == nil:
		return c.refusal()
	case ctx.Err() != nil:
		return frames.AsError(context.Cause(ctx))
	}
	return unavailable("cannot flush", err)
}

func unavailable(what string, err error) *frames.Error {
	return frames.NewError(frames.CodeUnavailable, "%s: %w", what, Words(err))
}

// traceHeaders are the W3C trace context as NATS headers.
var traceHeaders = [...]string{"traceparent", "tracestate", "baggage"}

type traceKey struct{}

// WithTrace gives a context that carries a message's W3C trace headers to every
// message that is sent under it.
func WithTrace(ctx context.Context, h nats.Header) context.Context {
	var kept nats.Header
	for _, k := range traceHeaders {
		if v := h.Get(k); v != "" {
			if kept == nil {
				kept = nats.Header{}
			}
			kept.Set(k, v)
		}
	}
	if kept == nil {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, kept)
}

// TraceHeader gives the W3C trace headers that ctx carries; nil where it has none.
func TraceHeader(ctx context.Context) nats.Header {
	kept, _ := ctx.Value(traceKey{}).(nats.Header)
	if kept == nil {
		return nil
	}
	h := make(nats.Header, len(kept))
	maps.Copy(h, kept)
	return h
}

// String gives identity and mesh, for a log.
func (c *Conn) String() string { return fmt.Sprintf("%s@%s", c.identity, c.join("")) }
