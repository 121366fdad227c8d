package modelbus

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Keys of a request's PARAMs; every other one is a setting of the model.
const (
	keyModel      = "model"
	keyMessages   = "messages"
	keyTools      = "tools"
	keyToolChoice = "toolChoice"
)

// RequestFrames writes a request whose Model is "provider/model". What has no
// form on the wire is VALIDATION_INPUT.
func RequestFrames(req *provider.Request) ([]*frames.Frame, error) {
	var w paramWriter
	w.add(keyModel, frames.Value(req.Model))
	w.json(keyMessages, req.Messages)
	if len(req.Tools) > 0 {
		w.add(keyTools, toolsValue(req.Tools))
		w.json(keyToolChoice, req.ToolChoice)
	}
	for _, key := range slices.Sorted(maps.Keys(req.Settings)) {
		w.json(key, req.Settings[key])
	}
	start := frames.Start(frames.WithStream(req.StreamID))
	return append(w.out, &start), w.err
}

type paramWriter struct {
	out []*frames.Frame
	err error
}

func (w *paramWriter) add(key string, value frames.Raw) {
	f := frames.Param(key, value)
	w.out = append(w.out, &f)
}

func (w *paramWriter) json(key string, value any) {
	text, err := json.Marshal(value)
	if err == nil {
		var raw frames.Raw
		if raw, err = frames.FromJSON(text); err == nil {
			w.add(key, raw)
			return
		}
	}
	if w.err == nil {
		w.err = frames.NewError(frames.CodeValidationInput, "%s: %w", key, err)
	}
}

// toolsValue keeps each schema as the text that it is.
func toolsValue(tools []provider.Tool) frames.Raw {
	out := make([]frames.Raw, len(tools))
	for i, t := range tools {
		c := frames.Fields{{Key: "name", Value: frames.Value(t.Name)}}
		if t.Description != "" {
			c.Set("description", frames.Value(t.Description))
		}
		if len(t.Schema) > 0 {
			c.Set("schemaJson", frames.Value(string(t.Schema)))
		}
		if t.Strict != nil {
			c.Set("strict", frames.Value(*t.Strict))
		}
		out[i] = c.Raw()
	}
	return frames.Value(out)
}

// ReadRequest reads a request for the provider of the name. Its error is
// BAD_FRAME or VALIDATION_INPUT and names the PARAM.
func ReadRequest(name string, m *frames.Message) (*provider.Request, error) {
	start := m.First(frames.TypeStart)
	if start == nil && m.First(frames.TypeParam) == nil {
		return nil, frames.UnknownType(m.Frames[0].Type)
	}
	if start == nil {
		return nil, frames.NewError(frames.CodeBadFrame, "want PARAM frames and START in one message, there is no START")
	}
	req := &provider.Request{StreamID: start.StreamID}
	for i := range m.Frames {
		if f := &m.Frames[i]; f.Type == frames.TypeParam {
			if err := readParam(req, f); err != nil {
				return nil, err
			}
		}
	}
	model, ok := strings.CutPrefix(req.Model, name+"/")
	if !ok || model == "" {
		return nil, invalid(keyModel, "%q is no model of provider %q: want %s/<model>", clip(req.Model), name, name)
	}
	req.Model = model
	return req, nil
}

func readParam(req *provider.Request, f *frames.Frame) error {
	if f.Key == keyTools {
		tools, err := readTools(f.Value)
		req.Tools = tools
		return err
	}
	value, err := f.Value.JSON()
	if err == nil {
		err = set(req, f.Key, value)
	}
	if err != nil {
		return invalid(f.Key, "%s", frames.AsError(err).Message)
	}
	return nil
}

func set(req *provider.Request, key string, value json.RawMessage) (err error) {
	switch key {
	case keyModel:
		err = json.Unmarshal(value, &req.Model)
	case keyMessages:
		req.Messages, err = provider.ParseMessages(value)
	case keyToolChoice:
		err = req.ToolChoice.UnmarshalJSON(value)
	default:
		if req.Settings == nil {
			req.Settings = map[string]json.RawMessage{}
		}
		req.Settings[key] = value
	}
	return err
}

func readTools(v frames.Raw) ([]provider.Tool, error) {
	out := make([]provider.Tool, 0, v.Len())
	for c := range v.Items() {
		t, err := readTool(c)
		if err != nil {
			return nil, invalid(keyTools, "%s", frames.AsError(err).Message)
		}
		out = append(out, t)
	}
	return out, nil
}

func readTool(c frames.Raw) (t provider.Tool, err error) {
	t.Name, _ = c.Lookup("name").Text()
	if t.Name == "" {
		return t, frames.NewError(frames.CodeValidationInput, "a tool has no name")
	}
	t.Description, _ = c.Lookup("description").Text()
	if strict, ok := c.Lookup("strict").Bool(); ok {
		t.Strict = &strict
	}
	if text, ok := c.Lookup("schemaJson").Bytes(); ok {
		t.Schema = json.RawMessage(text)
	} else if tree := c.Lookup("schema"); !tree.Absent() {
		t.Schema, err = tree.JSON()
	}
	return t, err
}

func invalid(key, format string, args ...any) error {
	e := frames.NewError(frames.CodeValidationInput, format, args...)
	return e.With(func(c *frames.Error) { c.Message = "PARAM " + clip(key) + ": " + c.Message })
}

// clip bounds a foreign word for an error message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
