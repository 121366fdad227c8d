package frames

import "unicode/utf8"

// A call whose arguments come in pieces (docs/protocol.md, section 3): a TOOL_CALL
// with metadata.streaming opens it, TEXT with metadata.toolArgStream carries its
// text, META with metadata.toolComplete closes it.

// OpenCall opens a call whose arguments come in pieces.
func OpenCall(tool, callID string, opts ...Option) Frame {
	f := newFrame(TypeToolCall, nil, append([]Option{WithMeta("streaming", true)}, opts...))
	f.Name, f.ToolCallID = tool, callID
	return f
}

// ArgumentPiece is a piece of a call's argument text, numbered 1, 2, 3 … within
// the call. It may be cut inside a rune: then it is bin, and has no form in JSON.
func ArgumentPiece(callID string, seq uint64, piece []byte, opts ...Option) Frame {
	f := newFrame(TypeText, nil, append([]Option{WithMeta("toolArgStream", true)}, opts...))
	f.ToolCallID, f.Seq = callID, seq
	f.Content = Fields{{"text", textOrBin(piece)}}.Raw()
	return f
}

func textOrBin(piece []byte) Raw {
	if utf8.Valid(piece) {
		return Value(string(piece))
	}
	return Value(piece)
}

// CloseCall says that a call's arguments are whole; seq follows the last piece's.
func CloseCall(callID string, seq uint64, opts ...Option) Frame {
	f := newFrame(TypeMeta, nil, append([]Option{WithMeta("toolComplete", true)}, opts...))
	f.ToolCallID, f.Seq = callID, seq
	return f
}

// ToolComplete reports whether a META closes a call.
func ToolComplete(f *Frame) bool {
	inContent, _ := f.Content.Lookup("toolComplete").Bool()
	return f.Type == TypeMeta && (inContent || f.Metadata.Bool("toolComplete"))
}

// StreamedCallID gives the call that a piece or a closing META belongs to.
func StreamedCallID(f *Frame) string {
	if f.ToolCallID != "" {
		return f.ToolCallID
	}
	return f.Metadata.Text("toolCallId")
}
