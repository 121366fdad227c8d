package tool

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// flushLimit bounds the wait for the server's answer to a flush.
const flushLimit = 10 * time.Second

// serving is what the options of Serve set.
type serving struct {
	drain time.Duration
	work  context.Context //nolint:containedctx // an option: what calls run under
	ready func()
	log   *slog.Logger
	id    string
}

// ServeOption sets how a [Set] is served.
type ServeOption func(*serving) error

// DrainTimeout is how long running calls may take after the end of Serve's
// context before theirs are ended. Default: 25 s.
func DrainTimeout(limit time.Duration) ServeOption {
	return func(s *serving) error {
		if limit < 0 {
			return frames.NewError(frames.CodeValidationInput, "drain time-out %v, want 0 or more", limit)
		}
		s.drain = limit
		return nil
	}
}

// WorkContext is what calls run under; when it ends they do. It should outlive
// Serve's context by the drain. Default: one that never ends.
func WorkContext(ctx context.Context) ServeOption {
	return func(s *serving) error { s.work = ctx; return nil }
}

// OnReady is called once, when calls can come. Default: nothing.
func OnReady(ready func()) ServeOption {
	return func(s *serving) error { s.ready = ready; return nil }
}

// Logger gets what happens; arguments and results are not logged. Default:
// slog.Default().
func Logger(l *slog.Logger) ServeOption {
	return func(s *serving) error { s.log = l; return nil }
}

// Instance sets the id of this instance, to be unique among those of the
// identity. Default: a new one.
func Instance(id string) ServeOption {
	return func(s *serving) error {
		if !frames.ValidName(id) {
			return frames.NewError(frames.CodeValidationInput, "instance id %q: want 1 to 64 letters, digits, _ or -", id)
		}
		s.id = id
		return nil
	}
}

// Serve puts a set's tools on the bus as one instance of the connection's
// identity and blocks. When ctx ends it withdraws the tools, refuses new calls
// as BUSY and waits for those that run; nil means that all of them have ended.
// The error is DENIED where the identity may not serve tools, UNAVAILABLE where
// the connection is lost for good, TIMEOUT where handlers do not return.
func Serve(ctx context.Context, conn *bus.Conn, s *Set, opts ...ServeOption) error {
	cfg := serving{drain: 25 * time.Second, work: context.WithoutCancel(ctx), ready: func() {}, log: slog.Default(), id: nuid.Next()}
	for _, set := range opts {
		if err := set(&cfg); err != nil {
			return err
		}
	}
	work, stopWork := context.WithCancelCause(cfg.work)
	defer stopWork(nil)
	srv := &server{
		set: s, conn: conn, id: cfg.id, calls: newCalls(), ended: work.Done(), since: time.Now(),
		log: cfg.log.With("service", s.service, "instance", cfg.id),
	}
	if err := srv.start(ctx, work); err != nil {
		return errors.Join(err, srv.unsubscribe(work))
	}
	cfg.ready()
	lost := srv.announceUntil(ctx, work)
	return errors.Join(lost, srv.drain(work, cfg.drain, stopWork))
}

// server is one instance that serves a set.
type server struct {
	set   *Set
	conn  *bus.Conn
	id    string
	log   *slog.Logger
	calls *calls
	ended <-chan struct{} // the end of the work context
	since time.Time       // tells the newest of several declarations, however often they are announced

	subs  []*bus.Subscription
	tools []string // those whose CANCEL is heard
	// announced: all tools were announced, at this count of reconnects.
	announced  bool
	reconnects uint64
	skips      int // what is skipped was told, as it was set so often
}

