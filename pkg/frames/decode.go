package frames

import "math"

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

// trimSpace takes JSON's white space from a text's begin.
func trimSpace(b []byte) []byte {
	for i, c := range b {
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return b[i:]
		}
	}
	return nil
}

// Decode reads a whole message: all of its frames or, with BAD_FRAME that says
// where and why, none. Frames of unknown types are given like others. It never
// panics, and allocates no more than a small multiple of len(data). The frames
// share data's memory, which must not be changed afterwards. Beside an error
// the message has its encoding only.
func Decode(data []byte) (Message, error) {
	read, enc := decodeMsgpack, Detect(data)
	if enc == JSON {
		read = decodeJSON
	}
	out, f := read(data)
	if f != nil {
		return Message{Encoding: enc}, f.err()
	}
	return Message{Encoding: enc, Frames: out}, nil
}

// checkSize refuses what is empty, or too long for 32-bit positions.
func checkSize(data []byte) *fault {
	switch {
	case len(data) > math.MaxInt32:
		return faultf(0, "", "message of %d bytes", len(data))
	case len(trimSpace(data)) == 0:
		return faultf(0, "", "empty message")
	}
	return nil
}

func decodeMsgpack(data []byte) ([]Frame, *fault) {
	if f := checkSize(data); f != nil {
		return nil, f
	}
	r := reader{scanner: scanner{walk: walk{data: data}}}
	out := make([]Frame, 0, 2)
	for r.pos < len(data) {
		if len(out) == MaxFrames {
			return nil, r.fail("more than %d frames", MaxFrames)
		}
		out = append(out, Frame{})
		if f := r.frame(&out[len(out)-1]); f != nil {
			return nil, f
		}
	}
	return out, nil
}
