package modelbus

import (
	"encoding/json"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Accepted is what an adapter says first of a request: where an ABORT ends it.
type Accepted struct {
	Request  string `json:"request"`
	Identity string `json:"identity"`
	Instance string `json:"instance"`
}

// Frame gives the META that says so.
func (a Accepted) Frame() frames.Frame { return frames.Meta(a) }

func readAccepted(c frames.Raw) (a Accepted, ok bool) {
	a.Request, _ = c.Lookup("request").Text()
	a.Identity, _ = c.Lookup("identity").Text()
	a.Instance, _ = c.Lookup("instance").Text()
	return a, a.Request != "" && frames.ValidName(a.Identity) && frames.ValidName(a.Instance)
}

// EventFrame writes an event of a model's stream.
func EventFrame(e provider.Event) frames.Frame {
	switch e := e.(type) {
	case provider.Text:
		return frames.Text(e.Text)
	case provider.Thinking:
		return engine.ThinkingFrame(e)
	case provider.ToolCall:
		return callFrame(&e)
	case provider.Stop:
		return stopFrame(&e)
	}
	return frames.Meta(nil) // the set of events is closed
}

func callFrame(c *provider.ToolCall) frames.Frame {
	f := frames.Call(engine.WireName(c.Name), json.RawMessage(c.Arguments), frames.WithMeta("modelCallId", c.ID))
	if frames.ValidName(c.ID) {
		f.ToolCallID = c.ID
	}
	if len(c.Repairs) > 0 {
		f.Metadata.Set("repairs", frames.Value(c.Repairs))
	}
	if f.Name != c.Name {
		f.Metadata.Set("modelName", frames.Value(c.Name))
	}
	if c.Invalid != nil {
		f.Content = frames.Fields{{Key: "argumentsText", Value: frames.Value(c.Arguments)}}.Raw()
		f.Metadata.Set("error", c.Invalid.Raw())
	}
	return f
}

func stopFrame(s *provider.Stop) frames.Frame {
	c := frames.Fields{{Key: "stopReason", Value: frames.Value(string(s.Reason))}}
	if s.Raw != "" {
		c.Set("raw", frames.Value(s.Raw))
	}
	c.Set("usage", frames.Value(s.Usage))
	return frames.Meta(c)
}

// answer reads the frames of an adapter's answer. Calls are held until the stop
// reason tells whether they are whole.
type answer struct {
	accepted Accepted
	calls    heldCalls
	stopped  bool
}

// events gives what a frame means. An answer that cannot be read is NO_RESULT.
func (a *answer) events(f *frames.Frame) ([]provider.Event, error) {
	switch f.Type {
	case frames.TypeText:
		if f.Metadata.Bool("toolArgStream") {
			return nil, a.calls.piece(f)
		}
		return notEmpty(f.Text() != "", provider.Text{Text: f.Text()})
	case frames.TypeThinking:
		return a.thinking(f)
	case frames.TypeToolCall:
		return nil, a.calls.open(f)
	case frames.TypeMeta:
		if frames.ToolComplete(f) {
			if err := a.calls.close(f); err != nil {
				return nil, err
			}
		}
		return a.meta(f.Content)
	case frames.TypeError:
		return nil, f.Err()
	}
	return nil, nil
}

func notEmpty(is bool, e provider.Event) ([]provider.Event, error) {
	if !is {
		return nil, nil
	}
	return []provider.Event{e}, nil
}

func (a *answer) thinking(f *frames.Frame) ([]provider.Event, error) {
	t := provider.Thinking{Text: f.Text(), Redacted: f.Metadata.Bool("redacted")}
	t.Signature, _ = f.Content.Lookup("signature").Text()
	return notEmpty(t != provider.Thinking{}, t)
}

func (a *answer) meta(c frames.Raw) ([]provider.Event, error) {
	if accepted, ok := readAccepted(c); ok {
		a.accepted = accepted
	}
	reason, ok := c.Lookup("stopReason").Text()
	if !ok || a.stopped {
		return nil, nil
	}
	a.stopped = true
	stop := provider.Stop{Reason: stopReason(reason)}
	stop.Raw, _ = c.Lookup("raw").Text()
	stop.Usage = provider.ReadUsage(c.Lookup("usage"))
	out := a.calls.events(stop.Reason)
	if stop.Reason == provider.StopDone && len(out) > 0 {
		stop.Reason = provider.StopToolCalls
	}
	return append(out, stop), nil
}

// stopReason reads a stop reason; a word that is not of the list is an error of
// the provider's, so that no call runs after it.
func stopReason(word string) provider.StopReason {
	switch r := provider.StopReason(word); r {
	case provider.StopDone, provider.StopToolCalls, provider.StopLength, provider.StopContentFilter:
		return r
	}
	return provider.StopError
}
