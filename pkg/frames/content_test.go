package frames

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestConstructorsSettable: every type has a constructor that takes id, time,
// call, stream and metadata.
//
// contract: G47, G48, G53, G55, B52
func TestConstructorsSettable(t *testing.T) {
	at := time.UnixMilli(1732900000123)
	opts := []Option{WithID("i"), WithTime(at), WithStream("s"), WithCall("c", "t"), WithMeta("k", 1)}
	made := map[Type]Frame{}
	for _, f := range []Frame{
		Describe("t", opts...), Description(&Declaration{Name: "t"}, opts...), Call("t", nil, opts...), Result(&ToolResult{}, opts...),
		Text("x", opts...), Thinking("x", "", opts...), Progress(nil, opts...), Param("k", 1, opts...), Start(opts...),
		Data(nil, opts...), Meta(nil, opts...), Tick(opts...), Cancel("c", "t", opts...), CancelTurn(0, opts...), Abort(opts...),
		Fail(NewError(CodeBusy, "x"), opts...), FailText("x", opts...), FailedResult(nil, opts...), End(EndCompleted, opts...),
	} {
		made[f.Type] = f
		if f.ID != "i" || !f.Time().Equal(at) || f.StreamID != "s" || f.ToolCallID != "c" || f.Name != "t" || f.Metadata.Int("k") != 1 {
			t.Errorf("%s: %+v", f.Type, f)
		}
	}
	for _, typ := range types {
		if _, ok := made[typ]; !ok || !typ.Known() {
			t.Errorf("%s has no constructor", typ)
		}
	}
	if len(types) != 16 || Type("NEWS").Known() || !(&Frame{}).Time().IsZero() {
		t.Error("the list of types is another")
	}
}

// TestConstructedContents: what the constructors put into content.
//
// contract: G49, G50, G51, G52, G54
func TestConstructedContents(t *testing.T) {
	for _, c := range []struct {
		frame Frame
		want  string
	}{
		{Param("workspace", "/srv/app"), `"/srv/app"`},
		{Param("task", nil), "nil"},
		{Data(map[string]any{"type": "tool-call"}), `{type: "tool-call"}`},
		{Progress(map[string]any{"operation": "x"}), `{operation: "x"}`},
		{Text("hi"), `{text: "hi"}`},
		{Thinking("hm", "sig"), `{text: "hm", signature: "sig"}`},
		{Thinking("hm", ""), `{text: "hm"}`},
		{FailText("100% broken"), `{code: "EXECUTION", message: "100% broken", llmMessage: "100% broken", retryable: false, effect: "unknown"}`},
		{CancelTurn(4), `{epoch: 4}`},
		{CancelTurn(0), `absent`},
		{End(EndDrained), `{reason: "drained"}`},
		{Call("t", nil), `{argumentsJson: "{}"}`},
		{Result(&ToolResult{}), `{resultJson: "{}", isError: false}`},
	} {
		got := notation(c.frame.Content)
		if c.frame.Type == TypeParam {
			got = notation(c.frame.Value)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.frame.Type, got, c.want)
		}
	}
	for _, f := range []Frame{Fail(nil), FailedResult(nil)} {
		if text := notation(f.Content); !strings.Contains(text, `code: "INTERNAL"`) {
			t.Errorf("%s of no error: %s", f.Type, text)
		}
	}
	end, text := End(EndLimit), Text("x")
	if end.Reason() != EndLimit || text.Reason() != "" || text.Text() != "x" || text.Err() != nil {
		t.Error("the readers read something else")
	}
}

// TestValueKinds: Go values that callers hand in.
func TestValueKinds(t *testing.T) {
	type pair struct {
		A int     `json:"a"`
		B *string `json:"b"`
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "nil"}, {Raw(nil), "nil"}, {true, "true"}, {"x\xffy", "\"x\uFFFDy\""}, {[]byte{1}, "h'01'"}, {int64(math.MinInt64), "-9223372036854775808"},
		{uint64(math.MaxUint64), "18446744073709551615"}, {1.0, "1.0"}, {int32(5), "5"}, {float32(0.5), "0.5"},
		{[]string{"a"}, `["a"]`}, {[]any{1, nil}, "[1, nil]"}, {[]Raw{Value(1), nil}, "[1, nil]"}, {map[string]any{"b": 1, "a": 2}, "{a: 2, b: 1}"},
		{Fields{{"z", Value(1)}, {"a", nil}}, "{z: 1, a: nil}"}, {json.RawMessage(`{"z":1.0,"a":-0}`), "{z: 1.0, a: -0.0}"},
		{json.RawMessage(`{broken`), "nil"}, {func() {}, "nil"}, {pair{A: 1}, "{a: 1, b: nil}"}, {CodeBusy, `"BUSY"`},
	} {
		if got := notation(Value(c.v)); got != c.want {
			t.Errorf("%#v: %s, want %s", c.v, got, c.want)
		}
	}
}

