package argstream

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Key says which call a piece belongs to. A call is open once for its owner and
// id; the stream groups calls that end together.
type Key struct {
	// Owner is who may send pieces; "" where there is one only.
	Owner string
	// Stream is the model turn, or whatever the call is part of.
	Stream string
	// Call is the call's id.
	Call string
}

type callID struct{ owner, call string }

func (k Key) id() callID { return callID{k.Owner, k.Call} }

// Limits bound [Calls]. A zero field stands for its default.
type Limits struct {
	// Bytes of one call's text. Default: MaxBytes.
	Bytes int
	// TotalBytes of all open calls together. Default: 256 MiB.
	TotalBytes int
	// Calls that may be open at once. Default: 1024.
	Calls int
	// OwnerBytes and OwnerCalls are one owner's share of both. Default: a quarter.
	OwnerBytes, OwnerCalls int
	// Age is how long a call may be open. Default: 10 minutes.
	Age time.Duration
}

func (l Limits) filled() Limits {
	for _, f := range []struct {
		field    *int
		standard int
	}{
		{&l.Bytes, MaxBytes}, {&l.TotalBytes, 256 << 20}, {&l.Calls, 1024},
	} {
		if *f.field <= 0 {
			*f.field = f.standard
		}
	}
	if l.OwnerBytes <= 0 {
		l.OwnerBytes = max(l.TotalBytes/4, min(l.Bytes, l.TotalBytes))
	}
	if l.OwnerCalls <= 0 {
		l.OwnerCalls = max(l.Calls/4, 1)
	}
	if l.Age <= 0 {
		l.Age = 10 * time.Minute
	}
	return l
}

// Calls are the calls whose arguments still come in pieces. It is a pure state
// machine, not safe for concurrent use.
type Calls struct {
	limits Limits
	open   map[callID]*entry
	owners map[string]*share
	total  share
	opened uint64 // calls so far
}

type share struct{ calls, bytes int }

type entry struct {
	key      Key
	n        uint64 // counts the calls as they were opened
	opened   time.Time
	text     Joiner
	seq      uint64        // of the last piece that has a number
	numbered bool          // a piece had one
	failed   *frames.Error // why the call cannot run any more; then there is no text
}

// NewCalls makes an empty set.
func NewCalls(l Limits) *Calls {
	return &Calls{limits: l.filled(), open: map[callID]*entry{}, owners: map[string]*share{}}
}

// Open opens a call. One that is open already is CONFLICT, one too many BUSY.
func (c *Calls) Open(k Key, now time.Time) error {
	own := c.share(k.Owner)
	switch {
	case c.open[k.id()] != nil:
		return frames.NewError(frames.CodeConflict, "call %s is open already", k.Call)
	case c.total.calls >= c.limits.Calls, own.calls >= c.limits.OwnerCalls:
		return full("%d calls have their arguments under way already", own.calls)
	}
	c.opened++
	e := &entry{key: k, n: c.opened, opened: now, text: Joiner{Limit: c.limits.Bytes}}
	c.open[k.id()], c.owners[k.Owner] = e, own
	own.calls++
	c.total.calls++
	return nil
}

func (c *Calls) share(owner string) *share {
	if s := c.owners[owner]; s != nil {
		return s
	}
	return &share{}
}

func full(format string, args ...any) *frames.Error {
	e := frames.NewError(frames.CodeBusy, format, args...).WithReason("busy")
	e.RetryAfter = time.Second
	return e
}

// Has reports whether a call is open, in any stream.
func (c *Calls) Has(owner, call string) bool { return c.open[callID{owner, call}] != nil }

// find gives an open call. A key without a stream means the call in any stream.
func (c *Calls) find(k Key, now time.Time) (*entry, error) {
	e := c.open[k.id()]
	switch {
	case e == nil, k.Stream != "" && k.Stream != e.key.Stream:
		return nil, notOpen(k.Call)
	case c.old(e, now):
		c.forget(e)
		return nil, c.expired(e)
	}
	return e, nil
}

func (c *Calls) old(e *entry, now time.Time) bool { return now.Sub(e.opened) >= c.limits.Age }

func notOpen(call string) error {
	e := frames.NewError(frames.CodeConflict,
		"call %q is not open here: it was never opened, was closed, or took too long; send the whole call", call)
	return e.WithReason("not_open")
}

