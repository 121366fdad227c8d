package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

func nothing(context.Context, *tool.Call) (*frames.ToolResult, error) { return nil, nil }

// contract: P3, P8, W1, S3, B1
func TestAddRawRefuses(t *testing.T) {
	t.Parallel()
	with := func(change func(*frames.Declaration)) frames.Declaration {
		d := raw("x")
		change(&d)
		return d
	}
	ms := int64(-1)
	for name, tc := range map[string]struct {
		decl frames.Declaration
		run  tool.Handler
		code frames.Code
		text string
	}{
		"no name":       {raw(""), nothing, frames.CodeValidationInput, `invalid tool name ""`},
		"bad name":      {raw("a.b"), nothing, frames.CodeValidationInput, `invalid tool name "a.b": it must match ^[A-Za-z0-9_-]{1,64}$`},
		"long name":     {raw(strings.Repeat("a", 65)), nothing, frames.CodeValidationInput, "invalid tool name"},
		"no handler":    {raw("x"), nil, frames.CodeValidationInput, "tool x has no handler"},
		"bad schema":    {with(func(d *frames.Declaration) { d.Schema = json.RawMessage(`{"type":12}`) }), nothing, frames.CodeValidationInput, "schema of tool x: "},
		"broken schema": {with(func(d *frames.Declaration) { d.OutputSchema = json.RawMessage(`{`) }), nothing, frames.CodeValidationInput, "output schema of tool x: "},
		"remote schema": {with(func(d *frames.Declaration) { d.Schema = json.RawMessage(`{"$ref":"http://example.com/x"}`) }), nothing, frames.CodeValidationInput, "schema of tool x: "},
		"huge schema":   {with(func(d *frames.Declaration) { d.Schema = json.RawMessage(strings.Repeat(" ", 65<<10)) }), nothing, frames.CodeTooLarge, "limit"},
		"description":   {with(func(d *frames.Declaration) { d.Description = strings.Repeat("a", 4097) }), nothing, frames.CodeTooLarge, "limit"},
		"replay":        {with(func(d *frames.Declaration) { d.Replay = "maybe" }), nothing, frames.CodeValidationInput, "replay"},
		"mode":          {with(func(d *frames.Declaration) { d.ExecutionMode = "x" }), nothing, frames.CodeValidationInput, "executionMode"},
		"retain":        {with(func(d *frames.Declaration) { d.OutputLimits.Retain = "middle" }), nothing, frames.CodeValidationInput, "outputLimits"},
		"concurrency":   {with(func(d *frames.Declaration) { d.Concurrency = -1 }), nothing, frames.CodeValidationInput, "concurrency"},
		"timeout":       {with(func(d *frames.Declaration) { d.TimeoutMs = &ms }), nothing, frames.CodeValidationInput, "timeoutMs"},
		"key":           {with(func(d *frames.Declaration) { d.Keys = []string{""} }), nothing, frames.CodeValidationInput, "keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tool.NewSet("test")
			err := s.AddRaw(tc.decl, tc.run)
			if frames.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("err = %v, want %s with %q", err, tc.code, tc.text)
			}
			if n := len(s.Declarations()); n != 0 {
				t.Errorf("%d tools were added", n)
			}
		})
	}
}

// contract: B47
func TestAddRefusesDuplicatesAndBadServices(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, s.AddRaw(raw("x"), nothing))
	if err := s.AddRaw(raw("x"), nothing); frames.CodeOf(err) != frames.CodeConflict {
		t.Errorf("err = %v, want CONFLICT", err)
	}
	if err := tool.NewSet("no dots.").AddRaw(raw("x"), nothing); !strings.Contains(err.Error(), `invalid service name "no dots."`) {
		t.Errorf("err = %v", err)
	}
}

