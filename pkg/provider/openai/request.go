package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// fixed are the keys of the body that no setting may replace.
var fixed = []string{"model", "messages", "tools", "tool_choice", "stream", "stream_options", "n"}

// settingNames translates the neutral names of settings; all others go out as
// they are.
var settingNames = map[string]string{
	"topP":              "top_p",
	"frequencyPenalty":  "frequency_penalty",
	"presencePenalty":   "presence_penalty",
	"reasoningEffort":   "reasoning_effort",
	"responseFormat":    "response_format",
	"parallelToolCalls": "parallel_tool_calls",
}

type body map[string]any

// body builds the request; what cannot be sent is VALIDATION_INPUT.
func (p *Provider) body(req *provider.Request) ([]byte, error) {
	if req.Model == "" {
		return nil, p.errorf(frames.CodeNotFound, "no model is named: write %s/<model>", p.cfg.Name)
	}
	out := body{"model": req.Model, "stream": true}
	if err := p.settings(out, req); err != nil {
		return nil, err
	}
	if err := p.tools(out, req); err != nil {
		return nil, err
	}
	if !p.cfg.OmitStreamOptions {
		out["stream_options"] = map[string]bool{"include_usage": true}
	}
	out["messages"] = newDialect(&p.cfg).messages(req.Messages)
	return encode(out)
}

// encode writes JSON without escaping what JSON need not escape.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, frames.NewError(frames.CodeInternal, "openai: encode the request: %w", err)
	}
	return b.Bytes(), nil
}

func (p *Provider) settings(out body, req *provider.Request) error {
	for _, name := range slices.Sorted(maps.Keys(req.Settings)) {
		value := req.Settings[name]
		key := p.settingKey(name)
		switch {
		case slices.Contains(fixed, key):
			return p.refuse("setting %q cannot be set", name)
		case !json.Valid(value):
			return p.refuse("setting %q is not JSON", name)
		case key == "parallel_tool_calls" && len(req.Tools) == 0:
			continue // refused without tools
		}
		out[key] = value
	}
	return nil
}

// settingKey gives the wire name. OpenAI's own host knows the limit of the
// answer by its new name only for its newer models, others by the old one.
func (p *Provider) settingKey(name string) string {
	if name == "maxTokens" {
		if p.url.Hostname() == "api.openai.com" {
			return "max_completion_tokens"
		}
		return "max_tokens"
	}
	if key, ok := settingNames[name]; ok {
		return key
	}
	return name
}

type wireTool struct {
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict,omitempty"`
}

// tools sets tools and tool_choice, or neither: several servers refuse an empty
// list, and a choice without a list.
func (p *Provider) tools(out body, req *provider.Request) error {
	if len(req.Tools) == 0 {
		return nil
	}
	list := make([]wireTool, len(req.Tools))
	for i := range req.Tools {
		t := &req.Tools[i]
		schema := t.Schema
		if len(trim(schema)) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		if t.Name == "" || !json.Valid(schema) {
			return p.refuse("tool %d (%q) has no name, or a schema that is not JSON", i, clip(t.Name))
		}
		list[i] = wireTool{Type: "function", Function: wireFunction{t.Name, t.Description, schema, t.Strict}}
	}
	out["tools"] = list
	return p.toolChoice(out, req)
}

func (p *Provider) toolChoice(out body, req *provider.Request) error {
	switch c := req.ToolChoice; c.Mode {
	case "":
	case provider.ChoiceTool:
		if !slices.ContainsFunc(req.Tools, func(t provider.Tool) bool { return t.Name == c.Name }) {
			return p.refuse("the tool choice %q is not among the tools", clip(c.Name))
		}
		out["tool_choice"] = map[string]any{"type": "function", "function": map[string]string{"name": c.Name}}
	default:
		out["tool_choice"] = string(c.Mode)
	}
	return nil
}

func (p *Provider) refuse(format string, args ...any) error {
	return final(p.errorf(frames.CodeValidationInput, format, args...))
}
