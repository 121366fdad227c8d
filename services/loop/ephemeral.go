package loop

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// maxDepth is how deep runs may be nested.
const maxDepth = dispatch.MaxDepth

// runKey finds a run by what its caller knows of it.
type runKey struct{ caller, streamID string }

// run is an ephemeral run: it lives and ends with its exchange.
type run struct {
	key    runKey
	uid    string // begins the ids of its calls
	depth  int
	q      *bus.Request
	params engine.Params
	runner *engine.Runner
	kept   *runResults
}

// request begins a run on wb.loop.<caller>; it does not block.
func (l *loop) request(ctx context.Context, q *bus.Request) {
	r, err := readRun(q)
	if err == nil {
		r.runner = engine.New(l.ephemeral(r))
		err = l.addRun(r)
	}
	if err != nil {
		l.reply(q.Fail(err), q)
		return
	}
	go func() {
		defer l.working.Done()
		defer l.removeRun(r)
		l.serveRun(ctx, r)
	}()
}

// readRun reads the one message of a run: PARAM frames and START.
func readRun(q *bus.Request) (*run, error) {
	if !q.Has(frames.TypeParam, frames.TypeStart) {
		return nil, frames.UnknownType(q.Frames[0].Type)
	}
	values := map[string]json.RawMessage{}
	var start *frames.Frame
	for i := range q.Frames {
		switch f := &q.Frames[i]; f.Type {
		case frames.TypeParam:
			if err := readParam(values, f); err != nil {
				return nil, err
			}
		case frames.TypeStart:
			start = f
		default:
			return nil, frames.NewError(frames.CodeBadFrame, "want PARAM frames and START in one message, got %s", f.Type)
		}
	}
	if start == nil {
		return nil, frames.NewError(frames.CodeBadFrame, "want PARAM frames and START in one message, there is no START")
	}
	p, err := engine.ParseParams(values)
	if err != nil {
		return nil, err
	}
	return newRun(q, start, p)
}

func readParam(values map[string]json.RawMessage, f *frames.Frame) error {
	if engine.SessionOnly(f.Key) {
		return frames.NewError(frames.CodeValidationInput, "PARAM %s is one of a session, not of a run", f.Key)
	}
	value, err := f.Value.JSON()
	if err != nil || f.Value.Absent() {
		return frames.NewError(frames.CodeValidationInput, "PARAM %q has no value that can be read", f.Key)
	}
	values[f.Key] = value
	return nil
}

func newRun(q *bus.Request, start *frames.Frame, p engine.Params) (*run, error) {
	switch {
	case p.Model == "":
		return nil, frames.NewError(frames.CodeValidationInput, "PARAM model is missing: write provider/model")
	case len(p.Messages) == 0:
		return nil, frames.NewError(frames.CodeValidationInput, "PARAM messages is missing, or empty")
	}
	r := &run{key: runKey{q.Caller(), start.StreamID}, uid: nuid.Next(), q: q, params: p, depth: int(start.Metadata.Int("depth"))}
	if r.key.streamID == "" {
		r.key.streamID = nuid.Next()
	}
	if !frames.ValidName(r.key.streamID) {
		return nil, frames.NewError(frames.CodeBadFrame, "streamId: want letters, digits, _ and -, at most 64")
	}
	if r.depth < 0 || r.depth > maxDepth {
		return nil, frames.NewError(frames.CodeLimit, "runs are nested %d deep, the limit is %d", r.depth, maxDepth)
	}
	return r, nil
}

// addRun keeps a run while it runs. Runs of each depth have slots of their own:
// one that waits for a nested run never holds the slot that this one needs.
func (l *loop) addRun(r *run) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.key] != nil {
		return frames.NewError(frames.CodeConflict, "a run with streamId %s is running already", r.key.streamID)
	}
	if l.perDepth[r.depth] >= l.cfg.Runs {
		e := frames.NewError(frames.CodeBusy, "%d runs are running already", l.cfg.Runs)
		e.Reason, e.RetryAfter = "busy", time.Second
		return e
	}
	l.runs[r.key] = r
	l.perDepth[r.depth]++
	l.working.Add(1)
	return nil
}

