package frames

import (
	"encoding/json"
	"time"
)

// End reasons (docs/protocol.md, section 1).
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

// Call asks for a tool call. arguments is JSON text; nil is {}. What is no UTF-8
// goes as the bytes that it is, and is refused by who reads it.
func Call(tool string, arguments json.RawMessage, opts ...Option) Frame {
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	f := newFrame(TypeToolCall, Fields{{"argumentsJson", textOrBin(arguments)}}.Raw(), opts)
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

// CancelTurn asks to stop the turn of a session that has the epoch; 0 is the
// current one.
func CancelTurn(epoch uint64, opts ...Option) Frame {
	if epoch == 0 {
		return newFrame(TypeCancel, nil, opts)
	}
	return newFrame(TypeCancel, Fields{{"epoch", Value(epoch)}}.Raw(), opts)
}

// Abort asks to stop a whole session or run.
func Abort(opts ...Option) Frame { return newFrame(TypeAbort, nil, opts) }

// End closes an exchange, a run or a session.
func End(reason string, opts ...Option) Frame {
	return newFrame(TypeEnd, Fields{{"reason", Value(reason)}}.Raw(), opts)
}

// Fail carries an error of an exchange that is no call.
func Fail(err error, opts ...Option) Frame { return newFrame(TypeError, failure(err).Raw(), opts) }

// failure is AsError for what did fail: an error that got lost is one of ours.
func failure(err error) *Error {
	if e := AsError(err); e != nil {
		return e
	}
	return NewError(CodeInternal, "failed without an error")
}

// FailText is Fail for an error that is no more than a text: EXECUTION.
func FailText(text string, opts ...Option) Frame {
	return Fail(NewError(CodeExecution, "%s", text), opts...)
}

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