// Add appends a piece. seq counts the call's pieces from 1; a number that was
// there is dropped, one that is missing is an error, 0 is not checked. An error
// stands for the call from then on, whose text is forgotten: TOO_LARGE, BUSY
// where all calls together hold too much, BAD_FRAME for a gap.
func (c *Calls) Add(k Key, seq uint64, piece []byte, now time.Time) error {
	e, err := c.find(k, now)
	if err != nil {
		return err
	}
	switch {
	case e.failed != nil:
		return e.failed
	case seq > e.seq+1:
		return c.fail(e, gap(k.Call, e.seq+1, seq))
	case seq > 0 && seq <= e.seq:
		return nil
	}
	if n := len(piece); c.total.bytes+n > c.limits.TotalBytes || c.owners[e.key.Owner].bytes+n > c.limits.OwnerBytes {
		return c.fail(e, full("the arguments that are under way are over the limit of all calls together"))
	}
	if err := e.text.Add(piece); err != nil {
		return c.fail(e, frames.AsError(err))
	}
	if seq > 0 {
		e.seq, e.numbered = seq, true
	}
	c.count(e, len(piece))
	return nil
}

func gap(call string, want, got uint64) *frames.Error {
	e := frames.NewError(frames.CodeBadFrame,
		"piece %d of the arguments of call %s is missing, got %d: the pieces of a call are numbered 1, 2, 3 …", want, call, got)
	return e.WithReason("arguments_gap")
}

func (c *Calls) count(e *entry, bytes int) {
	c.owners[e.key.Owner].bytes += bytes
	c.total.bytes += bytes
}

// fail lets err stand for the call.
func (c *Calls) fail(e *entry, err *frames.Error) error {
	c.count(e, -e.text.Len())
	e.failed, e.text = err, Joiner{}
	return err
}

// Fail lets err stand for an open call, whose text is forgotten; false where
// the call is not open.
func (c *Calls) Fail(k Key, err *frames.Error, now time.Time) bool {
	e, missing := c.find(k, now)
	if missing != nil {
		return false
	}
	if e.failed == nil {
		_ = c.fail(e, err)
	}
	return true
}

// Close forgets a call and gives its whole text, or what stands for it. seq is
// that of the closing frame, behind the last piece; 0, or no numbers on the
// pieces, is not checked.
func (c *Calls) Close(k Key, seq uint64, now time.Time) (text []byte, err error) {
	e, err := c.find(k, now)
	if err != nil {
		return nil, err
	}
	if e.failed == nil && e.numbered && seq > e.seq+1 {
		_ = c.fail(e, gap(k.Call, e.seq+1, seq))
	}
	c.forget(e)
	if e.failed != nil {
		return nil, e.failed
	}
	return e.text.text, nil
}

func (c *Calls) forget(e *entry) {
	c.count(e, -e.text.Len())
	c.total.calls--
	own := c.owners[e.key.Owner]
	if own.calls--; own.calls == 0 {
		delete(c.owners, e.key.Owner)
	}
	delete(c.open, e.key.id())
}

// Streams gives the streams of an owner's open calls.
func (c *Calls) Streams(owner string) []string {
	var out []string
	for _, e := range c.inOrder() {
		if e.key.Owner == owner && !slices.Contains(out, e.key.Stream) {
			out = append(out, e.key.Stream)
		}
	}
	return out
}

// Of gives an owner's open calls of a stream, as they were opened.
func (c *Calls) Of(owner, stream string) []Key {
	var out []Key
	for _, e := range c.inOrder() {
		if e.key.Owner == owner && e.key.Stream == stream {
			out = append(out, e.key)
		}
	}
	return out
}

// inOrder gives the open calls as they were opened.
func (c *Calls) inOrder() []*entry {
	return slices.SortedFunc(maps.Values(c.open), func(a, b *entry) int { return cmp.Compare(a.n, b.n) })
}

// Unclosed is the error of a call whose stream ended before it was closed.
func Unclosed(call string) *frames.Error {
	e := frames.NewError(frames.CodeValidationInput, "the stream ended before the arguments of call %s did", call).WithReason(ReasonIncomplete)
	e.LLMMessage = "The output ended before the arguments were complete, so the call did not run. Send it again."
	return e
}

// Expired is a call that was open for too long.
type Expired struct {
	Key Key
	Err *frames.Error
}

// Expire forgets the calls that are open for too long; each has its error: what
// stood for it already, else that.
func (c *Calls) Expire(now time.Time) []Expired {
	var out []Expired
	for _, e := range c.inOrder() {
		if !c.old(e, now) {
			continue
		}
		err := e.failed
		if err == nil {
			err = c.expired(e)
		}
		out = append(out, Expired{e.key, err})
		c.forget(e)
	}
	return out
}

func (c *Calls) expired(e *entry) *frames.Error {
	err := frames.NewError(frames.CodeTimeout, "the arguments of call %s did not end within %v", e.key.Call, c.limits.Age)
	return err.WithReason("arguments_timeout").With(func(err *frames.Error) { err.Effect = frames.EffectNone })
}
