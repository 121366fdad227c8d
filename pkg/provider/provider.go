package provider

import (
	"context"
	"encoding/json"
	"iter"
)

// Provider turns a request into a stream of events. Implementations are safe
// for concurrent use and keep no state between requests: any replica gives a
// request the same treatment.
type Provider interface {
	// Name is the first part of a model name: "openai" of "openai/gpt-x".
	Name() string
	// Stream gives the events of one model turn. Nothing happens until it is
	// ranged over, and each range is a request of its own. A range ends after a
	// [Stop] event, or with one error, which is a *frames.Error and comes
	// without an event. Leaving the range early ends the request. The request
	// is not changed and must not be changed meanwhile.
	Stream(ctx context.Context, req *Request) iter.Seq2[Event, error]
}

// Lister is implemented by providers that can say which models they have.
type Lister interface {
	// Models gives the names without the provider's own, sorted.
	Models() []string
}

// Request is what one model turn needs.
type Request struct {
	// Model is the name without the provider: "gpt-x" of "openai/gpt-x".
	Model    string
	Messages []Message
	// Tools are what the model may call; empty means tools are off, whatever
	// ToolChoice says.
	Tools      []Tool
	ToolChoice ToolChoice
	// Settings are model settings (temperature, maxTokens, …), passed on as they are.
	Settings map[string]json.RawMessage
	// StreamID names the turn in logs; providers send it nowhere.
	StreamID string
}

// Tool is a tool's declaration as a model sees it.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Schema is the JSON Schema of the arguments; empty means no parameters.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Strict asks for arguments that fit the schema by construction, where a
	// provider can; nil leaves it to the provider.
	Strict *bool `json:"strict,omitempty"`
}
