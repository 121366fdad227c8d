package session

import (
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// startTurn begins the turn of a user's text, or closes a session whose turns
// are used up.
func (s *State) startTurn(q Queued) []Change {
	if s.CurrentTurn >= s.MaxTurns {
		reached := s.frameChange(frames.Progress(map[string]any{
			"operation": "max-turns-reached", "currentTurn": s.CurrentTurn, "maxTurns": s.MaxTurns,
		}))
		reached.InputID = q.InputID
		return append([]Change{reached}, s.closeNow(frames.EndMaxTurns)...)
	}
	s.CurrentTurn++
	s.Epoch++
	s.TurnEpoch, s.Round, s.Cancel, s.Reason = s.Epoch, 0, false, ""
	s.Status = Thinking
	said := s.messageChange(provider.Message{Role: provider.RoleUser, Text: q.Text})
	said.InputID = q.InputID
	return []Change{said, s.stateChange()}
}

// turnOver ends the running turn: calls without a result get one, then comes
// what waited for the end, a held END or the next text.
func (s *State) turnOver(reason string) []Change {
	changes := s.settle(frames.NewError(frames.CodeCancelled, "the turn ended before the call did"))
	s.Cancel, s.Round, s.Reason = false, 0, reason
	s.Status = Idle
	if s.Close != "" && (len(s.Queued) == 0 || s.Close == frames.EndCancelled) {
		return append(changes, s.closeNow(closing(s.Close, reason))...)
	}
	changes = append(changes, s.stateChange())
	if len(s.Queued) == 0 {
		return changes
	}
	next := s.Queued[0]
	s.Queued = s.Queued[1:]
	return append(changes, s.startTurn(next)...)
}

// closing gives the reason of an END that was held: a client that waits for END
// alone learns from it how the turn ended.
func closing(held, turn string) string {
	if held == frames.EndCompleted {
		return turn
	}
	return held
}

// closeNow closes a session whose turn is over; texts that still wait are
// refused. END is the last frame of it, and nobody owns the session any more.
func (s *State) closeNow(reason string) []Change {
	var changes []Change
	for _, q := range s.Queued {
		changes = append(changes, s.refusal(q.InputID, frames.NewError(frames.CodeCancelled, "the session was closed before this text's turn")))
	}
	s.Queued, s.Close, s.Owner = nil, "", nil
	s.Reason = reason
	s.Status = finalStatus(reason)
	return append(changes, s.stateChange(), s.frameChange(endFrame(reason)))
}

func finalStatus(reason string) Status {
	switch reason {
	case frames.EndCancelled:
		return Cancelled
	case frames.EndError:
		return Failed
	}
	return Done
}

func endFrame(reason string) frames.Frame {
	if reason == frames.EndCompleted {
		return frames.End(reason, frames.WithMeta("phase", "task-complete"))
	}
	return frames.End(reason)
}

// settle gives each pending call the same failed result.
func (s *State) settle(err *frames.Error) []Change {
	var changes []Change
	for len(s.Pending) > 0 {
		changes = append(changes, s.takeResult(0, Outcome{Content: failed(err)}))
	}
	return changes
}

func failed(err error) frames.Raw {
	f := frames.FailedResult(err)
	return f.Content
}

// takeResult makes o the result of the i-th pending call.
func (s *State) takeResult(i int, o Outcome) Change {
	call := s.Pending[i]
	s.Usage.Tools = s.Usage.Tools.Add(provider.ReadUsage(o.Content.Lookup("usage")))
	s.Pending = append(s.Pending[:i:i], s.Pending[i+1:]...)
	c := Change{
		Kind: ChangeResult, Epoch: s.Epoch, Stream: s.Stream,
		CallID: call.ID, Tool: call.Name, Result: o.Content, Message: o.Message,
	}
	s.HasCut = s.HasCut || o.Message != nil
	if len(o.Metadata) > 0 {
		c.Metadata = o.Metadata.Raw()
	}
	return c
}
