package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// fixed are the keys of the body that no setting may replace.
var fixed = []string{"model", "messages", "tools", "tool_choice", "stream", "stream_options", "n"}

// strictTools is the setting that chooses strict for tools that do not choose for
// themselves; it goes nowhere.
const strictTools = "strictTools"

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

// body builds the request; what cannot be sent is VALIDATION_INPUT. The set is that
// of the request's tools, by which the answer's calls are read.
func (p *Provider) body(req *provider.Request) ([]byte, *export.Set, error) {
	if req.Model == "" {
		return nil, nil, p.errorf(frames.CodeNotFound, "no model is named: write %s/<model>", p.cfg.Name)
	}
	out := body{"model": req.Model, "stream": true}
	if err := p.settings(out, req); err != nil {
		return nil, nil, err
	}
	set, err := p.tools(out, req)
	if err != nil {
		return nil, nil, err
	}
	if !p.cfg.OmitStreamOptions {
		out["stream_options"] = map[string]bool{"include_usage": true}
	}
	out["messages"] = newDialect(&p.cfg, set).messages(req.Messages)
	text, err := encode(out)
	return text, set, err
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
		case key == strictTools:
			continue
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

// tools sets tools and tool_choice, or neither: several servers refuse an empty
// list, and a choice without a list.
func (p *Provider) tools(out body, req *provider.Request) (*export.Set, error) {
	opts := []export.Option{export.WithMaxTools(p.cfg.MaxTools)}
	if value := trim(req.Settings[strictTools]); value != nil {
		strict := string(value) == "true"
		if !strict && string(value) != "false" {
			return nil, p.refuse("setting %q is neither true nor false", strictTools)
		}
		opts = append(opts, export.WithStrict(strict))
	}
	set, err := export.Export(export.OpenAI, export.FromTools(req.Tools), opts...)
	if err != nil {
		return nil, p.refuseTools(frames.AsError(err))
	}
	if set.Len() == 0 {
		return set, nil
	}
	out["tools"] = set.JSON()
	return set, p.toolChoice(out, req, set)
}

func (p *Provider) refuseTools(err *frames.Error) error {
	return final(err.With(func(e *frames.Error) { e.Message = p.cfg.Name + ": " + e.Message }))
}

func (p *Provider) toolChoice(out body, req *provider.Request, set *export.Set) error {
	switch c := req.ToolChoice; c.Mode {
	case "":
	case provider.ChoiceTool:
		if !slices.ContainsFunc(req.Tools, func(t provider.Tool) bool { return t.Name == c.Name }) {
			return p.refuse("the tool choice %q is not among the tools", clip(c.Name))
		}
		out["tool_choice"] = map[string]any{"type": "function", "function": map[string]string{"name": set.Names().Wire(c.Name)}}
	default:
		out["tool_choice"] = string(c.Mode)
	}
	return nil
}

func (p *Provider) refuse(format string, args ...any) error {
	return final(p.errorf(frames.CodeValidationInput, format, args...))
}
