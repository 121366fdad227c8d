package tool

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// keepDone is how many ended calls an instance remembers.
const keepDone = 4096

// aheadWait is how long a call that was sent ahead waits for a slot here before
// it is refused, so that it may run elsewhere.
const aheadWait = 100 * time.Millisecond

// callID tells calls apart: an id counts for one caller.
type callID struct{ caller, id string }

// slotKey is what slots are counted for: a tool whose call runs a loop that calls
// the tool again is not to wait for itself.
type slotKey struct {
	tool  string
	depth int
}

// calls is what one instance runs.
type calls struct {
	mu sync.Mutex
	// running holds the newest attempt of each call, which leads to older ones.
	running  map[callID]*call
	inFlight map[slotKey]int
	ahead    map[slotKey]*call // waits for a slot, one at most
	sending  int               // calls that do not run any more, but have not answered
	draining bool
	idle     chan struct{} // closed when draining and all have answered
	done     map[string]struct{}
	doneRing []string
	doneNext int
}

func newCalls() *calls {
	return &calls{
		running: map[callID]*call{}, inFlight: map[slotKey]int{}, ahead: map[slotKey]*call{}, idle: make(chan struct{}),
		done: map[string]struct{}{}, doneRing: make([]string, keepDone),
	}
}

func (c *call) key() callID      { return callID{c.info.Caller, c.info.ID} }
func (c *call) slotKey() slotKey { return slotKey{c.info.Tool, c.info.Depth} }

// begin takes a slot for the call, or a place to wait for one where it was sent
// ahead, or refuses before anything was done.
func (s *calls) begin(c *call) *frames.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, at, d := c.key(), c.slotKey(), &c.tool.decl
	older := s.running[key]
	switch {
	case older != nil && older.info.Attempt >= c.info.Attempt:
		return frames.NewError(frames.CodeConflict, "call %s of %s still runs", c.info.ID, d.Name).WithReason("running")
	case s.draining:
		return busy("draining", "this instance of tool %s takes no new calls", d.Name)
	case s.inFlight[at] < d.Concurrency:
		s.inFlight[at]++
	case c.ahead && s.ahead[at] == nil:
		s.ahead[at], c.slot = c, make(chan struct{})
	default:
		return busy("busy", "this instance of tool %s runs %d calls, its limit", d.Name, d.Concurrency)
	}
	c.older, s.running[key] = older, c
	return nil
}

// await waits for the slot of a call that has none; the error says that it got
// none and does not run.
func (s *calls) await(ctx context.Context, c *call) *frames.Error {
	if c.slot == nil {
		return nil
	}
	limit := time.NewTimer(aheadWait)
	defer limit.Stop()
	select {
	case <-c.slot:
		return nil
	case <-limit.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead[c.slotKey()] != c {
		return nil // it got one just now
	}
	delete(s.ahead, c.slotKey())
	s.forget(c)
	s.sending++
	if ctx.Err() != nil {
		return stopError(ctx, &c.tool.decl).WithEffect(frames.EffectNone)
	}
	return busy("busy", "this instance of tool %s has no free slot", c.info.Tool)
}

// returned gives the slot of a call whose handler has returned on, and forgets
// that it runs: before its outcome is sent, so that who reads that finds it so.
func (s *calls) returned(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := c.slotKey()
	if next := s.ahead[at]; next != nil {
		delete(s.ahead, at)
		next.begins()
		close(next.slot)
	} else if s.inFlight[at]--; s.inFlight[at] == 0 {
		delete(s.inFlight, at)
	}
	s.forget(c)
	s.sending++
	s.remember(c.info.ID)
}

// forget takes an attempt out of those that run; s.mu is held.
func (s *calls) forget(c *call) {
	key := c.key()
	switch newest := s.running[key]; {
	case newest != c:
		for newest.older != c {
			newest = newest.older
		}
		newest.older = c.older
	case c.older != nil:
		s.running[key] = c.older
	default:
		delete(s.running, key)
	}
}

// sent is told when the outcome of a call is out.
func (s *calls) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending--
	s.checkIdle()
}

// checkIdle tells who drains that all is done; s.mu is held.
func (s *calls) checkIdle() {
	if s.draining && len(s.running) == 0 && s.sending == 0 {
		close(s.idle)
	}
}

// remember keeps the id of an ended call in place of the oldest; s.mu is held.
func (s *calls) remember(id string) {
	delete(s.done, s.doneRing[s.doneNext])
	s.doneRing[s.doneNext] = id
	s.doneNext = (s.doneNext + 1) % len(s.doneRing)
	s.done[id] = struct{}{}
}

// drain refuses new calls from now on; the channel is closed when all others
// have answered.
func (s *calls) drain() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		s.checkIdle()
	}
	return s.idle
}

// state gives "running", "done" or "unknown" of a call id.
func (s *calls) state(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.running {
		if key.id == id {
			return "running"
		}
	}
	if _, ok := s.done[id]; ok {
		return "done"
	}
	return "unknown"
}

// which gives the running calls that match.
func (s *calls) which(match func(*Info) bool) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*call
	for _, c := range s.running {
		for ; c != nil; c = c.older {
			if match(&c.info) {
				found = append(found, c)
			}
		}
	}
	return found
}

