package session

import (
	"slices"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Texts that clients rely on.
const (
	textNoWorkspace = "Workspace not configured. Send PARAM(workspace, path) first."
	textNoTask      = "Task not configured. Send PARAM(task, description) first."
	textNotStarted  = "Harness not initialized. Send START frame first."
)

// Input is one stored message of input.
type Input struct {
	frames.Message
	// Sequence is the message's in WB_IN; 0 for input that was not stored.
	Sequence uint64
}

// ID gives the id that the message is stored and deduplicated by: its first frame's.
func (in *Input) ID() string {
	if len(in.Frames) == 0 {
		return ""
	}
	return in.Frames[0].ID
}

// Apply applies a message of input: its frames in order, as one transition.
// What is wrong with a frame becomes an ERROR that names it, and ends nothing.
// A message at or before the cursor changes nothing; repeated frames are dropped.
// A closed session refuses the whole message, with one ERROR.
func (s *State) Apply(in Input) []Change {
	if !s.advance(in.Sequence) {
		return nil
	}
	if s.Status.Final() {
		return []Change{s.refusal(in.ID(), s.closedError())}
	}
	if s.Encoding == "" {
		s.Encoding = in.Encoding.String()
	}
	repeated := s.seen(in.ID())
	var changes []Change
	for i := range in.Frames {
		f := &in.Frames[i]
		if repeated || s.seen(f.ID) {
			continue
		}
		changes = append(changes, s.applyFrame(f, in.Encoding)...)
		if i > 0 {
			s.remember(f.ID)
		}
	}
	if !repeated {
		s.remember(in.ID())
	}
	return changes
}

// Refuse passes over a message that cannot be applied as a whole, or is no input.
func (s *State) Refuse(in Input, err error) []Change {
	if !s.advance(in.Sequence) {
		return nil
	}
	return []Change{s.refusal(in.ID(), err)}
}

func (s *State) closedError() error { return conflict("the session is closed: %s", s.Status) }

func (s *State) advance(sequence uint64) bool {
	if sequence == 0 {
		return true
	}
	if sequence <= s.Cursor {
		return false
	}
	s.Cursor = sequence
	return true
}

func (s *State) seen(id string) bool { return id != "" && slices.Contains(s.Seen, id) }

func (s *State) remember(id string) {
	if id == "" {
		return
	}
	s.Seen = append(s.Seen, id)
	if over := len(s.Seen) - MaxSeen; over > 0 {
		s.Seen = s.Seen[over:]
	}
}

// Takes reports whether a frame of the type is input of a session.
func Takes(t frames.Type) bool {
	switch t {
	case frames.TypeParam, frames.TypeStart, frames.TypeText, frames.TypeData, frames.TypeToolResult,
		frames.TypeCancel, frames.TypeAbort, frames.TypeEnd, frames.TypeError:
		return true
	}
	return false
}

// UnknownType is the error of a frame that no session takes.
func UnknownType(t frames.Type) error {
	return frames.NewError(frames.CodeBadFrame, "Unknown frame type: %s", t)
}

func (s *State) applyFrame(f *frames.Frame, enc frames.Encoding) []Change {
	changes, err := s.handle(f, enc)
	if err != nil {
		return append(changes, s.refusal(f.ID, err))
	}
	return changes
}

func (s *State) handle(f *frames.Frame, enc frames.Encoding) ([]Change, error) {
	switch {
	case f.Type == frames.TypeTick:
		return nil, nil
	case !Takes(f.Type):
		return nil, UnknownType(f.Type)
	case s.Status.Final():
		return nil, s.closedError()
	}
	switch f.Type {
	case frames.TypeParam:
		return nil, s.setParam(f)
	case frames.TypeStart:
		return s.start(enc)
	case frames.TypeText:
		return s.say(f)
	case frames.TypeData:
		return s.data(f)
	case frames.TypeToolResult:
		return s.outsideResult(f.ToolCallID, f.Content)
	case frames.TypeCancel:
		return s.cancelTurn(f)
	case frames.TypeAbort:
		return s.hold(frames.EndCancelled), nil
	case frames.TypeEnd:
		return s.hold(frames.EndCompleted), nil
	default: // ERROR passes through
		passed := s.frameChange(frames.NewFrame(f.Type, f.Content))
		passed.InputID = f.ID
		return []Change{passed}, nil
	}
}

func conflict(format string, args ...any) error {
	return frames.NewError(frames.CodeConflict, format, args...)
}

// start initializes the session; it starts no turn.
func (s *State) start(enc frames.Encoding) ([]Change, error) {
	switch {
	case s.Initialized:
		return nil, conflict("the session has started already")
	case s.Close != "":
		return nil, errClosing
	case s.Workspace == "":
		return nil, conflict(textNoWorkspace)
	case s.Task == "":
		return nil, conflict(textNoTask)
	}
	s.Initialized, s.Encoding = true, enc.String()
	changes := []Change{s.frameChange(s.startFrame()), s.messageChange(s.systemMessage())}
	changes = append(changes, s.earlierMessages()...)
	return append(changes, s.frameChange(frames.Progress(map[string]any{
		"operation": "initialized", "workspace": s.Workspace, "task": s.Task, "maxTurns": s.MaxTurns,
	})), s.stateChange()), nil
}

func (s *State) startFrame() frames.Frame {
	f := frames.Start(frames.WithMeta("phase", "task-execution"), frames.WithMeta("workspace", s.Workspace), frames.WithMeta("task", s.Task))
	if s.NodeID != "" {
		f.Metadata.Set("nodeId", frames.Value(s.NodeID))
	}
	f.Metadata.Set("sessionId", frames.Value(s.SessionID))
	return f
}

func (s *State) systemMessage() provider.Message {
	text := "Task: " + s.Task
	if prompt := s.text(paramSystemPrompt); prompt != "" {
		text = prompt + "\n\n" + text
	}
	return provider.Message{Role: provider.RoleSystem, Text: text}
}

// earlierMessages moves PARAM messages from the state to the history.
func (s *State) earlierMessages() []Change {
	raw, ok := s.Params[paramMessages]
	if !ok {
		return nil
	}
	delete(s.Params, paramMessages)
	messages, err := provider.ParseMessages(raw)
	if err != nil {
		return nil // refused when it was set
	}
	var changes []Change
	for _, m := range messages {
		changes = append(changes, Change{Kind: ChangeEarlier, Epoch: s.Epoch, Message: &m})
	}
	return changes
}

var errClosing error = frames.NewError(frames.CodeConflict, "the session closes when its turn is over")

// say starts a turn with a user's text, or keeps the text for the next one.
func (s *State) say(f *frames.Frame) ([]Change, error) {
	text := f.Text()
	switch {
	case !s.Initialized:
		return nil, conflict(textNotStarted)
	case s.Close != "":
		return nil, errClosing
	case text == "":
		return nil, frames.NewError(frames.CodeValidationInput, "TEXT without a text")
	case !s.Status.Running():
		return s.startTurn(Queued{InputID: f.ID, Text: text}), nil
	case len(s.Queued) >= MaxQueued:
		return nil, frames.NewError(frames.CodeBusy, "%d texts wait for the running turn already", MaxQueued)
	}
	s.Queued = append(s.Queued, Queued{InputID: f.ID, Text: text})
	return nil, nil
}

// cancelTurn ends the turn that had the epoch, or the current one. A turn that
// is over stays as it is.
func (s *State) cancelTurn(f *frames.Frame) ([]Change, error) {
	if f.ToolCallID != "" || !f.Content.Lookup("toolCallId").Absent() {
		return nil, frames.NewError(frames.CodeValidationInput, "a session's CANCEL names no call, it ends a turn: {epoch}")
	}
	epoch, err := s.cancelEpoch(f.Content.Lookup("epoch"))
	if err != nil || epoch < s.TurnEpoch {
		return nil, err
	}
	return s.stop(), nil
}

func (s *State) cancelEpoch(raw frames.Raw) (uint64, error) {
	if raw.Absent() {
		return s.Epoch, nil
	}
	epoch, ok := raw.Uint64()
	if !ok {
		return 0, frames.NewError(frames.CodeValidationInput, "CANCEL epoch must be a whole number")
	}
	if epoch > s.Epoch {
		return 0, conflict("no turn has had epoch %d, the newest is %d", epoch, s.Epoch)
	}
	return epoch, nil
}

// stop ends the running turn: at once where nobody works on it, else by its owner.
func (s *State) stop() []Change {
	switch {
	case !s.Status.Running():
		return nil
	case s.Owner != nil:
		s.Cancel = true
		return nil
	}
	return s.turnOver(frames.EndCancelled)
}

// hold closes the session: at once, or when the running turn is over. A
// cancelling close stops the turn and comes before one that waits.
func (s *State) hold(reason string) []Change {
	if !s.Status.Running() {
		return s.closeNow(reason)
	}
	if s.Close != frames.EndCancelled {
		s.Close = reason
	}
	if reason == frames.EndCancelled {
		return s.stop()
	}
	return nil
}