// TestResultRoundTrip: a result of every field is the same at the other end.
//
// contract: W14, E6, E7, E9, E10
func TestResultRoundTrip(t *testing.T) {
	want := &ToolResult{
		Result:  json.RawMessage(`{"exitCode":1,"n":1.50}`),
		Err:     Execution("run_command", NewError(CodeExecution, "exit 1"), 1),
		Parts:   []Part{{Type: "text", Text: "x", MediaType: "text/plain"}, {Type: "resource", Data: []byte{0, 0xff}, URI: "file:a", Name: "a", Extra: Fields{{"annotations", Value(1)}}}},
		Details: json.RawMessage(`{"a":[1,2.5]}`), Terminate: TerminateNow, Usage: json.RawMessage(`{"tokens":5}`),
		Truncated: &Truncated{Bytes: 1, Lines: 2, TotalBytes: 3, TotalLines: 4, Ref: "r"},
		Duration:  12 * time.Millisecond, Queue: 3 * time.Millisecond, Attempts: 2, Instance: "i1",
		Extra: Fields{{"x-new", Value("kept")}},
	}
	f := Result(want, WithCall("c", "run_command"))
	for _, enc := range []Encoding{Msgpack, JSON} {
		data, err := Encode(enc, &f)
		if err != nil {
			t.Fatal(err)
		}
		read := decodeOne(t, string(data))
		got, err := read.Result()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, equalRaw, ignoreCause); diff != "" {
			t.Errorf("%s (-want +got):\n%s", enc, diff)
		}
	}
}

// TestResultReading: null is apart from absent, isError is believed, a result's
// own keys are never judged.
//
// contract: P18, P19, A7, A33, B6
func TestResultReading(t *testing.T) {
	for _, c := range []struct{ content, result, err string }{
		{`{}`, `{}`, ""},
		{`{"result":null}`, `null`, ""},
		{`{"result":false}`, `false`, ""},
		{`{"result":0}`, `0`, ""},
		{`{"result":""}`, `""`, ""},
		{`{"result":{"success":false,"error":"x"}}`, `{"success":false,"error":"x"}`, ""},
		{`{"resultJson":"[1.0]","result":7}`, `[1.0]`, ""},
		{`{"isError":true}`, ``, "EXECUTION: the tool failed"},
		{`{"isError":true,"error":"boom"}`, ``, "EXECUTION: boom"},
		{`{"error":{"code":"BUSY","message":"m"}}`, ``, "BUSY: m"},
		{`{"isError":true,"error":{"code":"DENIED","message":"m"},"result":{"exitCode":1}}`, `{"exitCode":1}`, "DENIED: m"},
		{`{"isError":false,"error":{"code":"BUSY"}}`, `{}`, ""},
		{`{"isError":null,"error":null}`, `{}`, ""},
		{`{"isError":1}`, ``, "EXECUTION: the tool failed"},
	} {
		f := decodeOne(t, `{"type":"TOOL_RESULT","content":`+c.content+`}`)
		r, err := f.Result()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r.Err != nil {
			got = r.Err.Error()
		}
		if string(r.Result) != c.result || got != c.err {
			t.Errorf("%s: result %q, error %q, want %q and %q", c.content, r.Result, got, c.result, c.err)
		}
	}
}

