package frames

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// Encoding is how a message is written.
type Encoding uint8

// The two encodings. An answer comes in the encoding of its request.
const (
	Msgpack Encoding = iota
	JSON
)

// String gives "msgpack" or "json".
func (e Encoding) String() string {
	if e == JSON {
		return "json"
	}
	return "msgpack"
}

// Message is what one NATS message carries.
type Message struct {
	Encoding Encoding
	// Frames are in the message's order and share its memory; at least one.
	Frames []Frame
}

// First gives the first frame of the type, or nil.
func (m *Message) First(t Type) *Frame {
	for i := range m.Frames {
		if m.Frames[i].Type == t {
			return &m.Frames[i]
		}
	}
	return nil
}

// Detect tells the encoding of a message by its first byte.
func Detect(data []byte) Encoding {
	if b := trimSpace(data); len(b) > 0 && b[0] == '{' {
		return JSON
	}
	return Msgpack
}

func trimSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// Decode reads a whole message: all of its frames or, with BAD_FRAME that says
// where and why, none. Frames of unknown types are given like others. It never
// panics, and allocates no more than a small multiple of len(data). The frames
// share data's memory, which must not be changed afterwards.
func Decode(data []byte) (Message, error) {
	if Detect(data) == JSON {
		return decodeJSON(trimSpace(data))
	}
	if len(data) == 0 {
		return Message{}, badFrame(0, "", "empty message")
	}
	var keys [24]keyRef
	s := scanner{data: data, keys: keys[:0]}
	var one [2]Frame
	out := one[:0]
	for s.pos < len(data) {
		start := s.pos
		if Raw(data[start:]).Kind() != KindMap {
			return Message{}, badFrame(start, "", "a frame is a map, not "+kindAt(data[start:]))
		}
		if err := s.scanValue(); err != nil {
			return Message{}, err
		}
		f, err := decodeFrame(data[start:s.pos:s.pos], start)
		if err != nil {
			return Message{}, err
		}
		out = append(out, f)
	}
	return Message{Encoding: Msgpack, Frames: out}, nil
}

func kindAt(b []byte) string {
	if k := Raw(b).Kind(); k != KindAbsent {
		return k.String()
	}
	return fmt.Sprintf("byte %02x", b[0])
}

// frameReader reads the fields of one frame that was scanned.
type frameReader struct {
	f     Frame
	start int
	// legacy is content that stands at the top level, as S5 writes it.
	legacy Raw
	name   Raw
}

func decodeFrame(raw Raw, start int) (Frame, error) {
	r := frameReader{start: start}
	for k, v := range raw.pairs() {
		if v.Absent() {
			continue
		}
		if err := r.field(k, v); err != nil {
			return Frame{}, err
		}
	}
	return r.finish()
}

func (r *frameReader) field(key []byte, v Raw) *Error {
	f := &r.f
	switch string(key) {
	case "v":
		return r.version(v)
	case "type":
		return r.typ(v)
	case "id":
		return r.str(&f.ID, "id", v)
	case "ts", "timestamp":
		return r.ts(v)
	case "streamId":
		return r.str(&f.StreamID, "streamId", v)
	case "seq":
		return r.uint(&f.Seq, "seq", v)
	case "entry":
		return r.uint(&f.Entry, "entry", v)
	case "epoch":
		return r.uint(&f.Epoch, "epoch", v)
	case "part":
		return r.part(v)
	case "last":
		return r.bool(&f.Last, "last", v)
	case "toolCallId":
		return r.str(&f.ToolCallID, "toolCallId", v)
	case "name":
		r.name = v
		return nil
	case "key":
		return r.str(&f.Key, "key", v)
	case "value":
		f.Value = v
		return nil
	case "content":
		f.Content = v
		return nil
	case "metadata":
		return r.metadata(v)
	case "data", "progress", "error":
		r.legacy = v
		return nil
	case "stack":
		return nil // a stack never travels on
	}
	f.Extra = append(f.Extra, Field{string(key), v})
	return nil
}

