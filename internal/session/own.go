package session

import (
	"encoding/json"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// setTool declares a tool that a client serves for this session, or declares it
// anew.
func setTool(s *State, key string, value json.RawMessage) error {
	d, err := ownTool(value)
	if err != nil { // with its own code
		e := frames.AsError(err)
		return e.With(func(c *frames.Error) { c.Message, c.LLMMessage = "PARAM "+key+": "+c.Message, "" })
	}
	data, err := d.Raw().JSON() // schemas as text, as they came
	if err != nil {
		return invalid(key, "cannot be kept: %s", frames.AsError(err).Message)
	}
	for i, known := range s.OwnTools() {
		if known.Name == d.Name {
			s.Own[i] = data
			return nil
		}
	}
	if len(s.Own) >= MaxOwn {
		return invalid(key, "the session has %d tools of its own already", MaxOwn)
	}
	s.Own = append(s.Own, data)
	return nil
}

// ownTool reads a declaration and sees that it can be called.
func ownTool(value json.RawMessage) (*frames.Declaration, error) {
	raw, err := frames.FromJSON(value)
	if err != nil {
		return nil, err
	}
	if raw.Kind() != frames.KindMap {
		return nil, frames.NewError(frames.CodeValidationInput, "must be a tool's declaration, with its name and schema")
	}
	d, err := frames.DeclarationFrom(raw)
	if err != nil {
		return nil, err
	}
	in, err := schema.Compile(d.Schema)
	if err == nil {
		err = in.ForArguments()
	}
	if err == nil && d.OutputSchema != nil {
		_, err = schema.Compile(d.OutputSchema)
	}
	return d, err
}

// OwnTools gives the declarations of the tools that clients serve for this session.
func (s *State) OwnTools() []*frames.Declaration {
	out := make([]*frames.Declaration, 0, len(s.Own))
	for _, text := range s.Own {
		raw, err := frames.FromJSON(text)
		if err != nil {
			continue // not written by setTool
		}
		if d, err := frames.DeclarationFrom(raw); err == nil {
			out = append(out, d)
		}
	}
	return out
}
