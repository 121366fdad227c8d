package router

import (
	"context"
	"sync"
	"time"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// streams are the calls whose arguments still come in pieces, on this router's
// sink. Nothing of them is kept elsewhere: when the router ends they do, and who
// closes one finds nobody.
type streams struct {
	// id is the router's own token of wb.sink.<caller>.<id>.
	id string

	mu   sync.Mutex
	args *argstream.Calls
	// calls are the open ones, as their openers asked for them.
	calls map[streamID]dispatch.Call
}

type streamID struct{ caller, call string }

func newStreams(id string, limits argstream.Limits) *streams {
	return &streams{id: id, args: argstream.NewCalls(limits), calls: map[streamID]dispatch.Call{}}
}

// open begins a call; without a stream of its own it is one.
func (s *streams) open(c dispatch.Call, stream string) error {
	if stream == "" {
		stream = c.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.args.Open(argstream.Key{Owner: c.Caller, Stream: stream, Call: c.ID}, time.Now())
	if err == nil {
		s.calls[streamID{c.Caller, c.ID}] = c
	}
	return err
}

func (s *streams) has(caller, call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.args.Has(caller, call)
}

func (s *streams) add(k argstream.Key, seq uint64, piece []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.args.Add(k, seq, piece, time.Now())
}

// close ends a call and gives it with its whole text; beside an error stands what
// is known of it.
func (s *streams) close(k argstream.Key, seq uint64) (dispatch.Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.call(k)
	text, err := s.args.Close(k, seq, time.Now())
	s.tidy(k)
	c.Arguments = text
	return c, err
}

// call gives what is known of a call, under the lock.
func (s *streams) call(k argstream.Key) dispatch.Call {
	c := s.calls[streamID{k.Owner, k.Call}]
	c.Caller, c.ID = k.Owner, k.Call
	return c
}

// tidy forgets a call that is not open any more, under the lock.
func (s *streams) tidy(k argstream.Key) {
	if !s.args.Has(k.Owner, k.Call) {
		delete(s.calls, streamID{k.Owner, k.Call})
	}
}

// fail lets an error stand for a call, whose pieces are dropped from now on.
func (s *streams) fail(k argstream.Key, err *frames.Error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.args.Fail(k, err, time.Now())
	s.tidy(k)
	return known
}

// cut lets nothing of a stream run: the model's output ended before it was whole.
func (s *streams) cut(k argstream.Key, reason string) {
	for _, k := range s.keys(k) {
		s.fail(k, argstream.CutOff(s.tool(k), reason))
	}
}

func (s *streams) tool(k argstream.Key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call(k).Tool
}

// keys gives the open calls that a frame means: the one that it names, else those
// of its stream.
func (s *streams) keys(k argstream.Key) []argstream.Key {
	if k.Call != "" {
		return []argstream.Key{k}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.args.Of(k.Owner, k.Stream)
}

// stream gives the stream that a frame means which names no call: without a
// stream too, the only one that its caller has open here.
func (s *streams) stream(k argstream.Key) (argstream.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.Stream != "" || k.Call != "" {
		return k, nil
	}
	switch open := s.args.Streams(k.Owner); len(open) {
	case 0:
	case 1:
		k.Stream = open[0]
	default:
		return k, badCall("the frame names no call and no stream, and several are open: give streamId or toolCallId")
	}
	return k, nil
}

// ended is a call that will not run.
type ended struct {
	call dispatch.Call
	err  *frames.Error
}

// end forgets the calls that a frame means; each has its error.
func (s *streams) end(k argstream.Key) []ended {
	var out []ended
	for _, k := range s.keys(k) {
		c, err := s.close(k, 0)
		if err == nil {
			err = argstream.Unclosed(k.Call)
		}
		out = append(out, ended{c, frames.AsError(err)})
	}
	return out
}

// expire forgets the calls that are open for too long. Nobody can be told before
// the closing frame comes, if it ever does.
func (s *streams) expire() []ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ended
	for _, e := range s.args.Expire(time.Now()) {
		out = append(out, ended{s.call(e.Key), e.Err})
		s.tidy(e.Key)
	}
	return out
}

// openStream answers the TOOL_CALL that opens a call: where its pieces go.
func (r *router) openStream(q *bus.Request, c dispatch.Call, stream string) {
	if stream != "" && !frames.ValidName(stream) {
		r.refuse(q, c, badCall("streamId: want letters, digits, _ and -, at most 64"))
		return
	}
	if err := r.streams.open(c, stream); err != nil {
		r.refuse(q, c, err)
		return
	}
	sink := frames.Meta(map[string]any{"sink": r.conn.Sink(c.Caller, r.streams.id), "state": "open"}, frames.WithCall(c.ID, c.Tool))
	r.sent(q.End(frames.EndCompleted, sink), q)
}

// sink answers wb.sink.<caller>.<id>: the pieces of open calls, and what ends
// them. It reads in the order in which a caller sends.
func (r *router) sink(ctx context.Context, q *bus.Request) {
	events, err := readSink(q)
	if err != nil {
		r.sent(q.Fail(err), q)
		return
	}
	var failed *sinkEvent
	var why error
	for i := range events {
		e := &events[i]
		switch e.kind {
		case sinkPiece:
			if err := r.piece(e); err != nil && failed == nil {
				failed, why = e, err
			}
		case sinkStop:
			if err := r.stopStream(e); err != nil {
				r.sent(q.Fail(err), q)
				return
			}
		case sinkClose:
			r.closeStream(ctx, q, e)
			return
		case sinkEnd:
			r.endStream(q, e)
			return
		}
	}
	r.acknowledge(q, &events[len(events)-1], failed, why)
}

// acknowledge answers a message that ends no call. Who is told of an error of a
// call has heard of its end: it is forgotten.
func (r *router) acknowledge(q *bus.Request, last, failed *sinkEvent, why error) {
	switch {
	case !q.Expects(): // an error stands for its call until the close
	case failed != nil:
		c, _ := r.streams.close(failed.key, 0)
		r.refuse(q, c, why)
	default:
		received := frames.Meta(map[string]any{"received": last.frame.Seq}, frames.WithCall(last.key.Call, ""))
		r.sent(q.End(frames.EndCompleted, received), q)
	}
}

// piece keeps a piece of a call.
func (r *router) piece(e *sinkEvent) error {
	err := r.streams.add(e.key, e.frame.Seq, e.text)
	if err != nil {
		r.log.Debug("a piece of a call's arguments is dropped", "caller", e.key.Owner, "call_id", e.key.Call, "error", err)
	}
	return err
}

// stopStream takes why a turn ended.
func (r *router) stopStream(e *sinkEvent) error {
	k, err := r.streams.stream(e.key)
	if err == nil && e.cut != "" {
		r.streams.cut(k, e.cut)
	}
	return err
}

// closeStream begins a call whose arguments are whole, as if they had come so.
func (r *router) closeStream(ctx context.Context, q *bus.Request, e *sinkEvent) {
	c, err := r.streams.close(e.key, e.frame.Seq)
	if e.cut != "" {
		err = argstream.CutOff(c.Tool, e.cut)
	}
	switch {
	case !q.Expects():
		r.log.Warn("a call was closed by a message without a reply subject: it does not run", "caller", c.Caller, "call_id", c.ID)
	case err != nil:
		r.refuse(q, c, err)
	default:
		r.looking.Go(func() { r.start(ctx, q, c) }) // the next pieces of others wait behind this
	}
}

// endStream answers an END: each call that is still open has its error.
func (r *router) endStream(q *bus.Request, e *sinkEvent) {
	k, err := r.streams.stream(e.key)
	if err != nil {
		r.sent(q.Fail(err), q)
		return
	}
	var out []frames.Frame
	reason := frames.EndCompleted
	for _, e := range r.streams.end(k) {
		out = append(out, frames.FailedResult(e.err, frames.WithCall(e.call.ID, e.call.Tool)))
		reason = frames.EndError
	}
	r.sent(q.End(reason, out...), q)
}

// expireStreams forgets what took too long.
func (r *router) expireStreams() {
	for _, e := range r.streams.expire() {
		r.log.Info("a call's arguments did not end", "caller", e.call.Caller, "tool", e.call.Tool, "call_id", e.call.ID, "error", e.err)
	}
}
