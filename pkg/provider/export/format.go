package export

import (
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Format is the form in which a provider, or a library, takes tools.
type Format string

// The formats. Where a format can say `strict`, it is written when it was chosen
// (see [WithStrict]); OpenAIResponses always writes it, since that API takes a
// missing one for true.
const (
	// OpenAI is Chat Completions: {type: "function", function: {name, …}}.
	OpenAI Format = "openai"
	// OpenAIStrict is OpenAI with strict chosen for every tool that does not
	// choose for itself.
	OpenAIStrict Format = "openai-strict"
	// OpenAIResponses is the Responses API: {type: "function", name, …}.
	OpenAIResponses Format = "openai-responses"
	// Anthropic is Messages: {name, description, input_schema}.
	Anthropic Format = "anthropic"
	// Gemini is [{functionDeclarations: [{name, description, parametersJsonSchema}]}].
	Gemini Format = "gemini"
	// GeminiParameters is Gemini with `parameters`, the OpenAPI subset that every
	// Gemini endpoint reads; a schema that it cannot say goes out as
	// parametersJsonSchema, with a note.
	GeminiParameters Format = "gemini-parameters"
	// Vercel is the AI SDK's record {name: {description, inputSchema}}.
	Vercel Format = "vercel"
	// MCP is the tools of tools/list: {name, title, description, inputSchema,
	// outputSchema, annotations}.
	MCP Format = "mcp"
)

// Formats gives all formats.
func Formats() []Format {
	return []Format{OpenAI, OpenAIResponses, OpenAIStrict, Anthropic, Gemini, GeminiParameters, Vercel, MCP}
}

// ParseFormat reads a format's name; the error is VALIDATION_INPUT and lists them.
func ParseFormat(text string) (Format, error) {
	f := Format(text)
	if err := f.check(); err != nil {
		return "", err
	}
	return f, nil
}

func (f Format) check() error {
	if slices.Contains(Formats(), f) {
		return nil
	}
	known := make([]string, 0, len(Formats()))
	for _, k := range Formats() {
		known = append(known, string(k))
	}
	return frames.NewError(frames.CodeValidationInput, "no export format %q; there is %s", clip(string(f), 64), strings.Join(known, ", "))
}

// MaxTools is how many tools one request may hold; 0 is no stated limit.
func (f Format) MaxTools() int {
	switch f {
	case OpenAI, OpenAIStrict, OpenAIResponses:
		return 128
	case Gemini, GeminiParameters:
		return 512
	}
	return 0
}

// rule says which names a provider takes.
type rule struct {
	max    int
	extra  string // beside letters, digits and _
	letter bool   // a digit or one of extra may not come first
}

func (f Format) names() rule {
	switch f {
	case Gemini, GeminiParameters:
		return rule{max: 64, extra: "-.", letter: true}
	case MCP:
		return rule{max: 128, extra: "-."}
	case Vercel:
		return rule{} // the SDK has none
	}
	return rule{max: 64, extra: "-"}
}

// properties gives the rule for the names of arguments; false if there is none.
func (f Format) properties() (rule, bool) {
	switch f {
	case Anthropic:
		return rule{max: 64, extra: "-."}, true
	case GeminiParameters:
		return rule{max: 64, letter: true}, true
	}
	return rule{}, false
}

func (r rule) allows(c byte) bool {
	return isLetter(c) || '0' <= c && c <= '9' || strings.IndexByte(r.extra, c) >= 0
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

func (r rule) fits(name string) bool {
	if r.max == 0 {
		return name != ""
	}
	if name == "" || len(name) > r.max || r.letter && !isLetter(name[0]) {
		return false
	}
	for i := range len(name) {
		if !r.allows(name[i]) {
			return false
		}
	}
	return true
}
