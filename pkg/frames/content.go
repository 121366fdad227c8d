package frames

import (
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"
)

// End reasons of PROTOCOL section 1.
const (
	EndCompleted = "completed"
	EndCancelled = "cancelled"
	EndError     = "error"
	EndMaxTurns  = "max_turns"
	EndLimit     = "limit"
	EndDrained   = "drained"
)

// NewFrame makes a frame of any type; content as for [Value], nil for none.
func NewFrame(t Type, content any, opts ...Option) Frame {
	if content == nil {
		return newFrame(t, nil, opts)
	}
	return newFrame(t, Value(content), opts)
}

// Describe asks for the declaration of the tool, or of all tools where name is empty.
func Describe(name string, opts ...Option) Frame {
	f := newFrame(TypeDescribe, nil, opts)
	f.Name = name
	return f
}

// Call asks for a tool call. arguments is JSON text; nil is {}.
func Call(tool string, arguments json.RawMessage, opts ...Option) Frame {
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	f := newFrame(TypeToolCall, Fields{{"argumentsJson", Value(string(arguments))}}.Raw(), opts)
	f.Name = tool
	return f
}

// Text carries text of a model, a user or a running tool.
func Text(text string, opts ...Option) Frame {
	return newFrame(TypeText, Fields{{"text", Value(text)}}.Raw(), opts)
}

// Thinking carries a model's reasoning; signature may be empty.
func Thinking(text, signature string, opts ...Option) Frame {
	c := Fields{{"text", Value(text)}}
	if signature != "" {
		c.Set("signature", Value(signature))
	}
	return newFrame(TypeThinking, c.Raw(), opts)
}

// Progress tells how far an operation is; content as for [Value].
func Progress(content any, opts ...Option) Frame { return NewFrame(TypeProgress, content, opts...) }

// Param sets a run parameter; value as for [Value].
func Param(key string, value any, opts ...Option) Frame {
	f := newFrame(TypeParam, nil, opts)
	f.Key, f.Value = key, Value(value)
	return f
}

// Start begins a request, a run or a session.
func Start(opts ...Option) Frame { return newFrame(TypeStart, nil, opts) }

// Data carries a typed payload for an outside driver; content as for [Value].
func Data(content any, opts ...Option) Frame { return NewFrame(TypeData, content, opts...) }

// Meta carries state, usage and acknowledgements; content as for [Value].
func Meta(content any, opts ...Option) Frame { return NewFrame(TypeMeta, content, opts...) }

// Tick says that work goes on.
func Tick(opts ...Option) Frame { return newFrame(TypeTick, nil, opts) }

// Cancel asks to stop one call.
func Cancel(callID, tool string, opts ...Option) Frame {
	f := newFrame(TypeCancel, Fields{{"toolCallId", Value(callID)}, {"name", Value(tool)}}.Raw(), opts)
	f.ToolCallID, f.Name = callID, tool
	return f
}

// Abort asks to stop a whole session or run.
func Abort(opts ...Option) Frame { return newFrame(TypeAbort, nil, opts) }

// End closes an exchange, a run or a session.
func End(reason string, opts ...Option) Frame {
	return newFrame(TypeEnd, Fields{{"reason", Value(reason)}}.Raw(), opts)
}

// Fail carries an error of an exchange that is no call.
func Fail(err error, opts ...Option) Frame { return newFrame(TypeError, AsError(err).Raw(), opts) }

// Text gives the content's text: of TEXT and THINKING.
func (f *Frame) Text() string { return f.Content.text("text") }

// Reason gives an END's reason; "" on other frames.
func (f *Frame) Reason() string {
	if f.Type != TypeEnd {
		return ""
	}
	return f.Content.text("reason")
}

// Time gives the frame's time; zero where it has none.
func (f *Frame) Time() time.Time {
	if f.TS == 0 {
		return time.Time{}
	}
	return time.UnixMilli(f.TS)
}

// Arguments gives a TOOL_CALL's arguments as JSON text: argumentsJson as it is,
// else the tree in arguments; {} where there is neither. The text is not parsed
// here. A tree that has no JSON form is VALIDATION_INPUT.
func (f *Frame) Arguments() (json.RawMessage, error) {
	text, err := payload(f.Content, "arguments")
	if err != nil {
		return nil, err.recode(CodeValidationInput)
	}
	if text == nil || string(text) == "null" {
		return json.RawMessage("{}"), nil
	}
	return text, nil
}