// TestForModel: what a model sees of a result without parts.
//
// case: res-02-empty-output
func TestForModel(t *testing.T) {
	failed := NewError(CodeExecution, "exit 1")
	for _, c := range []struct {
		r    ToolResult
		want string
	}{
		{ToolResult{}, "{}"}, {ToolResult{Result: json.RawMessage(`""`)}, `""`}, {ToolResult{Result: json.RawMessage(`{"a":1}`)}, `{"a":1}`},
		{ToolResult{Err: failed}, "exit 1"}, {ToolResult{Err: failed, Result: json.RawMessage(`{"exitCode":1}`)}, "exit 1\n{\"exitCode\":1}"},
		{ToolResult{Err: failed, Result: json.RawMessage(`null`)}, "exit 1"},
		{ToolResult{Result: json.RawMessage("{\n  \"n\" : [ 9007199254740993, 1.0 ],\t\"s\": \"<a b>\" }")}, `{"n":[9007199254740993,1.0],"s":"<a b>"}`},
		{ToolResult{Err: failed, Result: json.RawMessage("[ 1 ]")}, "exit 1\n[1]"}, {ToolResult{Result: json.RawMessage(`{"a": `)}, `{"a": `},
	} {
		if got := c.r.ForModel(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestDeclarationDefaults: a declaration of nothing but a name.
//
// contract: P4, P5, P6, P8, S4
func TestDeclarationDefaults(t *testing.T) {
	d, err := DeclarationFrom(Value(map[string]any{"name": "t"}))
	if err != nil {
		t.Fatal(err)
	}
	want := &Declaration{
		Name: "t", Description: "Tool: t", Schema: json.RawMessage(DefaultSchema), Version: "0.0.0", Protocol: 1,
		Replay: "unsafe", ExecutionMode: "parallel", OutputLimits: OutputLimits{MaxBytes: 51200, MaxLines: 2000, Retain: "head"},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d.Timeout() != 30*time.Second || d.ReplaySafe() || d.Encoding() != Msgpack {
		t.Errorf("time-out %v, safe %v, %s", d.Timeout(), d.ReplaySafe(), d.Encoding())
	}
}

// TestDeclarationEncoding: a tool is called in JSON where it reads nothing else.
func TestDeclarationEncoding(t *testing.T) {
	for _, c := range []struct {
		speaks []string
		want   Encoding
	}{{nil, Msgpack}, {[]string{"json"}, JSON}, {[]string{"json", "msgpack"}, Msgpack}, {[]string{"cbor"}, Msgpack}, {[]string{"cbor", "json"}, JSON}} {
		if got := (&Declaration{Encodings: c.speaks}).Encoding(); got != c.want {
			t.Errorf("%v: %s, want %s", c.speaks, got, c.want)
		}
	}
}

// TestDeclarationRoundTrip: schemas keep their text, unknown fields stay, and
// numbers are read in any form.
//
// contract: E5, S1, S2
func TestDeclarationRoundTrip(t *testing.T) {
	text := `{"name":"t","title":"T","description":"d","version":"1.0.0","digest":"x","service":"s","identity":"i","instance":"n","protocol":1.0,` +
		`"encodings":["json"],"capabilities":["read"],"annotations":{"readOnly":true,"title":"kept","cost":3},"transactional":true,"reversible":true,` +
		`"timeoutMs":5000.0,"idleTimeoutMs":10,"retries":2,"replay":"safe","executionMode":"sequential","lockKey":"path","concurrency":4,"keys":["w"],` +
		`"outputLimits":{"maxBytes":10,"maxLines":20,"retain":"tail"},"schema":{"z":1.0,"a":{"type":"object"}},"outputSchema":{"b":1},"x-mine":{"k":[1.5]},"backoff":{"baseMs":100}}`
	f := decodeOne(t, `{"type":"DESCRIPTION","content":`+text+`}`)
	d, err := DeclarationFrom(f.Content)
	if err != nil {
		t.Fatal(err)
	}
	if string(d.Schema) != `{"z":1.0,"a":{"type":"object"}}` || d.Timeout() != 5*time.Second || d.Encoding() != JSON || !d.Annotations.ReadOnly || len(d.Extra) != 1 || d.Backoff.BaseMs != 100 {
		t.Errorf("read %+v", d)
	}
	got, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(text), &b) != nil || !cmp.Equal(a, b) {
		t.Errorf("written (-want +got):\n%s", cmp.Diff(b, a))
	}
	if !strings.Contains(string(got), `"schema":{"z":1.0,"a":{"type":"object"}}`) {
		t.Errorf("the schema's text changed: %s", got)
	}
}

// TestDeclarationRefused: with place and reason, and with what could be read.
//
// contract: P3, W1, S3, B1, B47
func TestDeclarationRefused(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	for _, c := range []struct {
		content string
		code    Code
		path    string
	}{
		{`{}`, CodeValidationInput, "/name"},
		{`{"name":"a b"}`, CodeValidationInput, "/name"},
		{`{"name":"` + long + `"}`, CodeValidationInput, "/name"},
		{`{"name":7}`, CodeValidationInput, "/name"},
		{`{"name":"t","timeoutMs":-1}`, CodeValidationInput, "/timeoutMs"},
		{`{"name":"t","timeoutMs":"5"}`, CodeValidationInput, "/timeoutMs"},
		{`{"name":"t","retries":1.5}`, CodeValidationInput, "/retries"},
		{`{"name":"t","retries":101}`, CodeValidationInput, "/retries"},
		{`{"name":"t","backoff":100}`, CodeValidationInput, "/backoff"},
		{`{"name":"t","backoff":{"maxMs":-1}}`, CodeValidationInput, "/backoff/maxMs"},
		{`{"name":"t","concurrency":1e12}`, CodeValidationInput, "/concurrency"},
		{`{"name":"t","transactional":1}`, CodeValidationInput, "/transactional"},
		{`{"name":"t","keys":["a",1]}`, CodeValidationInput, "/keys/1"},
		{`{"name":"t","keys":"a"}`, CodeValidationInput, "/keys"},
		{`{"name":"t","annotations":{"readOnly":"yes"}}`, CodeValidationInput, "/annotations/readOnly"},
		{`{"name":"t","annotations":[]}`, CodeValidationInput, "/annotations"},
		{`{"name":"t","outputLimits":{"retain":"middle"}}`, CodeValidationInput, "/outputLimits/retain"},
		{`{"name":"t","outputLimits":{"maxBytes":-1}}`, CodeValidationInput, "/outputLimits/maxBytes"},
		{`{"name":"t","replay":"maybe"}`, CodeValidationInput, "/replay"},
		{`{"name":"t","executionMode":"x"}`, CodeValidationInput, "/executionMode"},
		{`{"name":"t","protocol":2}`, CodeValidationInput, "/protocol"},
		{`{"name":"t","description":"` + long + `"}`, CodeTooLarge, "/description"},
		{`{"name":"t","schema":{"x":"` + long + `"}}`, CodeTooLarge, "/schema"},
		{`{"name":"t","outputSchema":{"x":"` + long + `"}}`, CodeTooLarge, "/outputSchema"},
	} {
		raw, err := FromJSON([]byte(c.content))
		if err != nil {
			t.Fatal(err)
		}
		d, err := DeclarationFrom(raw)
		e := AsError(err)
		if e == nil || e.Code != c.code || len(e.Issues) != 1 || e.Issues[0].Path != c.path || len(e.Message) > 400 {
			t.Errorf("%.80s: %v, want %s at %s", c.content, err, c.code, c.path)
		}
		if d == nil {
			t.Errorf("%.80s: nothing to show", c.content)
		}
	}
}

// TestDigest: of what callers rely on, not of who serves it.
//
// contract: W9
func TestDigest(t *testing.T) {
	digest := func(change func(*Declaration)) string {
		d := goldenDeclaration()
		change(d)
		d.SetDigest()
		return d.Digest
	}
	same := digest(func(*Declaration) {})
	for name, change := range map[string]func(*Declaration){
		"instance": func(d *Declaration) { d.Instance = "other" }, "identity": func(d *Declaration) { d.Identity = "other" },
		"keys": func(d *Declaration) { d.Keys = []string{"w"} }, "defaults": func(d *Declaration) { d.TimeoutMs = nil },
	} {
		if digest(change) != same {
			t.Errorf("%s changes it", name)
		}
	}
	for name, change := range map[string]func(*Declaration){
		"description": func(d *Declaration) { d.Description += "!" }, "schema": func(d *Declaration) { d.Schema = json.RawMessage(`{}`) },
		"replay": func(d *Declaration) { d.Replay = ReplayUnsafe }, "extra": func(d *Declaration) { d.Extra.Set("x-team", Value("b")) },
	} {
		if digest(change) == same {
			t.Errorf("%s does not change it", name)
		}
	}
}

// TestTimeouts: none is the default, 0 is the ceiling.
//
// contract: P10
func TestTimeouts(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		ms   *int64
		want time.Duration
	}{{nil, DefaultTimeout}, {ms(0), MaxTimeout}, {ms(1), time.Millisecond}, {ms(math.MaxInt64), MaxTimeout}, {ms(-1), DefaultTimeout}} {
		if got := (&Declaration{TimeoutMs: c.ms}).Timeout(); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

// TestBackoff: the longest wait doubles up to its cap, whatever is declared.
//
// contract: S25
func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		b    Backoff
		n    int
		want time.Duration
	}{
		{Backoff{}, 1, 100 * ms}, {Backoff{}, 2, 200 * ms}, {Backoff{}, 6, 3200 * ms}, {Backoff{}, 7, 5000 * ms}, {Backoff{}, 1 << 30, 5000 * ms},
		{Backoff{BaseMs: 10, MaxMs: 25}, 1, 10 * ms}, {Backoff{BaseMs: 10, MaxMs: 25}, 2, 20 * ms}, {Backoff{BaseMs: 10, MaxMs: 25}, 3, 25 * ms},
		{Backoff{BaseMs: 70, MaxMs: 25}, 1, 25 * ms}, {Backoff{BaseMs: math.MaxInt64, MaxMs: math.MaxInt64}, 9, time.Hour},
	} {
		if got := c.b.Most(c.n); got != c.want {
			t.Errorf("%+v, %d: %v, want %v", c.b, c.n, got, c.want)
		}
	}
}

// TestValidName: the one pattern of names.
//
// contract: W1
func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "read_file": true, "A-9": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "a b": false, "a.b": false, "é": false, "a\n": false, "*": false, ">": false,
	} {
		if ValidName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestInlineLimit: half of what the server takes, at most 4 MiB.
//
// contract: F7
func TestInlineLimit(t *testing.T) {
	for server, want := range map[int64]int{8 << 20: 4 << 20, 1 << 20: 512 << 10, 64 << 20: 4 << 20} {
		if got := InlineLimit(server); got != want {
			t.Errorf("%d: %d, want %d", server, got, want)
		}
	}
}
