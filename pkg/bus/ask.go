package bus

import (
	"context"
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

// inbox is a connection's own wildcard reply subject: answers are found in a
// map, so that a waiting request costs neither goroutine nor subscription.
type inbox struct {
	c      *Conn
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*Ask
}

func openInbox(c *Conn) (*inbox, error) {
	b := &inbox{c: c, prefix: InboxPrefix(c.identity) + "." + nuid.Next() + ".", waiting: map[uint64]*Ask{}}
	sub, err := c.nc.Subscribe(b.prefix+"*", b.deliver)
	if err != nil {
		return nil, unavailable("cannot subscribe the inbox", err)
	}
	// The inbox holds every answer of the connection: what bounds it is that
	// each exchange bounds its own.
	if err := sub.SetPendingLimits(-1, 256<<20); err != nil {
		return nil, unavailable("cannot bound the inbox", err)
	}
	b.sub = sub
	return b, nil
}

func (b *inbox) close() {
	_ = b.sub.Unsubscribe() // fails only on a closed connection
	b.mu.Lock()
	open := b.waiting
	b.waiting = map[uint64]*Ask{}
	b.mu.Unlock()
	for _, a := range open {
		a.answers(frames.Message{}, unavailable("the connection was closed", context.Canceled))
	}
}

func (b *inbox) add(a *Ask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	a.id = b.next
	a.reply = b.prefix + strconv.FormatUint(a.id, 36)
	b.waiting[a.id] = a
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
	return time.Duration(5+rand.IntN(5<<try)) * time.Millisecond
}

// NewAsk makes a request whose answers go to answers, from Send until Stop.
func (c *Conn) NewAsk(answers Answers) *Ask {
	a := &Ask{c: c, answers: answers}
	c.inbox.add(a)
	return a
}

// Send publishes the request, once. Where nobody listens it is tried again three
// times, 5 to 50 ms apart; then the answers get UNAVAILABLE. trace is that of
// [TraceHeader], or nil. After an error there is no answer, but Stop is due.
func (a *Ask) Send(subject string, data []byte, trace nats.Header) error {
	a.mu.Lock()
	a.msg = &nats.Msg{Subject: subject, Reply: a.reply, Data: data, Header: trace}
	a.mu.Unlock()
	return a.c.send(a.msg)
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
	a.mu.Unlock()
	if !again {
		a.answers(frames.Message{}, frames.NewError(frames.CodeUnavailable, "nobody listens on %s", a.msg.Subject))
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
