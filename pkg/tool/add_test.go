package tool_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

func give[T any](v T) func(context.Context, struct{}) (T, error) {
	return func(context.Context, struct{}) (T, error) { return v, nil }
}

type count struct {
	N uint64 `json:"n"`
}

// What a typed function returns arrives as it is: zero values, null, exact numbers.
//
// contract: P18, B20, W5, W14, W39
func TestTypedResults(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "none", give(struct{}{})))
	must(t, tool.Add(s, "null", give[any](nil)))
	must(t, tool.Add(s, "false", give(false)))
	must(t, tool.Add(s, "zero", give(0)))
	must(t, tool.Add(s, "empty", give("")))
	must(t, tool.Add(s, "html", give("<a&b>")))
	must(t, tool.Add(s, "struct", give(count{math.MaxUint64})))
	must(t, tool.Add(s, "list", give([]int(nil))))
	must(t, tool.Add(s, "likeanerror", give(map[string]any{"success": false, "error": "none"})))
	srv := setup(t).serve(s, "i1")
	for name, want := range map[string]string{
		"none": "{}", "null": "null", "false": "false", "zero": "0", "empty": `""`, "html": `"<a&b>"`,
		"struct": `{"n":18446744073709551615}`, "list": "null", "likeanerror": `{"error":"none","success":false}`,
	} {
		a := srv.call(name, "{}")
		if string(a.result.Result) != want || a.result.Err != nil || a.reason != "completed" {
			t.Errorf("%s: %s, %v, %s; want %s", name, a.result.Result, a.result.Err, a.reason, want)
		}
	}
}

// contract: E6, E7, E9, E10, E19
func TestRichResults(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "rich", give(tool.Result[count]{
		Value: count{7}, Parts: []frames.Part{{Type: "image", MediaType: "image/png", Data: []byte{1}}},
		Details: map[string]int{"rows": 2}, Terminate: frames.TerminateNow, Usage: map[string]int{"tokens": 3},
	})))
	must(t, s.AddRaw(raw("text"), func(context.Context, *tool.Call) (*frames.ToolResult, error) { return tool.Text("a\nb"), nil }))
	srv := setup(t).serve(s, "i1")

	got := srv.call("rich", "{}").result
	want := &frames.ToolResult{
		Result: json.RawMessage(`{"n":7}`), Parts: []frames.Part{{Type: "image", MediaType: "image/png", Data: []byte{1}}},
		Details: json.RawMessage(`{"rows":2}`), Terminate: "now", Usage: json.RawMessage(`{"tokens":3}`),
		Attempts: 1, Instance: "i1", Duration: got.Duration,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if d := s.Declarations()[0].OutputSchema; !strings.Contains(string(d), `"n"`) {
		t.Errorf("output schema %s, want that of the value", d)
	}
	if r := srv.call("text", "{}").result; string(r.Result) != `"a\nb"` || r.Parts[0].Text != "a\nb" {
		t.Errorf("text: %s, %+v", r.Result, r.Parts)
	}
}

// A value without a JSON form, or beside its schema, is the tool's fault.
//
// contract: W4, W19, B8
func TestUnencodableAndMisfitResults(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	bad := func(r *frames.ToolResult) tool.Handler {
		return func(context.Context, *tool.Call) (*frames.ToolResult, error) { return r, nil }
	}
	number := raw("misfit")
	number.OutputSchema = json.RawMessage(`{"type":"number"}`)
	must(t, tool.Add(s, "nan", give(math.NaN())))
	must(t, tool.Add(s, "richnan", give(tool.Result[int]{Details: math.Inf(1)})))
	must(t, tool.Add(s, "chan", give[any](make(chan int))))
	must(t, s.AddRaw(raw("broken"), bad(&frames.ToolResult{Result: json.RawMessage(`{"a":`)})))
	must(t, s.AddRaw(raw("twice"), bad(&frames.ToolResult{Result: json.RawMessage(`{"a":1,"a":2}`)})))
	must(t, s.AddRaw(raw("utf8"), bad(&frames.ToolResult{Result: json.RawMessage("\"\xff\"")})))
	must(t, s.AddRaw(raw("details"), bad(&frames.ToolResult{Details: json.RawMessage(`nope`)})))
	must(t, s.AddRaw(number, bad(&frames.ToolResult{Result: json.RawMessage(`"seven"`)})))
	srv := setup(t).serve(s, "i1")
	for _, d := range s.Declarations() {
		a := srv.call(d.Name, "{}")
		if a.code() != frames.CodeValidationOutput || a.result.Result != nil || a.reason != "error" {
			t.Errorf("%s: %v, %s, %s", d.Name, a.result.Err, a.result.Result, a.reason)
			continue
		}
		if e := a.result.Err; e.Effect != frames.EffectDone || e.Retryable || !strings.Contains(e.LLMMessage, "fault") {
			t.Errorf("%s: %+v", d.Name, e)
		}
	}
}

// An output schema does not hold for error results.
//
// contract: W4
func TestErrorResultsAreNotHeldToTheOutputSchema(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	d := raw("x")
	d.OutputSchema = json.RawMessage(`{"type":"number"}`)
	must(t, s.AddRaw(d, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
		return &frames.ToolResult{Result: json.RawMessage(`{"half":1}`)}, tool.Fail("half", "only half of it")
	}))
	a := setup(t).serve(s, "i1").call("x", "{}")
	if a.code() != frames.CodeExecution || string(a.result.Result) != `{"half":1}` || a.result.Err.Reason != "half" {
		t.Errorf("%v, %s", a.result.Err, a.result.Result)
	}
}

type order struct {
	Item  string `json:"item" enum:"tea,milk"`
	Count int    `json:"count"`
}

// contract: P26, B8, W18, S10, S43
func TestArgumentsAreHeldToTheSchema(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	ran := make(chan order, 1)
	must(t, tool.Add(s, "order", func(_ context.Context, in order) (struct{}, error) { ran <- in; return struct{}{}, nil }))
	srv := setup(t).serve(s, "i1")
	for args, path := range map[string]string{
		`{"item":"rum","count":1}`:          "/item",
		`{"item":"tea","count":"1"}`:        "/count",
		`{"item":"tea","count":1,"more":1}`: "",
		`{"item":"tea"}`:                    "",
		`{"item":"tea","count":1.5}`:        "/count",
		`[]`:                                "",
		`{"item":"tea","count":`:            "/count",
		`{"item":"tea","count":NaN}`:        "/count",
	} {
		a := srv.call("order", args)
		if a.code() != frames.CodeValidationInput || a.result.Err.Effect != frames.EffectNone || !a.result.Err.Retryable {
			t.Errorf("%s: %+v", args, a.result.Err)
			continue
		}
		if is := a.result.Err.Issues; len(is) != 1 || is[0].Path != path {
			t.Errorf("%s: issues %+v, want one at %q", args, is, path)
		}
	}
	if len(ran) != 0 {
		t.Error("the function ran")
	}
	if a := srv.call("order", `{"item":"tea","count":2.0}`); a.code() != "" || <-ran != (order{"tea", 2}) {
		t.Errorf("%v", a.result.Err)
	}
}
