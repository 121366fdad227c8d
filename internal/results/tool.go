package results

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/weavebus/weavebus/internal/cuttext"
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// ToolName is the tool by which a model reads what was left out of results.
const ToolName = "read_result"

const toolSchema = `{"type":"object","properties":{` +
	`"ref":{"type":"string","description":"The ref that stands where the result was cut."},` +
	`"offset":{"type":"integer","minimum":0,"description":"First byte to read. Default: 0."},` +
	`"bytes":{"type":"integer","minimum":1,"description":"How many bytes to read from offset, at most 50000."},` +
	`"head":{"type":"integer","minimum":1,"description":"Read so many lines from the begin instead."},` +
	`"tail":{"type":"integer","minimum":1,"description":"Read so many lines from the end instead."},` +
	`"grep":{"type":"string","minLength":1,"maxLength":1024,` +
	`"description":"Give the lines that match this regular expression (RE2) instead, each with its number and offset."}` +
	`},"required":["ref"],"additionalProperties":false}`

// Tool is read_result as a model sees it.
func Tool() provider.Tool {
	return provider.Tool{
		Name: ToolName, Schema: json.RawMessage(toolSchema),
		Description: "Reads a result of this conversation that was cut, in parts: " +
			"from an offset, its first or last lines, or the lines that match.",
	}
}

// Request is a call of read_result.
type Request struct {
	Ref    string `json:"ref"`
	Offset int    `json:"offset"`
	Bytes  int    `json:"bytes"`
	Head   int    `json:"head"`
	Tail   int    `json:"tail"`
	Grep   string `json:"grep"`

	re *regexp.Regexp
}

// ReadRequest reads the arguments of a call; what is wrong with them is
// VALIDATION_INPUT.
func ReadRequest(arguments json.RawMessage) (*Request, error) {
	s, err := schema.Compile(json.RawMessage(toolSchema))
	if err == nil {
		err = s.Validate(arguments)
	}
	if err != nil {
		return nil, err
	}
	q := &Request{}
	if err := json.Unmarshal(arguments, q); err != nil {
		return nil, invalid("the arguments cannot be read: %w", err)
	}
	return q, q.check()
}

func (q *Request) check() (err error) {
	ways := 0
	for _, used := range []bool{q.Offset > 0 || q.Bytes > 0, q.Head > 0, q.Tail > 0, q.Grep != ""} {
		if used {
			ways++
		}
	}
	if ways > 1 {
		return invalid("want one of offset (with bytes), head, tail and grep, got %d", ways)
	}
	if q.Grep == "" {
		return nil
	}
	if q.re, err = regexp.Compile(q.Grep); err != nil {
		return invalid("grep: %w", err)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return frames.NewError(frames.CodeValidationInput, ToolName+": "+format, args...)
}

// NotFound is the error of a ref that names no result of the session or run.
func NotFound(ref string) error {
	e := frames.NewError(frames.CodeNotFound, "no cut result %q is kept for this session or run: "+
		"take the ref from where a result was cut", clip(ref))
	return e.WithReason("result_not_found").With(func(e *frames.Error) { e.Retryable = false })
}

func clip(s string) string {
	const most = 64
	return cuttext.New(s).From(0, most, 1).Text
}

// Limits of an answer: the defaults of a tool, less a line of its own.
const (
	pageBytes = 50_000
	pageLines = 1990
)

// answer is what programs see of a part that was read.
type answer struct {
	Ref        string `json:"ref"`
	Offset     *int   `json:"offset,omitempty"`
	NextOffset *int   `json:"nextOffset,omitempty"`
	Matches    *int   `json:"matches,omitempty"`
	TotalBytes int    `json:"totalBytes"`
	TotalLines int    `json:"totalLines"`
}

// Read gives the part of a whole result that was asked for.
func (q *Request) Read(whole string) *frames.ToolResult {
	t := cuttext.New(whole)
	a := answer{Ref: q.Ref, TotalBytes: t.Len(), TotalLines: t.Lines()}
	if q.re != nil {
		return a.hits(t.Grep(q.re, pageBytes))
	}
	p := q.piece(t)
	a.Offset = &p.From
	note := fmt.Sprintf("[bytes %d to %d of %d; this is the end]", p.From, p.To, a.TotalBytes)
	if p.To < a.TotalBytes {
		a.NextOffset = &p.To
		note = fmt.Sprintf("[bytes %d to %d of %d; to read on: \"offset\":%d]", p.From, p.To, a.TotalBytes, p.To)
	}
	return a.result(p.Text, note)
}

func (q *Request) piece(t cuttext.Text) cuttext.Piece {
	switch {
	case q.Head > 0:
		return t.From(0, pageBytes, min(q.Head, pageLines))
	case q.Tail > 0:
		return t.Last(pageBytes, min(q.Tail, pageLines))
	case q.Bytes > 0:
		return t.From(q.Offset, min(q.Bytes, pageBytes), pageLines)
	}
	return t.From(q.Offset, pageBytes, pageLines)
}

func (a *answer) hits(h cuttext.Hits) *frames.ToolResult {
	a.Matches = &h.All
	return a.result(h.Text, fmt.Sprintf("[%d of %d lines that match, of %d; each is <line>@<offset>: <text>]", h.Shown, h.All, a.TotalLines))
}

func (a *answer) result(text, note string) *frames.ToolResult {
	if text != "" && text[len(text)-1] != '\n' {
		text += "\n"
	}
	value, err := json.Marshal(a)
	if err != nil {
		return &frames.ToolResult{Err: frames.AsError(err)}
	}
	part := frames.Part{Type: string(provider.PartText), MediaType: "text/plain", Text: text + note}
	return &frames.ToolResult{Result: value, Parts: []frames.Part{part}}
}
