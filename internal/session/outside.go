package session

import (
	"slices"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// DATA types that a session reads.
const (
	dataResponse = "llm-response"
	dataResult   = "tool-result"
)

// data applies a DATA frame: what a model outside of the mesh said, or the
// result of a call that it made.
func (s *State) data(f *frames.Frame) ([]Change, error) {
	if !s.Initialized {
		return nil, conflict(textNotStarted)
	}
	kind, _ := f.Content.Lookup("type").Text()
	switch kind {
	case "":
		return nil, frames.NewError(frames.CodeBadFrame, "DATA frame missing type")
	case dataResponse:
		return s.response(f.Content)
	case dataResult:
		return s.outsideResult(callIDOf(f.Content), dataResultContent(f.Content))
	}
	return nil, frames.NewError(frames.CodeBadFrame, "Unknown data type: %s", kind)
}

// response applies an answer of a model that drives the session from outside.
func (s *State) response(c frames.Raw) ([]Change, error) {
	switch {
	case s.Model() != "":
		return nil, conflict("the session is driven by its model %s", s.Model())
	case s.Status != Thinking:
		return nil, conflict("no answer is awaited, the session is %s", s.Status)
	}
	a, err := responseOf(c)
	if err != nil {
		return nil, err
	}
	if len(a.Calls) == 0 {
		return append(s.answer(a), s.turnOver(frames.EndCompleted)...), nil
	}
	byClient := s.text(paramToolExecution) == executionClient
	for i := range a.Calls {
		a.Calls[i].Outside, a.Calls[i].Fresh = byClient, !byClient
	}
	changes := s.answer(a)
	if byClient {
		s.Status = Waiting
	}
	return append(changes, s.stateChange()), nil
}

func responseOf(c frames.Raw) (Answer, error) {
	var a Answer
	a.Message.Text, _ = c.Lookup("content").Text()
	if text, _ := c.Lookup("thinking").Text(); text != "" {
		a.Message.Thinking = []provider.Thinking{{Text: text}}
	}
	for v := range c.Lookup("toolCalls").Items() {
		call, err := responseCall(v)
		if err != nil {
			return Answer{}, err
		}
		a.Message.Calls = append(a.Message.Calls, call)
		a.Calls = append(a.Calls, PendingCall{ModelID: call.ModelID})
	}
	return a, nil
}

func responseCall(v frames.Raw) (provider.Call, error) {
	f := frames.NewFrame(frames.TypeToolCall, v)
	args, err := f.Arguments()
	if err != nil {
		return provider.Call{}, err
	}
	call := provider.Call{ModelID: callIDOf(v), Name: firstText(v, "tool", "name"), Arguments: string(args)}
	if len(call.ModelID) > maxModelID {
		return provider.Call{}, frames.NewError(frames.CodeValidationInput,
			"toolCalls: id of %d bytes, the limit is %d", len(call.ModelID), maxModelID)
	}
	if !frames.ValidName(call.Name) {
		return provider.Call{}, frames.NewError(frames.CodeValidationInput, "toolCalls: %q is no tool's name", call.Name)
	}
	return call, nil
}

// maxModelID bounds an id that the state keeps while its call is pending.
const maxModelID = 128

func callIDOf(c frames.Raw) string { return firstText(c, "toolCallId", "callId", "id") }

func firstText(c frames.Raw, keys ...string) string {
	for _, k := range keys {
		if text, ok := c.Lookup(k).Text(); ok && text != "" {
			return text
		}
	}
	return ""
}

// dataResultContent gives the TOOL_RESULT content that a DATA tool-result means,
// whose error may be a plain text.
func dataResultContent(c frames.Raw) frames.Raw {
	var out frames.Fields
	for k, v := range c.Pairs() {
		switch k {
		case "type", "toolCallId", "callId", "id", "name", "tool":
		default:
			out = append(out, frames.Field{Key: k, Value: v})
		}
	}
	return out.Raw()
}

// outsideResult applies a client's result of a call that it had to run. Of
// several results the first wins.
func (s *State) outsideResult(id string, content frames.Raw) ([]Change, error) {
	if !s.Initialized {
		return nil, conflict(textNotStarted)
	}
	i := s.outsideCall(id)
	if i < 0 {
		return nil, conflict("call %q waits for no result of a client", clip(id))
	}
	asked := frames.NewFrame(frames.TypeToolResult, content)
	result, err := asked.Result()
	if err == nil && result.Result != nil {
		err = schema.CheckOutput(s.Pending[i].Name, result.Result)
	}
	if err != nil {
		return nil, err
	}
	done := s.takeResult(i, Shown(s.Pending[i].ID, result, s.Pending[i].Limits))
	changes := []Change{done, s.frameChange(completedFrame(done.CallID, result))}
	return append(changes, s.outsideDone()...), nil
}

// outsideDone goes on once a session that waited has its results: its model
// outside is asked, or a loop closes the round.
func (s *State) outsideDone() []Change {
	switch {
	case s.Status != Waiting || len(s.Pending) > 0:
		return nil
	case s.Model() == "":
		return s.nextRound()
	}
	s.Status = Executing
	return []Change{s.stateChange()}
}

// Deadline is the first time at which a call times out that the session waits
// for, in milliseconds since 1970; 0 where none does.
func (s *State) Deadline() int64 {
	var first int64
	if s.Status != Waiting {
		return 0
	}
	for _, c := range s.Pending {
		if c.Deadline != 0 && (first == 0 || c.Deadline < first) {
			first = c.Deadline
		}
	}
	return first
}

// Expire gives the calls TIMEOUT whose time is over; of a session that waits for
// none of them it changes nothing.
func (s *State) Expire(now time.Time) []Change {
	var changes []Change
	for at := s.Deadline(); at != 0 && at <= now.UnixMilli(); at = s.Deadline() {
		i := slices.IndexFunc(s.Pending, func(c PendingCall) bool { return c.Deadline == at })
		c := s.Pending[i]
		err := frames.Timeout(c.Name, time.Duration(c.Timeout)*time.Millisecond).WithReplay(c.Replay == frames.ReplaySafe)
		changes = append(changes, s.takeResult(i, Outcome{Content: failed(err)}))
		changes = append(changes, s.outsideDone()...)
	}
	return changes
}

// outsideCall finds a call that a client runs, by the id that the session gave
// it, else by the model's own.
func (s *State) outsideCall(id string) int {
	if i := s.pending(id); i >= 0 && s.Pending[i].Outside {
		return i
	}
	return slices.IndexFunc(s.Pending, func(c PendingCall) bool { return c.Outside && id != "" && c.ModelID == id })
}

func completedFrame(id string, r *frames.ToolResult) frames.Frame {
	status := "success"
	if r.Err != nil {
		status = "error"
	}
	return frames.Progress(map[string]any{"operation": "tool-completed", "callId": id, "status": status})
}

// clip bounds a foreign word for an error message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
