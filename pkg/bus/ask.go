package bus

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Answers takes what comes back on a request's reply subject, one message after
// the other. It runs on the connection's delivery goroutine: it must not block,
// and it must not be slow.
type Answers func(m frames.Message, err error)

// ErrClosed is the cause of the UNAVAILABLE that open requests get when their
// [Conn] is closed: they may have been received, and may still be acted on.
var ErrClosed = errors.New("the connection was closed")

// inbox is a connection's own wildcard reply subject: answers are found in a
// map, so that a waiting request costs neither goroutine nor subscription.
type inbox struct {
	c      *Conn
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	ended   *frames.Error // why no answer can come any more
	waiting map[uint64]*Ask
	random  []byte // not used yet
}

func newInbox(c *Conn) *inbox {
	return &inbox{c: c, prefix: InboxPrefix(c.identity) + "." + nuid.Next() + ".", waiting: map[uint64]*Ask{}}
}

func (b *inbox) subject() string { return b.prefix + "*" }

func (b *inbox) open() error {
	sub, err := b.c.nc.Subscribe(b.subject(), b.deliver)
	if err != nil {
		return unavailable("cannot subscribe the inbox", err)
	}
	// The inbox holds every answer of the connection: what bounds it is that
	// each exchange bounds its own.
	if err := sub.SetPendingLimits(-1, maxPending); err != nil {
		return unavailable("cannot bound the inbox", err)
	}
	b.sub = sub
	return nil
}

func (b *inbox) close() {
	_ = b.sub.Unsubscribe() // fails only on a closed connection
	b.end(unavailable("no answer will come", ErrClosed))
}

// end gives every open request, and each one that comes, the error.
func (b *inbox) end(err *frames.Error) {
	b.mu.Lock()
	open := b.waiting
	b.waiting = map[uint64]*Ask{}
	if b.ended == nil {
		b.ended = err
	}
	b.mu.Unlock()
	for _, a := range open {
		a.answers(frames.Message{}, err)
	}
}

// refuse gives the error to the requests that were sent to a subject.
func (b *inbox) refuse(subject string, err error) {
	b.mu.Lock()
	var refused []*Ask
	for _, a := range b.waiting {
		if a.sentTo() == subject {
			refused = append(refused, a)
		}
	}
	b.mu.Unlock()
	for _, a := range refused {
		a.answers(frames.Message{}, err)
	}
}

// add gives a request its reply subject, which nobody can guess: services may
// publish to every inbox, and one that was sent a request must not find the
// answers to others from its reply subject.
func (b *inbox) add(a *Ask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.id = b.token()
	for b.waiting[a.id] != nil {
		a.id = b.token()
	}
	a.reply = b.prefix + strconv.FormatUint(a.id, 36)
	if b.ended == nil {
		b.waiting[a.id] = a
	}
}

func (b *inbox) token() uint64 {
	const size, some = 8, 64
	if len(b.random) < size {
		b.random = make([]byte, some*size)
		_, _ = crand.Read(b.random) // never fails
	}
	id := binary.NativeEndian.Uint64(b.random)
	b.random = b.random[size:]
	return id
}

// why gives why no answer can come any more; nil as long as one can.
func (b *inbox) why() *frames.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

func (b *inbox) remove(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, id)
}

func (b *inbox) find(subject string) *Ask {
	id, err := strconv.ParseUint(strings.TrimPrefix(subject, b.prefix), 36, 64)
	if err != nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[id]
}

func (b *inbox) deliver(m *nats.Msg) {
	a := b.find(m.Subject)
	switch {
	case a == nil:
		b.c.counters.lateAnswers.Add(1)
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		a.noResponders()
	default:
		msg, err := frames.Decode(m.Data)
		if err != nil {
			b.c.counters.badFrames.Add(1)
		}
		a.answers(msg, err)
	}
}

// Ask is a request that waits for its answers.
type Ask struct {
	c       *Conn
	id      uint64
	reply   string
	answers Answers

	mu      sync.Mutex
	msg     *nats.Msg
	tries   int
	retry   *time.Timer
	stopped bool
}

// maxTries and the pause between them: interest takes a moment to cross a cluster.
const maxTries = 4

func retryPause(try int) time.Duration {
	return time.Duration(5+rand.IntN(5<<try)) * time.Millisecond //nolint:gosec // a pause, no secret
}

// NewAsk makes a request whose answers go to answers, from Send until Stop.
func (c *Conn) NewAsk(answers Answers) *Ask {
	a := &Ask{c: c, answers: answers}
	c.inbox.add(a)
	return a
}

// Send publishes the request, once. Where nobody listens it is tried again three
// times, 5 to 50 ms apart; then the answers get UNAVAILABLE with the cause
// nats.ErrNoResponders. trace is that of [TraceHeader], or nil. After an error there is no answer, but Stop is due.
func (a *Ask) Send(subject string, data []byte, trace nats.Header) error {
	if why := a.c.inbox.why(); why != nil {
		return why
	}
	m := &nats.Msg{Subject: subject, Reply: a.reply, Data: data, Header: trace}
	a.mu.Lock()
	a.msg = m
	a.mu.Unlock()
	return a.c.send(m)
}

func (a *Ask) sentTo() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.msg == nil {
		return ""
	}
	return a.msg.Subject
}

// Ask makes a request, sends it under ctx's trace and gives what comes back to
// answers until Stop. The error is that of the first publish.
func (c *Conn) Ask(ctx context.Context, subject string, data []byte, answers Answers) (*Ask, error) {
	a := c.NewAsk(answers)
	if err := a.Send(subject, data, TraceHeader(ctx)); err != nil {
		a.Stop()
		return nil, err
	}
	return a, nil
}

// Stop ends the wait; later answers are counted and dropped. Answers may still
// be running when Stop returns, unless it is Answers that calls it.
func (a *Ask) Stop() {
	a.mu.Lock()
	a.stopped = true
	if a.retry != nil {
		a.retry.Stop()
	}
	a.mu.Unlock()
	a.c.inbox.remove(a.id)
}

func (a *Ask) noResponders() {
	a.mu.Lock()
	a.tries++
	again := a.tries < maxTries && !a.stopped
	if again {
		a.retry = time.AfterFunc(retryPause(a.tries), a.again)
	}
	subject := a.msg.Subject
	a.mu.Unlock()
	if !again {
		a.answers(frames.Message{}, nobodyListens(subject))
	}
}

func (a *Ask) again() {
	a.mu.Lock()
	stopped, msg := a.stopped, a.msg
	a.mu.Unlock()
	if stopped {
		return
	}
	if err := a.c.send(msg); err != nil {
		a.answers(frames.Message{}, err)
	}
}

func nobodyListens(subject string) error {
	return frames.NewError(frames.CodeUnavailable, "nobody listens on %s%w", subject, &worded{"", nats.ErrNoResponders})
}
