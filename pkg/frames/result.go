package frames

import (
	"bytes"
	"encoding/json"
	"time"
)

// Part is one piece of what a model sees of a result or a message.
type Part struct {
	// Type is text, image, audio or resource.
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
	// Data is bin in msgpack and padded base64 in JSON.
	Data []byte `json:"data,omitempty"`
	URI  string `json:"uri,omitempty"`
	Name string `json:"name,omitempty"`
	// Extra holds keys that this version does not know.
	Extra Fields `json:"-"`
}

// Terminate values of a result's control.
const (
	// TerminateRound ends the run after this round if every result of it says so.
	TerminateRound = "round"
	// TerminateNow ends the run after this round.
	TerminateNow = "now"
)

// Truncated says what of a result was cut.
type Truncated struct {
	Bytes      int64  `json:"bytes"`
	Lines      int64  `json:"lines"`
	TotalBytes int64  `json:"totalBytes"`
	TotalLines int64  `json:"totalLines"`
	Ref        string `json:"ref,omitempty"`
}

// ToolResult is the content of a TOOL_RESULT.
type ToolResult struct {
	// Result is JSON text, the value as the tool gave it; nil means {}.
	Result json.RawMessage
	// Err makes the result an error; Result may stand beside it.
	Err *Error
	// Parts are what the model sees where that is richer than Result.
	Parts []Part
	// Details are for people's screens, never for a model; JSON text.
	Details json.RawMessage
	// Terminate is "", TerminateRound or TerminateNow.
	Terminate string
	// Usage is the tool's own use of models, JSON text.
	Usage     json.RawMessage
	Truncated *Truncated
	// Duration is the run itself, Queue the wait before it; whole milliseconds on the wire.
	Duration, Queue time.Duration
	Attempts        int
	Instance        string
	// Extra holds content keys that this version does not know.
	Extra Fields
	// Metadata goes along in the frame: which hooks had a part in the result.
	Metadata Fields
}

// Result makes the TOOL_RESULT of a call.
func Result(r *ToolResult, opts ...Option) Frame {
	f := Frame{Type: TypeToolResult, Content: r.raw(), Metadata: r.Metadata.Clone()}
	for _, o := range opts {
		o(&f)
	}
	return f
}

// FailedResult makes the TOOL_RESULT of a call that failed.
func FailedResult(err error, opts ...Option) Frame {
	return Result(&ToolResult{Err: failure(err)}, opts...)
}

func (r *ToolResult) raw() Raw {
	c := make(Fields, 0, 8)
	switch {
	case r.Result != nil:
		c = append(c, Field{"resultJson", Value(string(r.Result))})
	case r.Err == nil:
		c = append(c, Field{"resultJson", Value("{}")})
	}
	c = append(c, Field{"isError", Value(r.Err != nil)})
	if r.Err != nil {
		c = append(c, Field{"error", r.Err.Raw()})
	}
	if len(r.Parts) > 0 {
		c = append(c, Field{"parts", partsRaw(r.Parts)})
	}
	c = r.appendRest(c)
	return append(c, r.Extra...).Raw()
}

func (r *ToolResult) appendRest(c Fields) Fields {
	if r.Details != nil {
		c = append(c, Field{"details", Value(r.Details)})
	}
	switch r.Terminate {
	case TerminateNow:
		c = append(c, Field{"control", Value(map[string]any{"terminate": "now"})})
	case TerminateRound:
		c = append(c, Field{"control", Value(map[string]any{"terminate": true})})
	}
	if r.Usage != nil {
		c = append(c, Field{"usage", Value(r.Usage)})
	}
	if r.Truncated != nil {
		c = append(c, Field{"truncated", Value(r.Truncated)})
	}
	if r.Duration > 0 {
		c = append(c, Field{"durationMs", Value(r.Duration.Milliseconds())})
	}
	if r.Queue > 0 {
		c = append(c, Field{"queueMs", Value(r.Queue.Milliseconds())})
	}
	if r.Attempts > 0 {
		c = append(c, Field{"attempts", Value(r.Attempts)})
	}
	if r.Instance != "" {
		c = append(c, Field{"instance", Value(r.Instance)})
	}
	return c
}

func partsRaw(parts []Part) Raw {
	items := make([]Raw, len(parts))
	for i := range parts {
		items[i] = parts[i].raw()
	}
	return Value(items)
}

