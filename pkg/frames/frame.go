package frames

import (
	"slices"
	"time"
)

// Version is the protocol version that this package speaks.
const Version = 1

// Type names what a frame is.
type Type string

// The frame types of protocol 1.
const (
	TypeDescribe    Type = "DESCRIBE"
	TypeDescription Type = "DESCRIPTION"
	TypeToolCall    Type = "TOOL_CALL"
	TypeToolResult  Type = "TOOL_RESULT"
	TypeText        Type = "TEXT"
	TypeThinking    Type = "THINKING"
	TypeProgress    Type = "PROGRESS"
	TypeParam       Type = "PARAM"
	TypeStart       Type = "START"
	TypeData        Type = "DATA"
	TypeMeta        Type = "META"
	TypeTick        Type = "TICK"
	TypeCancel      Type = "CANCEL"
	TypeAbort       Type = "ABORT"
	TypeError       Type = "ERROR"
	TypeEnd         Type = "END"
)

// Known reports whether t is a type of protocol 1. Frames of other types are
// skipped and counted, never an error beside known ones.
func (t Type) Known() bool {
	return slices.Contains(types[:], t)
}

var types = [...]Type{TypeToolCall, TypeToolResult, TypeEnd, TypeText, TypeProgress, TypeTick, TypeParam,
	TypeStart, TypeMeta, TypeThinking, TypeData, TypeDescribe, TypeDescription, TypeCancel, TypeAbort, TypeError}

// knownType gives a known type without an allocation.
func knownType(name []byte) (Type, bool) {
	for _, t := range types {
		if string(name) == string(t) {
			return t, true
		}
	}
	return "", false
}

// Frame is one typed piece of traffic. Zero fields are absent on the wire.
// Raw fields may share the memory of the message they were read from; a Frame
// is not changed once it was handed on.
type Frame struct {
	Type Type
	// ID is the frame's own id, unique; clients set it on session input, where
	// a repeated id is dropped.
	ID string
	// TS is in milliseconds since 1970.
	TS int64
	// StreamID is the exchange or model turn that the frame belongs to.
	StreamID string
	// Seq counts 1, 2, 3 … within one exchange, or one epoch of live frames; 0 is not checked.
	Seq uint64
	// Entry, Part and Last stand on durable frames of a session.
	Entry uint64
	Part  int
	Last  bool
	// Epoch is the turn attempt of a session.
	Epoch uint64
	// ToolCallID is the call, ^[A-Za-z0-9_-]{1,64}$.
	ToolCallID string
	// Name is the tool's name, ^[A-Za-z0-9_-]{1,64}$.
	Name string
	// Key and Value are a PARAM's.
	Key   string
	Value Raw
	// Content is the payload of every other type: a map, or absent.
	Content Raw
	// Metadata holds what goes along; unknown keys are kept.
	Metadata Fields
	// Extra holds top-level keys that this version does not know; they are kept
	// when the frame is passed on.
	Extra Fields
}

// Option changes a frame as it is made.
type Option func(*Frame)

// WithID sets the frame's id.
func WithID(id string) Option { return func(f *Frame) { f.ID = id } }

// WithTime sets the frame's time, at a resolution of a millisecond.
func WithTime(t time.Time) Option { return func(f *Frame) { f.TS = t.UnixMilli() } }

// WithCall sets the call and the tool that the frame is about.
func WithCall(id, tool string) Option {
	return func(f *Frame) { f.ToolCallID, f.Name = id, tool }
}

// WithStream sets the stream id.
func WithStream(id string) Option { return func(f *Frame) { f.StreamID = id } }

// WithMeta sets a metadata key; value as for [Value].
func WithMeta(key string, value any) Option {
	return func(f *Frame) { f.Metadata.Set(key, Value(value)) }
}

func newFrame(t Type, content Raw, opts []Option) Frame {
	f := Frame{Type: t, Content: content}
	for _, o := range opts {
		o(&f)
	}
	return f
}