// contract: P4, P5, P6, P7, B2
func TestDefaultsTrustLeast(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, s.AddRaw(frames.Declaration{Name: "x"}, nothing))
	got := s.Declarations()[0]
	want := frames.Declaration{
		Name: "x", Description: "Tool: x", Schema: json.RawMessage(frames.DefaultSchema), Version: "0.0.0",
		Digest: got.Digest, Service: "test", Protocol: 1, Replay: "unsafe", ExecutionMode: "parallel",
		Concurrency: 16, OutputLimits: frames.OutputLimits{MaxBytes: 51200, MaxLines: 2000, Retain: "head"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(got.Digest) != 32 {
		t.Errorf("digest %q", got.Digest)
	}
}

type searchIn struct {
	Query string `json:"query" jsonschema:"what to look for"`
	Limit int    `json:"limit,omitempty"`
}

type searchOut struct {
	Hits []string `json:"hits"`
}

func search(_ context.Context, in searchIn) (searchOut, error) {
	return searchOut{[]string{in.Query}}, nil
}

// contract: W2, W3, W9, G40
func TestAddDeclares(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "search", search,
		tool.Description("looks things up"), tool.Title("Search"), tool.Version("1.2.3"), tool.Timeout(1500*time.Millisecond),
		tool.Annotations(frames.Annotations{ReadOnly: true}), tool.ReplaySafe(), tool.Sequential(), tool.Concurrency(3),
		tool.Limits(frames.OutputLimits{MaxBytes: 10, Retain: "tail"}), tool.Keys("a", "b"), tool.Capabilities("read")))
	ms := int64(1500)
	got := s.Declarations()[0]
	want := frames.Declaration{
		Name: "search", Title: "Search", Description: "looks things up", Version: "1.2.3", Digest: got.Digest, Service: "test",
		Schema:       json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},"limit":{"type":"integer"}},"required":["query"],"additionalProperties":false}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"hits":{"type":["array","null"],"items":{"type":"string"}}},"required":["hits"],"additionalProperties":false}`),
		Protocol:     1, TimeoutMs: &ms, Annotations: frames.Annotations{ReadOnly: true}, Replay: "safe", ExecutionMode: "sequential",
		Concurrency: 3, OutputLimits: frames.OutputLimits{MaxBytes: 10, MaxLines: 2000, Retain: "tail"},
		Keys: []string{"a", "b"}, Capabilities: []string{"read"},
	}
	if diff := cmp.Diff(want, got, jsonEqual); diff != "" {
		t.Error(diff)
	}
}

var jsonEqual = cmp.Comparer(func(a, b json.RawMessage) bool {
	var x, y any
	return errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)) == nil && cmp.Equal(x, y) || string(a) == string(b)
})

// Neither who declared a tool nor who asked for its declaration can change it.
//
// contract: W9
func TestDeclarationsDoNotChange(t *testing.T) {
	t.Parallel()
	ms := int64(1000)
	d := raw("x")
	d.TimeoutMs, d.Keys, d.Capabilities, d.Encodings = &ms, []string{"k"}, []string{"read"}, []string{"json"}
	d.Extra.Set("x-team", frames.Value("a"))
	s := tool.NewSet("test")
	must(t, s.AddRaw(d, nothing))
	before := s.Declarations()[0]
	spoil := func(d frames.Declaration) {
		d.Schema[0], d.Keys[0], d.Capabilities[0], d.Encodings[0], *d.TimeoutMs = ' ', "y", "y", "y", 7
		d.Extra.Set("x-team", frames.Value("b"))
	}
	spoil(d)
	spoil(s.Declarations()[0])
	after := s.Declarations()[0]
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if after.SetDigest(); after.Digest != before.Digest {
		t.Errorf("digest %s is not that of the declaration, %s", before.Digest, after.Digest)
	}
}

// contract: S2, P8
func TestAddWithSchemasOfItsOwn(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "x", search, tool.InputSchema(json.RawMessage(`{"type":"object"}`)), tool.OutputSchema(nil)))
	d := s.Declarations()[0]
	if string(d.Schema) != `{"type":"object"}` || d.OutputSchema != nil {
		t.Errorf("schemas %s and %s", d.Schema, d.OutputSchema)
	}
}

// contract: P9, G41
func TestAddRefuses(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	for name, err := range map[string]error{
		"invalid tool name":  tool.Add(s, "a b", search),
		"time-out":           tool.Add(s, "x", search, tool.Timeout(-1)),
		"whole milliseconds": tool.Add(s, "x", search, tool.Timeout(time.Microsecond)),
		"concurrency 0":      tool.Add(s, "x", search, tool.Concurrency(0)),
		"has no handler":     tool.Add[searchIn, searchOut](s, "x", nil),
		"input type of tool x has no JSON Schema":     tool.Add(s, "x", func(context.Context, struct{ C chan int }) (int, error) { return 0, nil }),
		"output type of tool x has no JSON Schema":    tool.Add(s, "x", func(context.Context, searchIn) (struct{ C chan int }, error) { panic("") }),
		"input type of tool x: arguments are objects": tool.Add(s, "x", func(context.Context, int) (int, error) { return 0, nil }),
	} {
		if frames.CodeOf(err) != frames.CodeValidationInput || !strings.Contains(err.Error(), name) {
			t.Errorf("err = %v, want VALIDATION_INPUT with %q", err, name)
		}
	}
	if n := len(s.Declarations()); n != 0 {
		t.Errorf("%d tools were added", n)
	}
}
