package hook

import (
	"bytes"
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Action is what a gate decided, by its word on the bus.
type Action string

// The actions. The zero Action is none, and denies the call.
const (
	ActionProceed Action = "proceed"
	ActionMutate  Action = "mutate"
	ActionSkip    Action = "skip"
	ActionDeny    Action = "deny"
)

// Decision is what a gate decides: [Proceed], [Mutate], [Skip] or [Deny]. The
// zero Decision decides nothing, which denies the call.
type Decision struct {
	action Action
	args   json.RawMessage
	result *frames.ToolResult
	reason string
	err    error
}

// Proceed lets the call go on as it is.
func Proceed() Decision { return Decision{action: ActionProceed} }

// Mutate lets the call go on with other arguments: a value for encoding/json, or
// JSON text as json.RawMessage. They are held to the tool's schema; where they do
// not fit, the call is denied, by the fault of the hook.
func Mutate(args any) Decision {
	text, err := encode(args)
	return Decision{action: ActionMutate, args: text, err: err}
}

// Skip answers in place of the tool, which does not run: a value for
// encoding/json, JSON text as json.RawMessage, or an *frames.ToolResult. It is
// held to the tool's output schema.
func Skip(result any) Decision {
	res, err := resultOf(result)
	return Decision{action: ActionSkip, result: res, err: err}
}

// Deny refuses the call. The reason is shown as it is, to models too.
func Deny(reason string) Decision { return Decision{action: ActionDeny, reason: reason} }

// Action gives what was decided; "" is nothing.
func (d Decision) Action() Action { return d.action }

// Arguments gives those of [Mutate] as JSON text, or why they have none.
func (d Decision) Arguments() (json.RawMessage, error) { return d.args, d.err }

// Result gives that of [Skip], or why it has no JSON form.
func (d Decision) Result() (*frames.ToolResult, error) { return d.result, d.err }

// Reason gives that of [Deny].
func (d Decision) Reason() string { return d.reason }

// Outcome is what a hook behind the tool makes of what came: [Keep] or
// [Replace]. The zero Outcome keeps it.
type Outcome struct {
	result *frames.ToolResult
	err    error
}

// Keep leaves the result, or the failure, as it is.
func Keep() Outcome { return Outcome{} }

// Replace puts another result in place of the one that came, as for [Skip]. It is
// held to the tool's output schema; one that does not fit counts as a failure of
// the hook.
func Replace(result any) Outcome {
	res, err := resultOf(result)
	return Outcome{result: res, err: err}
}

// Result gives that of [Replace], or why it has no JSON form; nil is [Keep].
func (o Outcome) Result() (*frames.ToolResult, error) { return o.result, o.err }

func resultOf(v any) (*frames.ToolResult, error) {
	if res, ok := v.(*frames.ToolResult); ok && res != nil {
		clone := *res
		if clone.Result == nil && clone.Err == nil {
			clone.Result = json.RawMessage("{}")
		}
		return &clone, nil
	}
	text, err := encode(v)
	return &frames.ToolResult{Result: text}, err
}

// encode gives a value as JSON, with <, > and & as they are.
func encode(v any) (json.RawMessage, error) {
	if text, ok := v.(json.RawMessage); ok {
		if !json.Valid(text) {
			return nil, invalid("the hook gave a text that is no JSON")
		}
		return text, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, invalid("the hook gave a value that has no JSON form: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
