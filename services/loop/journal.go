package loop

import (
	"context"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

var _ engine.Journal = (*job)(nil)

// Commit implements [engine.Journal]: one revision of the session, whose frames
// are published when it stands.
func (j *job) Commit(ctx context.Context, c *engine.Commit) ([]string, error) {
	head, err := j.update(ctx, func(s *session.State) ([]session.Change, error) { return apply(s, j.owner, c) })
	if err != nil {
		return nil, err
	}
	j.forget(c.Results)
	j.written(ctx, head)
	return callIDs(&head.Entry), nil
}

// callIDs gives the ids of the calls of the assistant message that an entry holds.
func callIDs(e *session.Entry) []string {
	var ids []string
	for _, c := range e.Changes {
		if c.Kind == session.ChangeMessage && c.Message.Role == provider.RoleAssistant {
			for _, call := range c.Message.Calls {
				ids = append(ids, call.ID)
			}
		}
	}
	return ids
}

// transition puts the parts of a commit together.
type transition struct {
	s       *session.State
	owner   session.Owner
	changes []session.Change
	err     error
}

func (t *transition) add(changes []session.Change, err error) {
	t.changes = append(t.changes, changes...)
	if t.err == nil {
		t.err = err
	}
}

func (t *transition) result(o session.Outcome) { t.add(t.s.Result(t.owner, o)) }

// taken commits a result, unless somebody outside gave the call one before: that
// one counts.
func (t *transition) taken(r *engine.Result, stops bool) {
	switch {
	case t.err != nil || r.Recorded:
	case t.s.Waits(r.CallID):
		t.result(session.OutcomeOf(r.CallID, r.Result, &r.Message))
	case !stops:
		t.err = engine.ErrRecorded
	}
}

// apply is the transition that a commit means.
func apply(s *session.State, owner session.Owner, c *engine.Commit) ([]session.Change, error) {
	t := &transition{s: s, owner: owner}
	turnOver := false
	if c.Answer != nil {
		t.answer(c.Answer, c.End)
		turnOver = len(c.Answer.Calls) == 0
	}
	if c.Failed != nil {
		t.add(s.FailedRequest(owner, *c.Failed))
	}
	for _, p := range c.Prepared {
		t.add(s.Prepared(owner, session.PendingCall{ID: p.CallID, Identity: p.Identity, Replay: p.Replay, Outside: p.Outside, Limits: p.Limits}))
	}
	for _, r := range c.Results {
		t.taken(&r, c.Stops())
	}
	switch {
	case t.err != nil || turnOver:
	case c.Next:
		t.add(s.NextRound(owner))
	case c.End != nil:
		t.add(s.EndTurn(owner, c.End.Reason, asError(c.End.Err)))
	}
	return t.changes, t.err
}

// asError keeps a missing error missing.
func asError(e *frames.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// answer commits the model's answer; the calls that were refused have their
// results at once, so that what is pending is what runs.
func (t *transition) answer(a *engine.Answer, end *engine.End) {
	answer := session.Answer{Message: a.Message, Usage: a.Stop.Usage}
	for i, in := range a.Calls {
		answer.Calls = append(answer.Calls, session.PendingCall{
			ModelID: a.Message.Calls[i].ModelID, Identity: in.Identity, Replay: in.Replay, Outside: in.Outside, Limits: in.Limits,
		})
	}
	if len(a.Calls) == 0 && end != nil {
		answer.Reason, answer.Err = end.Reason, asError(end.Err)
	}
	t.add(t.s.Assistant(t.owner, answer))
	for i, in := range a.Calls {
		if in.Refused != nil && t.err == nil {
			t.result(session.OutcomeOf(t.s.CallID(i), in.Refused, nil))
		}
	}
}
