package frames

import "encoding/json"

// Arguments gives a TOOL_CALL's arguments as JSON text: argumentsJson as it is,
// else the tree in arguments; {} where there is neither, or a blank text. The
// text is not parsed here. What has no JSON form is VALIDATION_INPUT.
func (f *Frame) Arguments() (json.RawMessage, error) {
	text, err := payload(f.Content, "arguments", CodeValidationInput)
	if err != nil {
		return nil, err
	}
	if t := trimSpace(text); len(t) == 0 || string(t) == "null" {
		return json.RawMessage("{}"), nil
	}
	return text, nil
}

// Payload gives the JSON value that a map holds under the key: the text in
// key + "Json" as it is, else the tree in key; nil where there is neither. It
// reads the arguments of calls in messages and decisions, schemas in
// parameters, and the like. What has no JSON form is VALIDATION_INPUT.
func (r Raw) Payload(key string) (json.RawMessage, error) {
	text, err := payload(r, key, CodeValidationInput)
	if err != nil {
		return nil, err
	}
	return text, nil
}

// payload gives a JSON payload of a content: its text, else its tree; nil where
// there is neither. code is that of its faults.
func payload(content Raw, key string, code Code) (json.RawMessage, *Error) {
	if v := content.Lookup(key + "Json"); !v.Absent() {
		text, ok := v.textBytes()
		if !ok {
			return nil, payloadError(code, key+"Json", &fault{why: "is " + v.Kind().String() + ", want JSON text"})
		}
		return json.RawMessage(text), nil
	}
	tree := content.Lookup(key)
	if tree == nil {
		return nil, nil
	}
	w := jsonWriter{b: make([]byte, 0, len(tree)+len(tree)/4+8)}
	if f := w.value(tree, hintTree); f != nil {
		return nil, payloadError(code, key, f)
	}
	return w.b, nil
}

// payloadError tells of a place inside arguments or a result; its path begins
// there.
func payloadError(code Code, key string, f *fault) *Error {
	e := NewError(code, "%s%s: %s", key, f.at(), f.why)
	e.Issues = []Issue{{Path: f.path, Message: f.why}}
	return e
}
