package hook

import (
	"bytes"
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Keys of the frames of a request, beside the call's own (docs/protocol.md,
// section 9).
const (
	metaHook  = "hook"
	metaPhase = "phase"
	keyRaw    = "rawArguments"
)

// request gives the frames that a policy service is asked with.
func request(name string, p Phase, c *Call, res *frames.ToolResult) []*frames.Frame {
	opt := frames.WithCall(c.ID, c.Tool)
	call := frames.Call(c.Tool, c.Arguments, opt)
	if len(c.Raw) > 0 && !bytes.Equal(c.Raw, c.Arguments) {
		call.Content = append(call.Content.Fields(), frames.Field{Key: keyRaw, Value: frames.Value(string(c.Raw))}).Raw()
	}
	call.Metadata = metadataOf(c)
	call.Metadata.Set(metaHook, frames.Value(name))
	call.Metadata.Set(metaPhase, frames.Value(string(p)))
	if res == nil {
		return []*frames.Frame{&call}
	}
	result := frames.Result(res, opt)
	return []*frames.Frame{&call, &result}
}

func metadataOf(c *Call) frames.Fields {
	var m frames.Fields
	for _, f := range []struct{ key, v string }{
		{"caller", c.Caller}, {"sessionId", c.SessionID}, {"workspace", c.Workspace}, {"identity", c.Identity},
	} {
		if f.v != "" {
			m.Set(f.key, frames.Value(f.v))
		}
	}
	if c.Depth > 0 {
		m.Set("depth", frames.Value(c.Depth))
	}
	if c.Annotations != (frames.Annotations{}) {
		m.Set("annotations", frames.Value(c.Annotations))
	}
	return m
}

// asked is what a request asks for.
type asked struct {
	phase  Phase
	call   *Call
	result *frames.ToolResult // nil before the tool ran
}

// askedOf reads a request.
func askedOf(m *frames.Message) (*asked, error) {
	f := m.First(frames.TypeToolCall)
	if f == nil {
		return nil, frames.UnknownType(m.Frames[0].Type)
	}
	c, err := callOf(f)
	if err != nil {
		return nil, err
	}
	a := &asked{phase: Phase(f.Metadata.Text(metaPhase)), call: c}
	if r := m.First(frames.TypeToolResult); r != nil {
		if a.result, err = r.Result(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func callOf(f *frames.Frame) (*Call, error) {
	args, err := f.Arguments()
	if err != nil {
		return nil, err
	}
	m := f.Metadata
	c := &Call{
		ID: f.ToolCallID, Tool: f.Name, Arguments: args, Raw: args, Depth: int(min(max(m.Int("depth"), 0), 1<<10)),
		Caller: m.Text("caller"), SessionID: m.Text("sessionId"), Workspace: m.Text("workspace"), Identity: m.Text("identity"),
	}
	if raw, ok := f.Content.Lookup(keyRaw).Text(); ok {
		c.Raw = json.RawMessage(raw)
	}
	if text, err := m.Get("annotations").JSON(); err == nil && len(text) > 0 {
		_ = json.Unmarshal(text, &c.Annotations) // what is not known is not said
	}
	return c, nil
}

// decision gives the answer to a gate's request.
func (d Decision) frames(c *Call) ([]frames.Frame, error) {
	switch d.action {
	case ActionMutate:
		return []frames.Frame{frames.Call(c.Tool, d.args, frames.WithCall(c.ID, c.Tool))}, d.err
	case ActionSkip:
		if d.err != nil {
			return nil, d.err
		}
		return []frames.Frame{frames.Result(d.result, frames.WithCall(c.ID, c.Tool))}, nil
	case ActionProceed:
		return []frames.Frame{frames.Meta(map[string]any{"decision": string(ActionProceed)})}, nil
	case ActionDeny:
		return []frames.Frame{frames.Meta(map[string]any{"decision": string(ActionDeny), "reason": d.reason})}, nil
	}
	return nil, invalid("the gate decided nothing")
}

// frames gives the answer to a request behind the tool.
func (o Outcome) frames(c *Call) ([]frames.Frame, error) {
	switch {
	case o.err != nil:
		return nil, o.err
	case o.result == nil:
		return []frames.Frame{frames.Meta(map[string]any{"decision": "keep"})}, nil
	}
	return []frames.Frame{frames.Result(o.result, frames.WithCall(c.ID, c.Tool))}, nil
}

// only gives the one frame that decides; several, or none, are a fault.
func only(fs []frames.Frame) (*frames.Frame, error) {
	if len(fs) == 0 {
		return nil, badAnswer("it holds no decision before END")
	}
	if len(fs) > 1 {
		return nil, badAnswer("it holds %d decisions: %s and %s", len(fs), fs[0].Type, fs[1].Type)
	}
	return &fs[0], nil
}

func badAnswer(format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeBadFrame, "its answer is not understood: "+format, args...)
}

// decisionFrom reads the answer to a gate's request.
func decisionFrom(fs []frames.Frame) (Decision, error) {
	f, err := only(fs)
	if err != nil {
		return Decision{}, err
	}
	switch f.Type {
	case frames.TypeToolCall:
		args, err := f.Arguments()
		return Decision{action: ActionMutate, args: args, err: err}, nil
	case frames.TypeToolResult:
		res, err := f.Result()
		return Decision{action: ActionSkip, result: res, err: err}, nil
	case frames.TypeMeta:
		return metaDecision(f)
	}
	return Decision{}, badAnswer("%s decides nothing", f.Type)
}

func metaDecision(f *frames.Frame) (Decision, error) {
	word, _ := f.Content.Lookup("decision").Text()
	switch Action(word) {
	case ActionProceed:
		return Proceed(), nil
	case ActionDeny:
		reason, _ := f.Content.Lookup("reason").Text()
		return Deny(reason), nil
	}
	return Decision{}, badAnswer("decision %.64q, want proceed or deny", word)
}

// outcomeFrom reads the answer to a request behind the tool. No frame before END
// keeps what came.
func outcomeFrom(fs []frames.Frame) (Outcome, error) {
	if len(fs) == 0 {
		return Keep(), nil
	}
	f, err := only(fs)
	if err != nil {
		return Outcome{}, err
	}
	word, _ := f.Content.Lookup("decision").Text()
	switch {
	case f.Type == frames.TypeToolResult:
		res, err := f.Result()
		return Outcome{result: res, err: err}, nil
	case f.Type == frames.TypeMeta && word == "keep":
		return Keep(), nil
	case f.Type == frames.TypeMeta:
		return Outcome{}, badAnswer("decision %.64q, want keep", word)
	}
	return Outcome{}, badAnswer("%s decides nothing", f.Type)
}
