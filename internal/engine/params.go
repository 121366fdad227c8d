package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Defaults of PROTOCOL section 7.
const (
	// RunIterations is the default of maxIterations on wb.loop.
	RunIterations = 3
	// SessionIterations is the default of maxIterations for a user turn of a session.
	SessionIterations = 50
	// FinalPrompt is the default of finalSystemPrompt.
	FinalPrompt = "Answer directly using the tool result. Do not call tools."
)

// Params are the parameters of a run.
type Params struct {
	// Model is "provider/model".
	Model        string
	Messages     []provider.Message
	SystemPrompt string
	// Tools filters what the model may call; nil is all that the caller may call.
	Tools      Patterns
	ToolChoice provider.ToolChoice
	// MaxIterations is how many rounds the run may take; 0 is tools off at once,
	// nil the default of who runs it.
	MaxIterations *int
	// FinalSystemPrompt goes with the request behind the last round.
	FinalSystemPrompt string
	// MaxCalls is how many calls the run may make; nil is no limit.
	MaxCalls *int
	// MaxTokens is how many tokens the run's model requests may use together;
	// 0 is no limit.
	MaxTokens int64
	// MaxDuration is how long the run may take; 0 is no limit.
	MaxDuration time.Duration
	// Workspace is where the calls act; empty is the only one there is. A
	// session keeps its own.
	Workspace string
	// Settings are the model's, passed on as they are.
	Settings map[string]json.RawMessage
}

// WithIterations gives the parameters with n as their MaxIterations where none is set.
func (p Params) WithIterations(n int) Params {
	if p.MaxIterations == nil {
		p.MaxIterations = &n
	}
	return p
}

// ParseParams reads PARAM values by their keys. Keys of a session alone are left
// out, unknown ones are the model's settings. Its error is VALIDATION_INPUT and
// names the key.
func ParseParams(values map[string]json.RawMessage) (Params, error) {
	p := Params{FinalSystemPrompt: FinalPrompt}
	for key, value := range values {
		if key == aliasToolChoice && values["toolChoice"] != nil {
			continue
		}
		if err := p.set(key, value); err != nil {
			return Params{}, err
		}
	}
	return p, nil
}

// CheckParam checks the value of one PARAM as [ParseParams] would.
func CheckParam(key string, value json.RawMessage) error { return new(Params).set(key, value) }

// SessionOnly reports whether a PARAM key means something to a session and
// nothing to a run.
func SessionOnly(key string) bool {
	switch key {
	case "task", "nodeId", "sessionId", "maxTurns", "tool", "register-tool", "toolExecution", "approval":
		return true
	}
	return false
}

func (p *Params) set(key string, value json.RawMessage) error {
	if SessionOnly(key) {
		return nil
	}
	if read, ok := readers[key]; ok {
		return ParamError(key, read(p, value))
	}
	if !json.Valid(value) {
		return ParamError(key, invalid("is not JSON"))
	}
	if p.Settings == nil {
		p.Settings = map[string]json.RawMessage{}
	}
	p.Settings[key] = value
	return nil
}

// aliasToolChoice is how older clients and the large providers write toolChoice.
const aliasToolChoice = "tool_choice"

// readers read the parameters of a run; the map is not changed.
var readers = map[string]func(*Params, json.RawMessage) error{
	"model":             (*Params).readModel,
	"messages":          (*Params).readMessages,
	"systemPrompt":      func(p *Params, v json.RawMessage) error { return readText(&p.SystemPrompt, v) },
	"finalSystemPrompt": func(p *Params, v json.RawMessage) error { return readText(&p.FinalSystemPrompt, v) },
	"workspace":         func(p *Params, v json.RawMessage) error { return readText(&p.Workspace, v) },
	"tools":             func(p *Params, v json.RawMessage) error { return p.Tools.read(v) },
	"toolChoice":        func(p *Params, v json.RawMessage) error { return p.ToolChoice.UnmarshalJSON(v) },
	aliasToolChoice:     func(p *Params, v json.RawMessage) error { return p.ToolChoice.UnmarshalJSON(v) },
	"maxIterations":     func(p *Params, v json.RawMessage) error { return readBound(&p.MaxIterations, v) },
	"maxCalls":          func(p *Params, v json.RawMessage) error { return readBound(&p.MaxCalls, v) },
	"maxTokens":         (*Params).readTokens,
	"maxDurationMs":     (*Params).readDuration,
	"temperature":       (*Params).readTemperature,
}

