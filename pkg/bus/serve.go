package bus

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Handler answers one request. Its context is the one given to Handle, with the
// request's trace headers.
type Handler func(ctx context.Context, r *Request)

// Request is one message that came in, with the means to answer it.
type Request struct {
	frames.Message

	// Subject is the one it came on, Tokens those behind the mesh's prefix.
	Subject string
	Tokens  []string
	Header  nats.Header

	c     *Conn
	reply string
	trace nats.Header // the request's, which its answers carry too

	mu    sync.Mutex
	seq   uint64
	ended bool
	tick  *Ask
}

// Caller gives the token that proves who asks, on subjects that have one.
func (r *Request) Caller() string {
	if len(r.Tokens) < 2 {
		return ""
	}
	return r.Tokens[1]
}

// Expects reports whether an answer was asked for.
func (r *Request) Expects() bool { return r.reply != "" }

// Send answers with frames in one message, numbered and in the encoding of the
// request. After END nothing more is sent: the error is CONFLICT.
func (r *Request) Send(fs ...frames.Frame) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return frames.NewError(frames.CodeConflict, "the exchange has ended")
	}
	if r.reply == "" {
		return nil
	}
	ptrs := make([]*frames.Frame, len(fs))
	for i := range fs {
		r.seq++
		fs[i].Seq = r.seq
		ptrs[i] = &fs[i]
		r.ended = r.ended || fs[i].Type == frames.TypeEnd
	}
	data, err := frames.Encode(r.Encoding, ptrs...)
	if err == nil {
		err = r.c.send(&nats.Msg{Subject: r.reply, Data: data, Header: r.trace})
	}
	if err != nil {
		r.ended = false
		r.seq -= uint64(len(fs))
	}
	if r.ended {
		r.stopTick()
	}
	return err
}

// End answers with frames and END in one message.
func (r *Request) End(reason string, fs ...frames.Frame) error {
	return r.Send(append(fs, frames.End(reason))...)
}

// Fail answers with ERROR and END; a request for a tool call is answered
// TOOL_RESULT and END instead.
func (r *Request) Fail(err error) error {
	if fam, _ := familyOf(r.Tokens); fam.call {
		return r.End(frames.EndError, frames.FailedResult(err))
	}
	return r.End(frames.EndError, frames.Fail(err))
}

// Subscription is a subject that is served.
type Subscription struct {
	sub *nats.Subscription
	// running counts requests from delivery to the end of their handler.
	running sync.WaitGroup
}

// maxPending is how many bytes of requests, or of answers, may wait for their
// handler; what comes above that is lost.
const maxPending = 256 << 20

type handling struct {
	c     *Conn
	work  context.Context //nolint:containedctx // what handlers run under, as long as it serves
	h     Handler
	slots chan struct{}
	s     *Subscription
	log   *slog.Logger

	refused sparse // reply subjects
}

// HandleOption sets how a subject is served.
type HandleOption func(*handling)

// WithWorkers runs up to n handlers at once, each in its goroutine; the next
// request waits. Without it the handler runs on the subscription's own
// goroutine and must not block.
func WithWorkers(n int) HandleOption {
	return func(h *handling) { h.slots = make(chan struct{}, n) }
}

// WithLogger sets where refused messages are logged; default slog.Default().
func WithLogger(l *slog.Logger) HandleOption { return func(h *handling) { h.log = l } }

// Handle serves a subject; queue may be empty. Requests whose reply subject is
// not the caller's inbox are dropped and counted, unreadable ones answered
// BAD_FRAME. work is what handlers run under: it should outlive the drain.
func (c *Conn) Handle(work context.Context, subject, queue string, h Handler, opts ...HandleOption) (*Subscription, error) {
	g := &handling{c: c, work: work, h: h, s: &Subscription{}, log: slog.Default()}
	for _, o := range opts {
		o(g)
	}
	sub, err := c.nc.QueueSubscribe(subject, queue, g.deliver)
	if err != nil {
		return nil, unavailable("cannot subscribe "+subject, err)
	}
	if err := sub.SetPendingLimits(-1, maxPending); err != nil {
		return nil, unavailable("cannot bound "+subject, err)
	}
	g.s.sub = sub
	return g.s, nil
}

func (g *handling) deliver(m *nats.Msg) {
	r, ok := g.open(m)
	if !ok {
		return
	}
	g.s.running.Add(1)
	if g.slots == nil {
		g.run(r)
		return
	}
	g.slots <- struct{}{}
	go func() {
		defer func() { <-g.slots }()
		g.run(r)
	}()
}

func (g *handling) run(r *Request) {
	defer g.s.running.Done()
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("handler panicked", "subject", r.Subject, "panic", p)
			_ = r.Fail(frames.NewError(frames.CodeInternal, "the handler panicked"))
		}
	}()
	ctx := WithTrace(g.work, r.Header)
	r.trace = TraceHeader(ctx)
	g.h(ctx, r)
}

// open checks the reply subject and reads the message; ok is false where it was
// answered or dropped.
func (g *handling) open(m *nats.Msg) (*Request, bool) {
	r := &Request{Subject: m.Subject, Tokens: g.c.Tokens(m.Subject), Header: m.Header, c: g.c, reply: m.Reply}
	if !g.c.replyAllowed(r.Tokens, m.Reply) {
		g.c.counters.refusedReplies.Add(1)
		if silent, ok := g.refused.pass(); ok {
			g.log.Warn("refused a reply subject", "subject", m.Subject, "reply", m.Reply, "not_logged", silent)
		}
		return nil, false
	}
	r.Encoding = frames.Detect(m.Data)
	msg, err := frames.Decode(m.Data)
	if err == nil {
		err = g.checkTypes(&msg)
	}
	if err != nil {
		g.c.counters.badFrames.Add(1)
		_ = r.Fail(err) // nobody else to tell
		return nil, false
	}
	r.Message = msg
	return r, true
}

// checkTypes skips frames of unknown types beside known ones; a message without
// any known frame is refused.
func (g *handling) checkTypes(m *frames.Message) error {
	known := m.Frames[:0:0]
	for _, f := range m.Frames {
		if f.Type.Known() {
			known = append(known, f)
		}
	}
	if n := len(m.Frames) - len(known); n > 0 {
		g.c.counters.unknownFrames.Add(uint64(n))
	}
	if len(known) == 0 {
		return frames.NewError(frames.CodeBadFrame, "Unknown frame type: %s", m.Frames[0].Type)
	}
	m.Frames = known
	return nil
}

// replyAllowed is the reply rule: a service answers only into the caller's own
// inbox, or where only dispatchers may publish into any inbox.
func (c *Conn) replyAllowed(tokens []string, reply string) bool {
	if len(tokens) == 0 {
		return false
	}
	f, ok := familyOf(tokens)
	switch {
	case !ok:
		return reply == ""
	case reply == "":
		return f.silent
	case f.callerInbox:
		return len(tokens) > 1 && strings.HasPrefix(reply, InboxPrefix(tokens[1])+".")
	}
	return strings.HasPrefix(reply, inboxRoot)
}

// Drain takes no new request, and waits until those that came have been handled
// and answered, or ctx ends.
func (s *Subscription) Drain(ctx context.Context) error {
	closed := make(chan struct{})
	s.sub.SetClosedHandler(func(string) { close(closed) })
	if err := s.sub.Drain(); err != nil {
		return unavailable("cannot drain "+s.sub.Subject, err)
	}
	done := make(chan struct{})
	go func() {
		<-closed
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return frames.AsError(context.Cause(ctx))
	}
}

// Subject gives the subject that is served.
func (s *Subscription) Subject() string { return s.sub.Subject }
