package session

import (
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// ChangeKind says what a Change is.
type ChangeKind string

// The kinds of changes, each with the durable frames that clients see of it.
const (
	// ChangeMessage appends Message to the history. A user's is a TEXT with
	// metadata.role "user"; an assistant's is THINKING, TEXT and TOOL_CALL
	// frames; a system's shows nothing.
	ChangeMessage ChangeKind = "message"
	// ChangeEarlier appends a Message of PARAM messages to the history; it shows
	// nothing.
	ChangeEarlier ChangeKind = "earlier"
	// ChangeResult is the result of a call: a tool message of the history and a
	// TOOL_RESULT.
	ChangeResult ChangeKind = "result"
	// ChangeFrame is a frame that is no message: START, PROGRESS, ERROR, META, END.
	ChangeFrame ChangeKind = "frame"
	// ChangeState is a change of status: META {state}.
	ChangeState ChangeKind = "state"
)

// Change is one thing that a transition did.
type Change struct {
	Kind ChangeKind `json:"kind"`
	// Epoch is the session's at that moment.
	Epoch uint64 `json:"epoch,omitempty"`
	// Stream is the model request that it belongs to.
	Stream string `json:"streamId,omitempty"`
	// InputID is the id of the input frame that it comes from.
	InputID string `json:"inputId,omitempty"`
	// Message of a ChangeMessage or ChangeEarlier; of a ChangeResult only where it differs from
	// what [ToolMessage] makes of Result.
	Message *provider.Message `json:"message,omitempty"`
	// CallID, Tool and Result, a TOOL_RESULT's content in msgpack, are a ChangeResult's.
	CallID string     `json:"toolCallId,omitempty"`
	Tool   string     `json:"tool,omitempty"`
	Result frames.Raw `json:"result,omitempty"`
	// Metadata is that of a ChangeResult's TOOL_RESULT: how its arguments were
	// repaired, and the like.
	Metadata frames.Raw `json:"metadata,omitempty"`
	// Frame is the frame of a ChangeFrame, in msgpack.
	Frame []byte `json:"frame,omitempty"`
	// State is a ChangeState's.
	State *Report `json:"state,omitempty"`
	// Large names what of the change is kept in the object store; nil where
	// nothing is. See [Store.Whole].
	Large *Large `json:"large,omitempty"`
}

// Report is what META {state} tells of a session.
type Report struct {
	Status      Status `json:"status"`
	CurrentTurn int    `json:"currentTurn"`
	Epoch       uint64 `json:"epoch"`
	// Reason is how the last turn ended; empty while one runs.
	Reason string `json:"reason,omitempty"`
}

// Report gives what META {state} tells of the session now.
func (s *State) Report() Report {
	return Report{Status: s.Status, CurrentTurn: s.CurrentTurn, Epoch: s.Epoch, Reason: s.Reason}
}

func (s *State) stateChange() Change {
	r := s.Report()
	return Change{Kind: ChangeState, Epoch: s.Epoch, State: &r}
}

func (s *State) messageChange(m provider.Message) Change {
	return Change{Kind: ChangeMessage, Epoch: s.Epoch, Message: &m}
}

func (s *State) frameChange(f frames.Frame) Change {
	data, _ := frames.Encode(frames.Msgpack, &f) // msgpack cannot fail
	return Change{Kind: ChangeFrame, Epoch: s.Epoch, Frame: data}
}

// refusal is the ERROR that answers a frame of input.
func (s *State) refusal(inputID string, err error) Change {
	c := s.frameChange(frames.Fail(err))
	c.InputID = inputID
	return c
}

// frames gives the durable frames of a change, not yet numbered.
func (c *Change) frames() []frames.Frame {
	var out []frames.Frame
	switch c.Kind {
	case ChangeMessage:
		out = messageFrames(c.Message)
	case ChangeResult:
		f := frames.NewFrame(frames.TypeToolResult, c.Result, frames.WithCall(c.CallID, c.Tool))
		f.Metadata = c.Metadata.Fields()
		out = []frames.Frame{f}
	case ChangeState:
		out = []frames.Frame{stateFrame(*c.State)}
	case ChangeFrame:
		out = storedFrame(c.Frame)
	}
	for i := range out {
		c.stamp(&out[i])
	}
	return out
}

func (c *Change) stamp(f *frames.Frame) {
	f.Epoch, f.StreamID = c.Epoch, c.Stream
	if c.InputID != "" {
		f.Metadata.Set("inputId", frames.Value(c.InputID))
	}
}

// storedFrame reads a frame that [State.frameChange] wrote.
func storedFrame(data []byte) []frames.Frame {
	m, err := frames.Decode(data)
	if err != nil {
		return nil // not written by frameChange
	}
	return m.Frames
}

func stateFrame(r Report) frames.Frame {
	return frames.Meta(frames.Fields{{Key: "state", Value: frames.Value(r)}})
}

func messageFrames(m *provider.Message) []frames.Frame {
	switch m.Role {
	case provider.RoleUser:
		return []frames.Frame{frames.Text(m.Content(), frames.WithMeta("role", string(m.Role)))}
	case provider.RoleAssistant:
		return assistantFrames(m)
	}
	return nil
}

// assistantFrames gives a TEXT for a message that says nothing too: it is the
// turn's answer. The provider's own call ids are for the provider alone.
func assistantFrames(m *provider.Message) []frames.Frame {
	var out []frames.Frame
	for _, t := range m.Thinking {
		f := frames.Thinking(t.Text, t.Signature)
		if t.Redacted {
			f.Metadata.Set("redacted", frames.Value(true))
		}
		out = append(out, f)
	}
	if text := m.Content(); text != "" || len(m.Calls) == 0 {
		out = append(out, frames.Text(text, frames.WithMeta("role", string(m.Role))))
	}
	for _, c := range m.Calls {
		out = append(out, frames.Call(c.Name, []byte(c.Arguments), frames.WithCall(c.ID, c.Name)))
	}
	return out
}
