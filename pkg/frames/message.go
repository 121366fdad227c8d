package frames

import "slices"

// Has reports whether a frame of the message has one of the types.
func (m *Message) Has(types ...Type) bool {
	return slices.ContainsFunc(m.Frames, func(f Frame) bool { return slices.Contains(types, f.Type) })
}

// CheckControl refuses a message on wb.ctl that nobody could act on: one without
// CANCEL and ABORT, a CANCEL that names no call, an ABORT that names no run.
func (m *Message) CheckControl() error {
	if !m.Has(TypeCancel, TypeAbort) {
		return UnknownType(m.Frames[0].Type)
	}
	for i := range m.Frames {
		switch f := &m.Frames[i]; {
		case f.Type == TypeCancel && f.ToolCallID == "":
			return NewError(CodeBadFrame, "CANCEL names no call: give toolCallId")
		case f.Type == TypeAbort && f.StreamID == "":
			return NewError(CodeBadFrame, "ABORT names no run: give streamId")
		}
	}
	return nil
}
