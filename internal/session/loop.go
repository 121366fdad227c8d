package session

import (
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// ErrLostOwner is the error of a loop's transition on a session that another
// loop took, or nobody owns: the loop must stop and dispatch, publish and
// acknowledge nothing. Compare with errors.Is.
var ErrLostOwner error = frames.NewError(frames.CodeConflict, "the session has another owner").WithReason("lost_owner")

// Answer is a model's answer as the loop commits it.
type Answer struct {
	// Message is the assistant's; the ids of its calls are set by the transition.
	Message provider.Message
	// Calls say how each call of Message, in the same order, is to be run; ID and
	// Name are set by the transition.
	Calls []PendingCall
	// Usage is what the request used.
	Usage provider.Usage
	// Reason ends the turn of an answer without calls. Default: completed.
	Reason string
	// Err stands beside Reason where the turn did not end well.
	Err error
}

// Outcome is the one result of a call.
type Outcome struct {
	CallID string
	// Content is a TOOL_RESULT's.
	Content frames.Raw
	// Metadata is that of its TOOL_RESULT.
	Metadata frames.Fields
	// Message is what the model sees. Default: what [ToolMessage] makes of Content.
	Message *provider.Message
}

// Take makes owner the session's owner, instead of an earlier one if there is
// one, and begins a new epoch. CONFLICT says that there is nothing to do.
func (s *State) Take(owner Owner) ([]Change, error) {
	if !s.Work() {
		return nil, frames.NewError(frames.CodeConflict, "the session has no work, it is %s", s.Status)
	}
	s.Owner = &owner
	s.Epoch++
	return nil, nil
}

// Assistant commits a model's answer, before any of its calls is dispatched:
// with calls the session is executing, without the turn is over.
func (s *State) Assistant(owner Owner, a Answer) ([]Change, error) {
	if err := s.ownedIn(owner, Thinking); err != nil {
		return nil, err
	}
	if len(a.Calls) != len(a.Message.Calls) {
		return nil, frames.NewError(frames.CodeInternal, "%d calls are prepared, the message has %d", len(a.Calls), len(a.Message.Calls))
	}
	changes := s.answer(a)
	if len(a.Calls) == 0 {
		return append(changes, s.endTurn(orCompleted(a.Reason), a.Err)...), nil
	}
	return append(changes, s.stateChange()), nil
}

func orCompleted(reason string) string {
	if reason == "" {
		return frames.EndCompleted
	}
	return reason
}

// answer appends the assistant's message and opens its calls.
func (s *State) answer(a Answer) []Change {
	stream := s.StreamID()
	s.Usage.Usage = s.Usage.Add(a.Usage)
	s.Usage.Requests++
	m := a.Message
	m.Role = provider.RoleAssistant
	m.Calls = append([]provider.Call(nil), m.Calls...)
	for i := range m.Calls {
		m.Calls[i].ID = s.CallID(i)
		p := a.Calls[i]
		p.ID, p.Name = m.Calls[i].ID, m.Calls[i].Name
		s.Pending = append(s.Pending, p)
	}
	if len(m.Calls) > 0 {
		s.Round++
		s.Stream = stream
		s.Usage.Calls += int64(len(m.Calls))
		s.Status = Executing
	}
	said := s.messageChange(m)
	said.Stream = stream
	return append([]Change{said}, s.usageChange(stream, a.Usage)...)
}

func (s *State) usageChange(stream string, u provider.Usage) []Change {
	if u == (provider.Usage{}) {
		return nil
	}
	c := s.frameChange(frames.Meta(frames.Fields{{Key: "usage", Value: frames.Value(u)}}))
	c.Stream = stream
	return []Change{c}
}

// Result commits the outcome of a pending call. The first wins: CONFLICT says
// that the call is unknown or has a result already. After the last result comes
// [State.NextRound] or [State.EndTurn], best in the same transition.
func (s *State) Result(owner Owner, o Outcome) ([]Change, error) {
	if err := s.ownedIn(owner, Executing); err != nil {
		return nil, err
	}
	i := s.pending(o.CallID)
	if i < 0 {
		return nil, frames.NewError(frames.CodeConflict, "call %s waits for no result", o.CallID)
	}
	return []Change{s.takeResult(i, o)}, nil
}

// Interrupt gives the pending calls of the ids, or all where none is named, a
// failed result: at a take-over, or at a cancellation.
func (s *State) Interrupt(owner Owner, err *frames.Error, ids ...string) ([]Change, error) {
	if lost := s.owned(owner); lost != nil {
		return nil, lost
	}
	if len(ids) == 0 {
		return s.settle(err), nil
	}
	changes := make([]Change, 0, len(ids))
	for _, id := range ids {
		if i := s.pending(id); i >= 0 {
			changes = append(changes, s.takeResult(i, Outcome{Content: failed(err)}))
		}
	}
	return changes, nil
}

// NextRound says that every call has its result and the model is asked again.
func (s *State) NextRound(owner Owner) ([]Change, error) {
	if err := s.ownedIn(owner, Executing); err != nil {
		return nil, err
	}
	if n := len(s.Pending); n > 0 {
		return nil, frames.NewError(frames.CodeConflict, "%d calls have no result yet", n)
	}
	return s.nextRound(), nil
}

func (s *State) nextRound() []Change {
	s.Status = Thinking
	return []Change{s.stateChange()}
}

// EndTurn ends the turn for an END reason, with an ERROR where err is not nil.
// Calls without a result get CANCELLED. Then a text that waited begins the next
// turn, of the same owner, or an END that was held closes the session.
func (s *State) EndTurn(owner Owner, reason string, err error) ([]Change, error) {
	if lost := s.owned(owner); lost != nil {
		return nil, lost
	}
	if !s.Status.Running() {
		return nil, frames.NewError(frames.CodeConflict, "no turn is running, the session is %s", s.Status)
	}
	return s.endTurn(reason, err), nil
}

func (s *State) endTurn(reason string, err error) []Change {
	if err == nil {
		return s.turnOver(reason)
	}
	said := s.frameChange(frames.Fail(err, frames.WithMeta("phase", "turn")))
	return append([]Change{said}, s.turnOver(reason)...)
}

// Prepared commits how a fresh call is run, before it is dispatched.
func (s *State) Prepared(owner Owner, call PendingCall) ([]Change, error) {
	if err := s.ownedIn(owner, Executing); err != nil {
		return nil, err
	}
	i := s.pending(call.ID)
	if i < 0 || !s.Pending[i].Fresh {
		return nil, frames.NewError(frames.CodeConflict, "call %s was prepared before", call.ID)
	}
	p := &s.Pending[i]
	p.Fresh, p.Identity, p.Replay, p.Outside, p.Limits = false, call.Identity, call.Replay, call.Outside, call.Limits
	return nil, nil
}

// Waits reports whether the call has no result yet.
func (s *State) Waits(callID string) bool { return s.pending(callID) >= 0 }

// FailedRequest counts a model request that brought no answer, and what it used.
func (s *State) FailedRequest(owner Owner, used provider.Usage) ([]Change, error) {
	if err := s.ownedIn(owner, Thinking); err != nil {
		return nil, err
	}
	s.Usage.Usage = s.Usage.Add(used)
	s.Usage.Requests++
	s.Usage.Failed++
	return s.usageChange(s.StreamID(), used), nil
}

// Lease is how long a call in a client's hands may take.
type Lease struct {
	// Until is when it times out, of the Timeout that it had.
	Until   time.Time
	Timeout time.Duration
}

// Release gives the session up; job is the sequence in WB_RUN of the job that
// the owner then acknowledges. A session whose pending calls are all for clients
// becomes waiting, for as long as the leases of the calls say; those without one
// have no end. CONFLICT says that there is work again: the owner goes on. A closed
// session has no owner, and nothing changes.
func (s *State) Release(owner Owner, job uint64, leases map[string]Lease) ([]Change, error) {
	if s.Status.Final() {
		return nil, nil
	}
	if err := s.owned(owner); err != nil {
		return nil, err
	}
	waits := s.Status == Executing && s.allOutside() && !s.Cancel
	if s.Work() && !waits {
		return nil, frames.NewError(frames.CodeConflict, "the session has work, it is %s", s.Status)
	}
	s.Owner, s.Job = nil, job
	if !waits {
		return nil, nil
	}
	for i := range s.Pending {
		if l, ok := leases[s.Pending[i].ID]; ok {
			s.Pending[i].Deadline, s.Pending[i].Timeout = l.Until.UnixMilli(), l.Timeout.Milliseconds()
		}
	}
	s.Status = Waiting
	return []Change{s.stateChange()}, nil
}

// allOutside reports whether only clients still owe a result.
func (s *State) allOutside() bool {
	for _, c := range s.Pending {
		if !c.Outside {
			return false
		}
	}
	return len(s.Pending) > 0
}

func (s *State) owned(owner Owner) error {
	if s.Owner == nil || s.Owner.Nonce != owner.Nonce {
		return ErrLostOwner
	}
	return nil
}

func (s *State) ownedIn(owner Owner, want Status) error {
	if err := s.owned(owner); err != nil {
		return err
	}
	if s.Status != want {
		return frames.NewError(frames.CodeConflict, "the session is %s, not %s", s.Status, want)
	}
	return nil
}