func (p *Part) raw() Raw {
	fs := Fields{{"type", Value(p.Type)}}
	for _, f := range []struct{ key, v string }{{"text", p.Text}, {"mediaType", p.MediaType}, {"uri", p.URI}, {"name", p.Name}} {
		if f.v != "" {
			fs = append(fs, Field{f.key, Value(f.v)})
		}
	}
	if p.Data != nil {
		fs = append(fs, Field{"data", Value(p.Data)})
	}
	return append(fs, p.Extra...).Raw()
}

// Result reads a TOOL_RESULT. A result that has no JSON form (NaN, binary data)
// is VALIDATION_OUTPUT; a blank text is none, and the text is not parsed here. isError without an error becomes EXECUTION; a value of
// isError that is no bool counts as true.
func (f *Frame) Result() (*ToolResult, error) {
	text, err := payload(f.Content, "result", CodeValidationOutput)
	if err != nil {
		return nil, err
	}
	if len(trimSpace(text)) == 0 {
		text = nil
	}
	r := &ToolResult{Result: text, Metadata: f.Metadata}
	for k, v := range f.Content.Pairs() {
		r.field(k, v)
	}
	r.Err = resultError(f.Content.Lookup("isError"), f.Content.Lookup("error"))
	if r.Result == nil && r.Err == nil {
		r.Result = json.RawMessage("{}")
	}
	return r, nil
}

func (r *ToolResult) field(key string, v Raw) {
	switch key {
	case "resultJson", "result":
	case "isError", "error":
	case "parts":
		r.Parts = partsFrom(v)
	case "details":
		r.Details = jsonOf(v)
	case "control":
		r.readControl(v)
	case "usage":
		r.Usage = jsonOf(v)
	case "truncated":
		r.readTruncated(v)
	case "durationMs":
		r.Duration = millis(v)
	case "queueMs":
		r.Queue = millis(v)
	case "attempts":
		n, _ := v.Int64()
		r.Attempts = int(min(max(n, 0), 1<<20))
	case "instance":
		r.Instance, _ = v.Text()
	default:
		r.Extra = append(r.Extra, Field{key, v})
	}
}

// resultError believes isError where it is said, else that an error stands there.
func resultError(isError, e Raw) *Error {
	said := !isError.Absent()
	if is, isBool := isError.Bool(); said && isBool && !is {
		return nil
	}
	switch e.Kind() {
	case KindMap:
		return ErrorFrom(e)
	case KindString, KindBin:
		return NewError(CodeExecution, "%s", shortenTo(e.stringValue(), maxMessage))
	}
	if said {
		return NewError(CodeExecution, "the tool failed")
	}
	return nil
}

func (r *ToolResult) readControl(v Raw) {
	t := v.Lookup("terminate")
	if now, _ := t.Text(); now == TerminateNow {
		r.Terminate = TerminateNow
	} else if yes, _ := t.Bool(); yes {
		r.Terminate = TerminateRound
	}
}

func (r *ToolResult) readTruncated(v Raw) {
	n := func(key string) int64 { i, _ := v.Lookup(key).Int64(); return i }
	r.Truncated = &Truncated{n("bytes"), n("lines"), n("totalBytes"), n("totalLines"), v.text("ref")}
}

func partsFrom(v Raw) []Part {
	var out []Part
	for p := range v.Items() {
		if p.Kind() == KindMap {
			out = append(out, partFrom(p))
		}
	}
	return out
}

func partFrom(v Raw) Part {
	var p Part
	for key, v := range v.Pairs() {
		switch key {
		case "type":
			p.Type = v.stringValue()
		case "text":
			p.Text = v.stringValue()
		case "mediaType":
			p.MediaType = v.stringValue()
		case "data":
			p.Data, _ = v.Bytes()
		case "uri":
			p.URI = v.stringValue()
		case "name":
			p.Name = v.stringValue()
		default:
			p.Extra = append(p.Extra, Field{key, v})
		}
	}
	return p
}

func jsonOf(v Raw) json.RawMessage {
	text, err := v.JSON()
	if err != nil {
		return nil
	}
	return text
}

// ForModel gives the text that a model sees of the result where it has no
// parts: compact JSON of the value, else the error's text for models.
func (r *ToolResult) ForModel() string {
	switch {
	case r.Err != nil && len(r.Result) > 0 && string(r.Result) != "null":
		return r.Err.ForModel() + "\n" + compact(r.Result)
	case r.Err != nil:
		return r.Err.ForModel()
	case r.Result == nil:
		return "{}"
	}
	return compact(r.Result)
}

// compact gives a JSON text without the white space between its values.
func compact(text json.RawMessage) string {
	var b bytes.Buffer
	b.Grow(len(text))
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}