// payload gives a JSON payload of a content: its text, else its tree; nil where
// there is neither.
func payload(content Raw, key string) (json.RawMessage, *Error) {
	if text, ok := content.Lookup(key + "Json").Bytes(); ok {
		return json.RawMessage(text), nil
	}
	tree := content.Lookup(key)
	if tree == nil {
		return nil, nil
	}
	return treeJSON(tree, "/content/"+key)
}

// treeJSON gives a payload tree as JSON. Unlike [Raw.JSON] it takes bin for
// text, and refuses bin that is none.
func treeJSON(tree Raw, path string) (json.RawMessage, *Error) {
	fixed, err := binToText(nil, tree, path)
	if err != nil {
		return nil, err
	}
	text, jerr := Raw(fixed).JSON()
	if jerr != nil {
		return nil, AsError(jerr)
	}
	return text, nil
}

func binToText(b []byte, r Raw, path string) ([]byte, *Error) {
	switch r.Kind() {
	case KindBin:
		p, _ := r.Bytes()
		if !utf8.Valid(p) {
			return nil, badFrame(0, path, "holds binary data, which JSON arguments and results cannot")
		}
		return appendString(b, string(p)), nil
	case KindArray:
		b = appendArrayHeader(b, r.Len())
		for v := range r.Items() {
			var err *Error
			if b, err = binToText(b, v, path); err != nil {
				return nil, err
			}
		}
		return b, nil
	case KindMap:
		b = appendMapHeader(b, r.Len())
		for k, v := range r.Pairs() {
			var err *Error
			if b, err = binToText(appendString(b, k), v, path+"/"+pointerEscape(shorten(k))); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	return append(b, r...), nil
}

func (e *Error) recode(code Code) *Error {
	t := traits[code]
	return e.With(func(c *Error) { c.Code, c.Retryable, c.Effect = code, t.retryable, t.effect })
}

// Raw gives the error as content: the shape of PROTOCOL section 6.
func (e *Error) Raw() Raw {
	c := Fields{
		{"code", Value(string(e.Code))}, {"message", Value(e.Message)}, {"llmMessage", Value(e.ForModel())},
		{"retryable", Value(e.Retryable)}, {"effect", Value(string(e.Effect))},
	}
	if e.Reason != "" {
		c.Set("reason", Value(e.Reason))
	}
	if e.RetryAfter > 0 {
		c.Set("retryAfterMs", Value(e.RetryAfter.Milliseconds()))
	}
	if len(e.Issues) > 0 {
		c.Set("issues", Value(e.Issues))
	}
	return c.Raw()
}

// ErrorFrom reads an error's content. A code that is not of the list becomes
// EXECUTION and is kept as the reason, if it fits one; S5's and S2's plain
// messages are read too.
func ErrorFrom(c Raw) *Error {
	code := Code(c.text("code"))
	e := &Error{Code: code, Reason: c.text("reason"), Message: c.text("message"), LLMMessage: c.text("llmMessage")}
	if !code.Valid() {
		e.Code = CodeExecution
	}
	t := traits[e.Code]
	e.Retryable, e.Effect = t.retryable, t.effect
	if b, ok := c.Lookup("retryable").Bool(); ok {
		e.Retryable = b
	}
	if s := Effect(c.text("effect")); slices.Contains([]Effect{EffectNone, EffectDone, EffectUnknown}, s) {
		e.Effect = s
	}
	if ms, ok := c.Lookup("retryAfterMs").Int64(); ok && ms > 0 {
		e.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	e.Issues = issuesFrom(c.Lookup("issues"))
	return e
}

func issuesFrom(r Raw) []Issue {
	var out []Issue
	for v := range r.Items() {
		out = append(out, Issue{v.text("path"), v.text("expected"), v.text("got"), v.text("message")})
	}
	return out
}

// Err gives the error that an ERROR frame carries, nil on other frames.
func (f *Frame) Err() error {
	if f.Type != TypeError {
		return nil
	}
	return ErrorFrom(f.Content)
}

// MarshalJSON writes the error as on the wire.
func (e *Error) MarshalJSON() ([]byte, error) { return e.Raw().JSON() }
