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

// callID tells calls apart: an id counts for one caller.
type callID struct{ caller, id string }

// calls is what one instance runs.
type calls struct {
	mu       sync.Mutex
	running  map[callID]*call
	inFlight map[string]int // by tool
	sending  int            // calls that do not run any more, but have not answered
	draining bool
	idle     chan struct{} // closed when draining and all have answered
	done     map[string]struct{}
	doneRing []string
	doneNext int
}

func newCalls() *calls {
	return &calls{
		running: map[callID]*call{}, inFlight: map[string]int{}, idle: make(chan struct{}),
		done: map[string]struct{}{}, doneRing: make([]string, keepDone),
	}
}

// begin takes a slot for the call, or refuses before anything was done.
func (s *calls) begin(c *call) *frames.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, d := callID{c.info.Caller, c.info.ID}, &c.tool.decl
	switch {
	case s.running[key] != nil:
		return frames.NewError(frames.CodeConflict, "call %s of %s still runs", c.info.ID, d.Name).WithReason("running")
	case s.draining:
		return busy("draining", "this instance of tool %s takes no new calls", d.Name)
	case s.inFlight[d.Name] >= d.Concurrency:
		return busy("busy", "this instance of tool %s runs %d calls, its limit", d.Name, d.Concurrency)
	}
	s.running[key] = c
	s.inFlight[d.Name]++
	return nil
}

// returned gives the slot of a call whose handler has returned back, and forgets
// that it runs: before its outcome is sent, so that who reads that finds it so.
func (s *calls) returned(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[c.info.Tool]--
	delete(s.running, callID{c.info.Caller, c.info.ID})
	s.sending++
	s.remember(c.info.ID)
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
		if match(&c.info) {
			found = append(found, c)
		}
	}
	return found
}

// load gives how many of a tool's slots are taken.
func (s *calls) load(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight[tool]
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
	return s.newCall(r, f, t), args, nil
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
	limit := t.decl.Timeout()
	if ms := f.Metadata.Int("timeoutMs"); ms > 0 && ms < limit.Milliseconds() {
		limit = time.Duration(ms) * time.Millisecond
	}
	c := &call{
		info: infoOf(f, t.decl.Name), tool: t, instance: s.id, req: r, started: time.Now(),
		opts: callOptions(f, t.decl.Name), inline: s.conn.InlineLimit(), service: s.ended,
	}
	c.info.Deadline = c.started.Add(limit)
	c.live = &live{send: r.Send, opts: c.opts}
	c.log = s.log.With("tool", c.info.Tool, "call_id", c.info.ID, "session_id", c.info.SessionID, "caller", c.info.Caller)
	return c
}