// start subscribes, and announces once the server knows of the subscriptions.
func (s *server) start(ctx, work context.Context) error {
	before := s.conn.NATS().LastError()
	identity := s.conn.Identity()
	for _, on := range []struct {
		subject string
		handler bus.Handler
	}{
		{s.conn.InstTool(identity, s.id, "*"), s.serveCall},
		{s.conn.Inst(identity, s.id), s.serveControl},
		{s.conn.Describe(), s.serveDescribe},
	} {
		if err := s.subscribe(work, on.subject, on.handler); err != nil {
			return err
		}
	}
	names, _ := s.set.after(0)
	if err := s.addTools(work, names); err != nil {
		return err
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	if err := s.denied(before); err != nil {
		return err
	}
	if err := errors.Join(s.announceTools(ctx), s.announceAlive(ctx), s.flush(ctx)); err != nil {
		return err
	}
	return s.denied(before)
}

func (s *server) subscribe(work context.Context, subject string, h bus.Handler) error {
	sub, err := s.conn.Handle(work, subject, "", h, bus.WithLogger(s.log))
	if err != nil {
		return err
	}
	s.subs = append(s.subs, sub)
	return nil
}

// addTools hears CANCEL for tools from now on.
func (s *server) addTools(work context.Context, names []string) error {
	for _, name := range names {
		if err := s.subscribe(work, s.conn.CtlTool(name), s.serveCancel); err != nil {
			return err
		}
		s.tools = append(s.tools, name)
	}
	return nil
}

// flush waits for the server. That a subject was refused is left to denied: Flush
// knows of subscriptions alone, and of those that are not this instance's too.
func (s *server) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushLimit)
	defer cancel()
	if err := s.conn.Flush(ctx); frames.CodeOf(err) != frames.CodeDenied {
		return err
	}
	return nil
}

// denied gives DENIED if the server has refused a subject of this instance since
// before: NATS says so behind the back of who subscribes or publishes.
func (s *server) denied(before error) error {
	err := s.conn.NATS().LastError()
	if err == nil || err == before || !errors.Is(err, nats.ErrPermissionViolation) { //nolint:errorlint // the very one of before
		return nil
	}
	subjects := []string{s.conn.Announce(s.conn.Identity(), s.id)}
	for _, sub := range s.subs {
		subjects = append(subjects, sub.Subject())
	}
	if !slices.ContainsFunc(subjects, func(subject string) bool { return strings.Contains(err.Error(), `"`+subject) }) {
		return nil
	}
	return frames.NewError(frames.CodeDenied,
		"identity %s may not serve tools with this key: connect as one that has the role tool, with its key: %w", s.conn.Identity(), err)
}

// drain ends the service; calls that outlast limit are ended, then given up.
func (s *server) drain(work context.Context, limit time.Duration, stopWork context.CancelCauseFunc) error {
	idle := s.calls.drain()
	s.withdraw(work)
	s.log.Info("draining", "timeout", limit)
	after := time.NewTimer(limit)
	defer after.Stop()
	select {
	case <-idle:
		if !s.conn.NATS().IsConnected() {
			return nil // nothing runs, and there is nobody to tell
		}
		return s.unsubscribe(work)
	case <-work.Done():
	case <-after.C:
		stopWork(errStopped)
	}
	return errors.Join(s.waitStopped(idle), s.unsubscribe(work))
}

// waitStopped waits for calls whose context ended.
func (s *server) waitStopped(idle <-chan struct{}) error {
	after := time.NewTimer(grace + time.Second)
	defer after.Stop()
	select {
	case <-idle:
		return nil
	case <-after.C:
	}
	var names []string
	for _, c := range s.calls.which(func(*Info) bool { return true }) {
		names = append(names, c.info.Tool)
	}
	slices.Sort(names)
	return frames.NewError(frames.CodeTimeout, "%d calls did not end although they were told to, of %s",
		len(names), strings.Join(slices.Compact(names), ", "))
}

// unsubscribe answers what has come in and takes nothing more. It does so although
// the work is given up in the meantime.
func (s *server) unsubscribe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	var errs []error
	for _, sub := range s.subs {
		errs = append(errs, sub.Drain(ctx))
	}
	s.subs = nil
	return errors.Join(append(errs, s.flush(ctx))...)
}
