package frames

// adoptCall takes a CANCEL's call from its content, where it may stand alone.
func (f *Frame) adoptCall() {
	if f.ToolCallID == "" {
		f.ToolCallID = f.Content.text("toolCallId")
	}
	if f.Name == "" {
		f.Name = f.Content.text("name")
	}
}

// adoptOldLayout reads frames that carry their payload at the top level, under
// a key of their type, and their time as timestamp. A stack never travels on.
func (f *Frame) adoptOldLayout() {
	if ms, ok := millisOf(f.Extra.Get("timestamp")); ok && f.TS == 0 {
		f.TS = ms
		f.Extra.Delete("timestamp")
	}
	if f.Type == TypeError {
		f.Extra.Delete("stack")
	}
	key := oldPayloadKey(f.Type)
	v := f.Extra.Get(key)
	if v == nil || !f.Content.Absent() {
		return
	}
	f.Extra.Delete(key)
	f.Content = v
	if f.Type == TypeError {
		f.Content = errorContent(v)
	}
}

func oldPayloadKey(t Type) string {
	switch t {
	case TypeError:
		return "error"
	case TypeProgress:
		return "progress"
	case TypeData, TypeToolCall, TypeToolResult:
		return "data"
	}
	return ""
}

// errorContent gives an error that is a text, or an object with a stack, as
// content.
func errorContent(v Raw) Raw {
	if s, ok := v.Text(); ok {
		return Fields{{"message", Value(s)}}.Raw()
	}
	if v.Lookup("stack") == nil {
		return v
	}
	fs := v.Fields()
	fs.Delete("stack")
	return fs.Raw()
}