// load gives how many of a tool's slots are taken.
func (s *calls) load(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for depth := range frames.MaxCallDepth + 1 {
		n += s.inFlight[slotKey{tool, depth}]
	}
	return n
}

// serveCall answers one request on a tool's subject. It does not block: what
// takes time runs in the call's own goroutine.
func (s *server) serveCall(ctx context.Context, r *bus.Request) {
	if !r.Expects() {
		s.log.Warn("call without a reply subject dropped", "subject", r.Subject)
		return
	}
	c, args, err := s.open(r)
	if err != nil {
		s.refuse(r, err)
		return
	}
	ctx, c.stop = context.WithCancelCause(ctx) // before a CANCEL can find the call
	if err := s.calls.begin(c); err != nil {
		c.stop(nil)
		s.refuse(r, err)
		return
	}
	go func() {
		defer c.stop(nil)
		defer s.calls.sent()
		if err := s.calls.await(ctx, c); err != nil {
			s.refuse(r, err)
			return
		}
		c.run(ctx, args, func() { s.calls.returned(c) })
	}()
}

// refuse answers a call that does not start.
func (s *server) refuse(r *bus.Request, err *frames.Error) {
	var opts []frames.Option
	if f := r.First(frames.TypeToolCall); f != nil {
		opts = callOptions(f, r.Tokens[len(r.Tokens)-1])
	}
	s.log.Debug("call refused", "subject", r.Subject, "code", err.Code, "reason", err.Reason)
	if err := r.End(frames.EndError, frames.FailedResult(err, opts...)); err != nil {
		s.log.Warn("refusal not sent", "subject", r.Subject, "error", err)
	}
}

// callOptions are what each frame of a call's exchange carries.
func callOptions(f *frames.Frame, tool string) []frames.Option {
	return []frames.Option{frames.WithCall(f.ToolCallID, tool), frames.WithStream(f.StreamID)}
}

// open reads a request as one whole call of a tool that is here.
func (s *server) open(r *bus.Request) (*call, json.RawMessage, *frames.Error) {
	name := r.Tokens[len(r.Tokens)-1]
	f, err := onlyCall(r, name)
	if err != nil {
		return nil, nil, err
	}
	t := s.set.find(name)
	if t == nil {
		all, _ := s.set.after(0)
		return nil, nil, frames.NotFound(name, all)
	}
	args, aerr := f.Arguments()
	switch limit := s.conn.InlineLimit(); {
	case aerr != nil:
		return nil, nil, frames.AsError(aerr)
	case len(args) > limit:
		return nil, nil, frames.TooLarge("the arguments of tool "+name, int64(len(args)), int64(limit))
	}
	c := s.newCall(r, f, t)
	if c.info.Depth > frames.MaxCallDepth {
		return nil, nil, frames.NewError(frames.CodeLimit, "calls are nested %d deep, the limit is %d", c.info.Depth, frames.MaxCallDepth)
	}
	return c, args, nil
}

// onlyCall gives the one TOOL_CALL of a request for the tool. A call without an
// id gets one.
func onlyCall(r *bus.Request, name string) (*frames.Frame, *frames.Error) {
	f := r.First(frames.TypeToolCall)
	if f == nil {
		return nil, frames.UnknownType(r.Frames[0].Type)
	}
	for i := range r.Frames {
		if g := &r.Frames[i]; g.Type == frames.TypeToolCall && g != f {
			return nil, badCall("more than one TOOL_CALL in a message")
		}
	}
	switch {
	case f.Name != "" && f.Name != name:
		return nil, badCall("the frame names tool %q, the subject %q", clip(f.Name, 80), name)
	case f.Metadata.Bool("streaming"):
		return nil, badCall("the call's arguments are streamed: a tool takes whole calls")
	}
	if f.ToolCallID == "" {
		f.ToolCallID = nuid.Next()
	}
	if !frames.ValidName(f.ToolCallID) {
		return nil, badCall("toolCallId: want 1 to 64 letters, digits, _ or -")
	}
	return f, nil
}

func (s *server) newCall(r *bus.Request, f *frames.Frame, t *declared) *call {
	c := &call{
		info: infoOf(f, t.decl.Name), tool: t, instance: s.id, req: r, limit: limitOf(f, &t.decl), ahead: f.Metadata.Bool("ahead"),
		opts: callOptions(f, t.decl.Name), inline: s.conn.InlineLimit(), service: s.ended,
	}
	c.begins()
	c.live = &live{send: r.Send, opts: c.opts}
	c.log = s.log.With("tool", c.info.Tool, "call_id", c.info.ID, "session_id", c.info.SessionID, "caller", c.info.Caller)
	return c
}

// limitOf gives how long a call may run: as its dispatcher says, but no longer
// than the tool declares.
func limitOf(f *frames.Frame, d *frames.Declaration) time.Duration {
	limit := d.TimeoutOr(frames.MaxTimeout)
	switch ms := f.Metadata.Int("timeoutMs"); {
	case ms > 0 && ms < limit.Milliseconds():
		return time.Duration(ms) * time.Millisecond
	case ms <= 0:
		return d.Timeout()
	}
	return limit
}

// begins starts the call's time.
func (c *call) begins() {
	c.started = time.Now()
	c.info.Deadline = c.started.Add(c.limit)
}