func (r *frameReader) finish() (Frame, error) {
	f := &r.f
	if f.Type == "" {
		return Frame{}, r.fail("type", "missing")
	}
	if err := r.finishName(); err != nil {
		return Frame{}, err
	}
	if f.Content.Absent() && r.legacy != nil {
		f.Content = r.legacy
		if s, ok := r.legacy.Text(); ok {
			f.Content = Value(map[string]any{"message": s})
		}
	}
	if k := f.Content.Kind(); k != KindMap && k != KindAbsent {
		return Frame{}, r.fail("content", "is "+k.String()+", want a map")
	}
	return *f, nil
}

// finishName gives a PARAM's name to its key: S1 writes it so.
func (r *frameReader) finishName() *Error {
	if r.name == nil {
		return nil
	}
	if r.f.Type == TypeParam && r.f.Key == "" {
		return r.str(&r.f.Key, "name", r.name)
	}
	return r.str(&r.f.Name, "name", r.name)
}

func (r *frameReader) version(v Raw) *Error {
	if n, ok := v.Int64(); !ok || n != Version {
		return r.fail("v", "protocol version "+v.preview()+" is not spoken, only "+strconv.Itoa(Version)+" is")
	}
	return nil
}

func (r *frameReader) typ(v Raw) *Error {
	b, ok := v.textBytes()
	if !ok || len(b) == 0 {
		return r.want("type", v, "a string")
	}
	r.f.Type = internType(b)
	return nil
}

// internType saves the allocation for the types that are known.
func internType(b []byte) Type {
	for _, t := range knownTypes {
		if string(b) == string(t) {
			return t
		}
	}
	return Type(b)
}

var knownTypes = [...]Type{TypeToolCall, TypeToolResult, TypeEnd, TypeText, TypeProgress, TypeTick, TypeParam,
	TypeStart, TypeMeta, TypeThinking, TypeData, TypeDescribe, TypeDescription, TypeCancel, TypeAbort, TypeError}

func (r *frameReader) str(to *string, key string, v Raw) *Error {
	s, ok := v.Text()
	if !ok {
		return r.want(key, v, "a string")
	}
	*to = s
	return nil
}

func (r *frameReader) uint(to *uint64, key string, v Raw) *Error {
	n, ok := v.Uint64()
	if !ok {
		return r.want(key, v, "a whole number, 0 or more")
	}
	*to = n
	return nil
}

func (r *frameReader) bool(to *bool, key string, v Raw) *Error {
	b, ok := v.Bool()
	if !ok {
		return r.want(key, v, "a bool")
	}
	*to = b
	return nil
}

func (r *frameReader) part(v Raw) *Error {
	n, ok := v.Uint64()
	if !ok || n > math.MaxInt32 {
		return r.want("part", v, "a whole number, 0 or more")
	}
	r.f.Part = int(n)
	return nil
}

// ts accepts fractions of a millisecond, which some clocks give.
func (r *frameReader) ts(v Raw) *Error {
	if n, ok := v.Int64(); ok {
		r.f.TS = n
		return nil
	}
	f, ok := v.Float64()
	if !ok || math.IsNaN(f) || math.Abs(f) >= 1<<62 {
		return r.want("ts", v, "milliseconds since 1970")
	}
	r.f.TS = int64(f)
	return nil
}

func (r *frameReader) metadata(v Raw) *Error {
	if v.Kind() != KindMap {
		return r.want("metadata", v, "a map")
	}
	r.f.Metadata = make(Fields, 0, v.Len())
	for k, value := range v.Pairs() {
		r.f.Metadata = append(r.f.Metadata, Field{k, value})
	}
	return nil
}

func (r *frameReader) want(key string, got Raw, want string) *Error {
	return r.fail(key, "is "+got.preview()+", want "+want)
}

func (r *frameReader) fail(key, why string) *Error {
	return badFrame(r.start, "/"+key, why)
}
