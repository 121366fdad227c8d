package loop

import (
	"context"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
)

// config sets up the engine for the turn that runs, from its beginning or from
// where an earlier owner left it.
func (j *job) config(ctx context.Context) (engine.Config, error) {
	s := &j.head.State
	p, err := engine.ParseParams(s.Params)
	if err != nil {
		return engine.Config{}, err
	}
	p = p.WithIterations(engine.SessionIterations)
	p.SystemPrompt = "" // stands in the history since START
	start, elapsed, err := j.start(ctx, p)
	call := dispatch.Call{Caller: j.key.Caller, SessionID: j.key.SID, Workspace: s.Workspace}
	tools := newSessionTools(j, &tools{j.l.conn, j.l.d.Dispatcher, p.Tools, call})
	start.Polls = tools.polls
	cfg := engine.Config{
		Params: p, Start: start, Elapsed: elapsed, Tools: &readable{tools, j, j.l.conn.Identity()}, Journal: j,
		Live: j.out.live, Stream: j.stream, MayAct: j.lease.check,
	}
	if s.Model() != "" {
		cfg.Model = j.l.models
	}
	return cfg, err
}

// stream names the model request behind so many rounds of the turn.
func (j *job) stream(rounds int) string {
	s := session.State{UID: j.head.State.UID, Epoch: j.head.State.Epoch, Round: rounds}
	return s.StreamID()
}

func (j *job) start(ctx context.Context, p engine.Params) (engine.Start, time.Duration, error) {
	s := &j.head.State
	start := engine.Start{Used: engine.Used{Rounds: s.Round}, Stream: s.Stream, Open: s.Status == session.Executing}
	var err error
	if start.Messages, start.Results, err = j.l.store.Conversation(ctx, j.key); err != nil {
		return start, 0, err
	}
	for _, c := range s.Pending {
		start.Pending = append(start.Pending, engine.Pending{
			CallID: c.ID, Identity: c.Identity, Replay: c.Replay, Limits: c.Limits, Outside: c.Outside, Fresh: c.Fresh,
		})
	}
	if p.MaxCalls == nil && p.MaxTokens == 0 && p.MaxDuration == 0 {
		return start, 0, nil
	}
	begun, err := j.begun(ctx)
	if err != nil {
		return start, 0, err
	}
	start.Used.Calls = int(s.Usage.Calls - begun.Usage.Calls)
	start.Used.Tokens = engine.Tokens(s.Usage.Usage) - engine.Tokens(begun.Usage.Usage)
	return start, time.Since(time.UnixMilli(begun.Updated)), nil
}

// begun gives the state with which the turn that runs began.
func (j *job) begun(ctx context.Context) (*session.State, error) {
	for after, more := uint64(0), true; more; {
		var entries []session.Entry
		var err error
		if entries, more, err = j.l.store.Entries(ctx, j.key, after, historyPage); err != nil {
			return nil, err
		}
		for i := range entries {
			if after = entries[i].N; entries[i].State.TurnEpoch == j.head.State.TurnEpoch {
				return &entries[i].State, nil
			}
		}
	}
	return nil, frames.NewError(frames.CodeInternal, "the turn of epoch %d began in no entry", j.head.State.TurnEpoch)
}

// historyPage is how many entries are read at once.
const historyPage = 1000