func (l *loop) removeRun(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.kept.drop()
	delete(l.runs, r.key)
	l.perDepth[r.depth]--
}

// ephemeral sets up the engine of a run: what it does is sent as it happens, and
// kept nowhere.
func (l *loop) ephemeral(r *run) engine.Config {
	call := dispatch.Call{Caller: r.key.caller, Workspace: r.params.Workspace, Depth: r.depth}
	tools := &tools{l.conn, l.d.Dispatcher, r.params.Tools, call}
	r.kept = &runResults{all: l.kept}
	return engine.Config{
		Params: r.params, Start: engine.Start{Messages: r.params.Messages, Polls: tools.polls},
		Model: l.models, Tools: &readable{tools, r.kept, l.conn.Identity()},
		Journal: keepingJournal{engine.NewMemory(r.uid, r.send), r.kept},
		Stream:  func(int) string { return r.key.streamID },
		Live: func(f frames.Frame) {
			if f.Type == frames.TypeTick {
				l.reply(r.q.Tick(r.runner.Cancel), r.q)
				return
			}
			l.reply(r.send(f), r.q)
		},
	}
}

// send answers with frames, which all carry the run's stream id.
func (r *run) send(fs ...frames.Frame) error {
	for i := range fs {
		fs[i].StreamID = r.key.streamID
	}
	return r.q.Send(fs...)
}

// serveRun runs a run to its END, which is the last commit of its journal.
func (l *loop) serveRun(ctx context.Context, r *run) {
	l.reply(r.send(frames.Meta(map[string]any{"streamId": r.key.streamID})), r.q)
	end, err := r.runner.Run(ctx)
	if err == nil {
		l.log.Debug("run ended", "caller", r.key.caller, "stream", r.key.streamID, "reason", end.Reason)
		return
	}
	l.log.Warn("run broken off", "caller", r.key.caller, "stream", r.key.streamID, "error", err)
	failed, reason := frames.AsError(err), frames.EndError
	if ctx.Err() != nil {
		failed = frames.NewError(frames.CodeInterrupted, "the loop stopped before the run ended; calls that ran may have acted")
		reason = frames.EndDrained
	}
	l.reply(r.send(frames.Fail(failed), frames.End(reason)), r.q)
}

// control answers on wb.ctl.<caller>: ABORT of a run, CANCEL of one of its calls.
// Every loop hears it; the one that runs it acknowledges.
func (l *loop) control(_ context.Context, q *bus.Request) {
	if err := q.CheckControl(); err != nil {
		l.reply(q.Fail(err), q)
		return
	}
	for i := range q.Frames {
		switch f := &q.Frames[i]; f.Type {
		case frames.TypeAbort:
			if r := l.find(q.Caller(), func(r *run) bool { return r.key.streamID == f.StreamID }); r != nil {
				r.runner.Cancel()
				l.acknowledge(q, f.StreamID)
			}
		case frames.TypeCancel:
			l.cancelCall(q, f)
		}
	}
}

func (l *loop) cancelCall(q *bus.Request, f *frames.Frame) {
	id := f.ToolCallID
	if l.find(q.Caller(), func(r *run) bool { return strings.HasPrefix(id, r.uid+"-") }) == nil {
		return // a session's calls end with their turn
	}
	if l.d.Cancel(q.Caller(), id) {
		l.acknowledge(q, id)
	}
}

func (l *loop) acknowledge(q *bus.Request, id string) {
	l.reply(q.End(frames.EndCompleted, frames.Meta(map[string]any{"cancelling": id})), q)
}

func (l *loop) find(caller string, is func(*run) bool) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, r := range l.runs {
		if key.caller == caller && is(r) {
			return r
		}
	}
	return nil
}