func (p *Params) readModel(value json.RawMessage) error {
	if err := readText(&p.Model, value); err != nil {
		return err
	}
	_, _, err := provider.SplitModel(p.Model)
	return err
}

func (p *Params) readMessages(value json.RawMessage) (err error) {
	p.Messages, err = provider.ParseMessages(value)
	return err
}

func (p *Params) readTokens(value json.RawMessage) (err error) {
	p.MaxTokens, err = CountParam(value)
	return err
}

func (p *Params) readDuration(value json.RawMessage) error {
	ms, err := CountParam(value)
	p.MaxDuration = time.Duration(min(ms, maxMillis)) * time.Millisecond
	return err
}

func (p *Params) readTemperature(value json.RawMessage) error {
	var t float64
	if isNull(value) || json.Unmarshal(value, &t) != nil || t < 0 {
		return invalid("must be a number, 0 or more")
	}
	if p.Settings == nil {
		p.Settings = map[string]json.RawMessage{}
	}
	p.Settings["temperature"] = value
	return nil
}

func readText(to *string, value json.RawMessage) error {
	if isNull(value) || json.Unmarshal(value, to) != nil {
		return invalid("must be a text")
	}
	return nil
}

// Bounds of counts: what does not fit is no limit that anybody means.
const (
	maxCount  = 1 << 40
	maxMillis = int64(365 * 24 * time.Hour / time.Millisecond)
)

// CountParam reads a whole number, 0 or more, in any numeric form: 5, 5.0 and 5e0
// are the same.
func CountParam(value json.RawMessage) (int64, error) {
	raw, err := frames.FromJSON(value)
	if err == nil {
		if n, ok := raw.Int64(); ok && n >= 0 && n <= maxCount {
			return n, nil
		}
	}
	return 0, invalid("must be a whole number, 0 or more")
}

func readBound(to **int, value json.RawMessage) error {
	n, err := CountParam(value)
	if err == nil {
		bound := int(n)
		*to = &bound
	}
	return err
}

func isNull(value json.RawMessage) bool { return strings.TrimSpace(string(value)) == "null" }

func invalid(format string, args ...any) *frames.Error {
	return frames.NewError(frames.CodeValidationInput, format, args...)
}

// ParamError puts the key before what is wrong with its value, as VALIDATION_INPUT;
// nil stays nil.
func ParamError(key string, err error) error {
	if err == nil {
		return nil
	}
	e := frames.AsError(err)
	return e.With(func(c *frames.Error) {
		c.Code, c.LLMMessage = frames.CodeValidationInput, ""
		c.Message = "PARAM " + clip(key) + ": " + c.Message
	})
}

// Patterns are names of tools, in which * stands for any letters and ? for one.
type Patterns []string

// Match reports whether a tool's name fits one of the patterns; nil fits all.
func (ps Patterns) Match(name string) bool {
	if ps == nil {
		return true
	}
	return slices.ContainsFunc(ps, func(p string) bool { return frames.MatchName(p, name) })
}

func (ps *Patterns) read(value json.RawMessage) error {
	names := []string{}
	if isNull(value) || json.Unmarshal(value, &names) != nil {
		return invalid("must be a list of tool names or patterns")
	}
	for _, name := range names {
		if !frames.ValidPattern(name) {
			return invalid("%q is no tool's name or pattern", clip(name))
		}
	}
	*ps = names
	return nil
}

// clip bounds a foreign word for an error message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
