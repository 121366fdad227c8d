package provider

import (
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/frames"
)

// ChoiceMode says how free the model is to call tools.
type ChoiceMode string

// The modes; the zero value leaves it to the provider, which means auto.
const (
	ChoiceAuto     ChoiceMode = "auto"
	ChoiceNone     ChoiceMode = "none"
	ChoiceRequired ChoiceMode = "required"
	ChoiceTool     ChoiceMode = "tool"
)

// ToolChoice is a mode, and with [ChoiceTool] the one tool to call.
type ToolChoice struct {
	Mode ChoiceMode
	Name string
}

// ParseToolChoice reads a tool choice as people write it: auto, none, required,
// any (= required), or JSON as for [ToolChoice.UnmarshalJSON]. Blank is the zero
// value.
func ParseToolChoice(text string) (ToolChoice, error) {
	switch kind([]byte(text)) {
	case 0:
		return ToolChoice{}, nil
	case '{', '"', 'n':
		var c ToolChoice
		if json.Valid([]byte(text)) {
			return c, c.UnmarshalJSON([]byte(text))
		}
	}
	return modeChoice(text)
}

func modeChoice(mode string) (ToolChoice, error) {
	switch mode {
	case "":
		return ToolChoice{}, nil
	case "auto", "none", "required":
		return ToolChoice{Mode: ChoiceMode(mode)}, nil
	case "any":
		return ToolChoice{Mode: ChoiceRequired}, nil
	}
	return ToolChoice{}, frames.NewError(frames.CodeValidationInput,
		"tool choice %q is not auto, none, required or {\"name\": \"<tool>\"}", brief(mode))
}

// UnmarshalJSON reads "auto", "none", "required", "any", null, {"name": TOOL},
// {"type": MODE}, and the forms that name a tool to the large providers
// ({"type": "function", "function": {"name": TOOL}}, {"type": "tool", "toolName": TOOL}).
func (c *ToolChoice) UnmarshalJSON(data []byte) (err error) {
	switch kind(data) {
	case 'n':
		*c = ToolChoice{}
		return nil
	case '"':
		var mode string
		if err = json.Unmarshal(data, &mode); err == nil {
			*c, err = modeChoice(mode)
		}
		return err
	}
	*c, err = objectChoice(data)
	return err
}

func objectChoice(data []byte) (ToolChoice, error) {
	var w struct {
		Type     string `json:"type"`
		Mode     string `json:"mode"`
		Name     string `json:"name"`
		ToolName string `json:"toolName"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return ToolChoice{}, frames.NewError(frames.CodeValidationInput, "tool choice: %w", err)
	}
	for _, name := range []string{w.Name, w.ToolName, w.Function.Name} {
		if name != "" {
			return ToolChoice{Mode: ChoiceTool, Name: name}, nil
		}
	}
	for _, mode := range []string{w.Mode, w.Type} {
		if mode != "" {
			return modeChoice(mode)
		}
	}
	return ToolChoice{}, frames.NewError(frames.CodeValidationInput, "tool choice names no tool")
}

// MarshalJSON writes a mode as a string, a tool as {"name": TOOL}, the zero
// value as null.
func (c ToolChoice) MarshalJSON() ([]byte, error) {
	switch c.Mode {
	case "":
		return []byte("null"), nil
	case ChoiceTool:
		return json.Marshal(map[string]string{"name": c.Name})
	}
	return json.Marshal(string(c.Mode))
}
