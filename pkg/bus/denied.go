package bus

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
)

// refusals are the subjects that the server refused on a connection: NATS says
// so behind the back of who publishes or subscribes.
type refusals struct {
	mu    sync.Mutex
	first *frames.Error // of the subscriptions
}

// refusedPattern reads what the server says; both groups are part of its protocol.
var refusedPattern = regexp.MustCompile(`(?i)Permissions Violation for (Publish|Subscription) to "([^"]+)"`)

// readRefusal gives the subject that a server's error refuses.
func readRefusal(err error) (subject string, publish, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false, false
	}
	m := refusedPattern.FindStringSubmatch(err.Error())
	if m == nil {
		return "", false, false
	}
	return m[2], m[1][0] == 'P' || m[1][0] == 'p', true
}

// quietErrors gives the error handler of [Options]: refusals reach who caused
// them, everything else is logged, once in a while.
func quietErrors() nats.ErrHandler {
	var lines sparse
	return func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			return
		}
		silent, ok := lines.pass()
		if !ok {
			return
		}
		at := []any{"identity", nc.Opts.Name, "error", err, "not_logged", silent}
		if sub != nil {
			at = append(at, "subject", sub.Subject)
		}
		slog.Warn("NATS connection", at...)
	}
}

// hearRefusals lets c know what the server refuses; other errors go on to the
// handler that the connection has.
func (c *Conn) hearRefusals() {
	next := c.nc.ErrorHandler()
	c.nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		c.refused(err)
		if next != nil {
			next(nc, sub, err)
		}
	})
}

// refused tells those who wait for an answer that none will come.
func (c *Conn) refused(err error) {
	subject, publish, ok := readRefusal(err)
	switch {
	case !ok:
	case publish:
		c.inbox.refuse(subject, c.denied("publish to", subject))
	default:
		c.refusedSubscription(subject)
	}
}

func (c *Conn) refusedSubscription(subject string) {
	denied := c.denied("read", subject)
	c.refusals.mu.Lock()
	if c.refusals.first == nil {
		c.refusals.first = denied
	}
	c.refusals.mu.Unlock()
	if subject == c.inbox.subject() {
		c.inbox.end(denied)
	}
}

// refusal gives DENIED where the server refused a subscription of the connection.
func (c *Conn) refusal() error {
	// The handler may be behind; what the server said last is known at once.
	if subject, publish, ok := readRefusal(c.nc.LastError()); ok && !publish {
		c.refusedSubscription(subject)
	}
	c.refusals.mu.Lock()
	defer c.refusals.mu.Unlock()
	if c.refusals.first == nil {
		return nil
	}
	return c.refusals.first
}

func (c *Conn) denied(what, subject string) *frames.Error { return denied(c.identity, what, subject) }

// denied says what may not be, in other words than the server's.
func denied(identity, what, subject string) *frames.Error {
	return frames.NewError(frames.CodeDenied,
		"the NATS server does not let identity %s %s %s with this key: check that the key is that of %s, and what %s may do",
		identity, what, subject, identity, identity)
}

// UntilRefused gives a context that ends, with DENIED as its cause, when the
// server refuses what is published or subscribed on nc. It is for connections
// without a [Conn], such as those that JetStream is used on: its requests would
// wait for their time-out.
func UntilRefused(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	next := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if subject, publish, ok := readRefusal(err); ok && publish {
			cancel(denied(nc.Opts.Name, "publish to", subject))
		} else if ok {
			cancel(denied(nc.Opts.Name, "read", subject))
		}
		if next != nil {
			next(nc, sub, err)
		}
	})
	return ctx, func() { cancel(context.Canceled) }
}
