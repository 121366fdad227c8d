package openai

import (
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/provider"
)

// chunk is one event of the stream, or a whole completion. Fields whose form
// differs between servers are read by types that never fail.
type chunk struct {
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
}

type choice struct {
	Index        count  `json:"index"`
	Delta        *delta `json:"delta"`
	Message      *delta `json:"message"` // of a server that does not stream
	FinishReason text   `json:"finish_reason"`
	Usage        *usage `json:"usage"` // where some servers put it
}

type delta struct {
	Content          json.RawMessage `json:"content"`
	Refusal          json.RawMessage `json:"refusal"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ToolCalls        callDeltas      `json:"tool_calls"`
	FunctionCall     *function       `json:"function_call"` // of before there were tools
}

// reasoning gives the field that the server uses; some send both.
func (d *delta) reasoning() json.RawMessage {
	if raw := trim(d.ReasoningContent); raw != nil {
		return raw
	}
	return d.Reasoning
}

type callDelta struct {
	Index    count    `json:"index"`
	ID       text     `json:"id"`
	Function function `json:"function"`
}

type function struct {
	Name      text            `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// callDeltas is a list, or the one call of a server that forgets the list.
type callDeltas []callDelta

// UnmarshalJSON takes either form; anything else is no call.
func (c *callDeltas) UnmarshalJSON(raw []byte) error {
	var list []callDelta
	var err error
	switch raw[0] {
	case '{':
		list = make([]callDelta, 1)
		err = json.Unmarshal(raw, &list[0])
	case '[':
		err = json.Unmarshal(raw, &list)
	}
	*c = list
	return err
}

type usage struct {
	Prompt     count `json:"prompt_tokens"`
	Completion count `json:"completion_tokens"`
	Total      count `json:"total_tokens"`
	CacheHit   count `json:"prompt_cache_hit_tokens"`
	// Cost is in US dollars; some servers say it.
	Cost dollars `json:"cost"`
	In   struct {
		Cached count `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Out struct {
		Reasoning count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (u *usage) said() bool {
	return u != nil && (u.Prompt.value > 0 || u.Completion.value > 0 || u.Total.value > 0)
}

func (u *usage) neutral() provider.Usage {
	out := provider.Usage{
		InputTokens: u.Prompt.value, OutputTokens: u.Completion.value, TotalTokens: u.Total.value,
		CachedTokens: u.In.Cached.value, ReasoningTokens: u.Out.Reasoning.value, CostMicros: u.Cost.micros,
	}
	if !u.Total.known {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	if !u.In.Cached.known {
		out.CachedTokens = u.CacheHit.value
	}
	return out
}

// stopReason reads a finish_reason in the words of OpenAI and of others that
// servers pass on. An unknown word means that the model was done.
func stopReason(raw string) provider.StopReason {
	switch raw {
	case "length", "max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens", "model_context_window_exceeded":
		return provider.StopLength
	case "content_filter", "content-filter", "SAFETY", "safety", "sensitive", "refusal":
		return provider.StopContentFilter
	case "error", "abort", "network_error", "insufficient_system_resource", "malformed_function_call", "MALFORMED_FUNCTION_CALL":
		return provider.StopError
	case "tool_calls", "function_call", "tool_use", "tool-calls":
		return provider.StopToolCalls
	}
	return provider.StopDone
}
