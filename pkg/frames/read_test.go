package frames

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// decodeOne reads a message of one frame.
func decodeOne(t *testing.T, data string) Frame {
	t.Helper()
	m := read(t, []byte(data))
	if len(m.Frames) != 1 {
		t.Fatalf("%d frames", len(m.Frames))
	}
	return m.Frames[0]
}

// packed writes a Go value as msgpack, as the text of a message.
func packed(v any) string { return string(Value(v)) }

// TestNumbersInAnyForm: numbers are read in any numeric form, within their
// range; a numeric string is none.
func TestNumbersInAnyForm(t *testing.T) {
	forms := map[string]string{
		"fixint": "\x07", "uint8": "\xcc\x07", "uint16": "\xcd\x00\x07", "uint32": "\xce\x00\x00\x00\x07",
		"uint64": "\xcf\x00\x00\x00\x00\x00\x00\x00\x07", "int8": "\xd0\x07", "int16": "\xd1\x00\x07",
		"int32": "\xd2\x00\x00\x00\x07", "int64": "\xd3\x00\x00\x00\x00\x00\x00\x00\x07",
		"float32": "\xca\x40\xe0\x00\x00", "float64": "\xcb\x40\x1c\x00\x00\x00\x00\x00\x00",
	}
	for name, seven := range forms {
		data := append(appendMapHeader(nil, 6), "\xa4type\xa1X"...)
		for _, key := range []string{"seq", "entry", "epoch", "part", "ts"} {
			data = append(appendString(data, key), seven...)
		}
		f := decodeOne(t, string(data))
		if f.Seq != 7 || f.Entry != 7 || f.Epoch != 7 || f.Part != 7 || f.TS != 7 {
			t.Errorf("%s: read %+v", name, f)
		}
	}
	for _, c := range []struct{ field, why string }{
		{`"seq":-1`, "/seq"}, {`"seq":1.5`, "/seq"}, {`"seq":1e30`, "/seq"}, {`"seq":"7"`, "/seq"}, {`"seq":true`, "/seq"},
		{`"part":2147483648`, "/part"}, {`"entry":-0.5`, "/entry"}, {`"ts":"7"`, "/ts"}, {`"ts":1732900000123000000`, "/ts"},
		{`"last":1`, "/last"}, {`"id":7`, "/id"}, {`"name":[]`, "/name"}, {`"metadata":[]`, "/metadata"}, {`"metadata":"x"`, "/metadata"},
		{`"content":[]`, "/content"}, {`"content":"x"`, "/content"}, {`"v":2`, "/v"}, {`"v":1.5`, "/v"}, {`"v":"1"`, "/v"},
	} {
		_, err := Decode([]byte(`{"type":"X",` + c.field + `}`))
		if e := AsError(err); e == nil || e.Code != CodeBadFrame || e.Issues[0].Path != c.why {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	if f := decodeOne(t, `{"type":"X","v":1.0,"seq":7.0,"ts":1732900000123.9}`); f.Seq != 7 || f.TS != 1732900000123 {
		t.Errorf("read %+v", f)
	}
}

// TestNumberRanges: a number that does not fit is none.
func TestNumberRanges(t *testing.T) {
	for _, c := range []struct {
		v                any
		signed, unsigned bool // fits int64, fits uint64
	}{
		{int64(math.MinInt64), true, false}, {int64(-1), true, false}, {int64(math.MaxInt64), true, true}, {uint64(1 << 63), false, true},
		{uint64(math.MaxUint64), false, true}, {-0x1p63, true, false}, {-0x1.0000000000001p63, false, false}, {0x1p63, false, true},
		{0x1.fffffffffffffp62, true, true}, {0x1.fffffffffffffp63, false, true}, {0x1p64, false, false}, {0.5, false, false},
		{math.Copysign(0, -1), true, true}, {math.NaN(), false, false}, {math.Inf(1), false, false}, {"7", false, false}, {nil, false, false}, {[]byte{7}, false, false},
	} {
		_, signed := Value(c.v).Int64()
		_, unsigned := Value(c.v).Uint64()
		if signed != c.signed || unsigned != c.unsigned {
			t.Errorf("%v: int64 %v, uint64 %v", c.v, signed, unsigned)
		}
	}
	if _, ok := timeRaw(time.Unix(5, 0)).Int64(); ok {
		t.Error("a timestamp is a number")
	}
}

// TestPayloadOverLimits: argument text that a JSON message could not hold as
// raw JSON stays text, so that the message can be read.
func TestPayloadOverLimits(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := "[" + strings.Repeat("0,", 40_000) + "0]"
	for _, c := range []struct {
		name  string
		texts []string
		raw   int // of the texts
	}{
		{"62 deep", []string{nested(62)}, 1}, {"63 deep", []string{nested(63)}, 0}, {"40k values", []string{many}, 1}, {"twice 40k values", []string{many, many}, 1},
		{"too many", []string{"[" + strings.Repeat("0,", 70_000) + "0]"}, 0},
	} {
		var fs []*Frame
		for _, text := range c.texts {
			f := Call("t", json.RawMessage(text))
			fs = append(fs, &f)
		}
		data, err := Encode(JSON, fs...)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), `"arguments":`); n != c.raw {
			t.Errorf("%s: %d texts are raw, want %d", c.name, n, c.raw)
		}
		for i, f := range read(t, data).Frames {
			if got, err := f.Arguments(); err != nil || string(got) != c.texts[i] {
				t.Errorf("%s: %v, %d bytes", c.name, err, len(got))
			}
		}
	}
}

// TestNilIsAbsent: absent, nil and missing are the same in every field.
func TestNilIsAbsent(t *testing.T) {
	want := Frame{Type: TypeText}
	var fields []string
	for _, key := range []string{"v", "id", "ts", "streamId", "seq", "entry", "part", "last", "epoch", "toolCallId", "name", "key", "value", "content", "metadata", "news"} {
		fields = append(fields, fmt.Sprintf("%q:null", key))
	}
	got := decodeOne(t, `{"type":"TEXT",`+strings.Join(fields, ",")+"}")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Decode([]byte(`{"type":null}`)); CodeOf(err) != CodeBadFrame {
		t.Errorf("a frame without a type: %v", err)
	}
}

// TestUnknownKeysTravel: a frame that is passed on keeps what we do not know,
// in both encodings and from one to the other.
//
// contract: F8, P48, G29
func TestUnknownKeysTravel(t *testing.T) {
	text := `{"v":1,"type":"NEWS","id":"n","content":{"x":{"y":[1,2.5,"z"]}},"metadata":{"caller":"me","mine":{"deep":[true]}},"trace":{"a":1},"data":7,"stack":"s"}`
	for _, first := range []Encoding{Msgpack, JSON} {
		f := decodeOne(t, text)
		for _, enc := range []Encoding{first, JSON, Msgpack} {
			data, err := Encode(enc, &f)
			if err != nil {
				t.Fatal(err)
			}
			f = decodeOne(t, string(data))
		}
		got, err := Encode(JSON, &f)
		if err != nil || string(got) != text {
			t.Errorf("%v\n got %s\nwant %s", err, got, text)
		}
	}
}

// TestOldLayout reads payloads, errors and times where older clients put them.
//
// contract: G60, G51, B51
func TestOldLayout(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"type":"DATA","data":{"type":"x"},"timestamp":5}`, `{"v":1,"type":"DATA","ts":5,"content":{"type":"x"}}`},
		{`{"type":"PROGRESS","progress":{"operation":"x"}}`, `{"v":1,"type":"PROGRESS","content":{"operation":"x"}}`},
		{`{"type":"ERROR","error":"boom","stack":"at x"}`, `{"v":1,"type":"ERROR","content":{"message":"boom"}}`},
		{`{"type":"ERROR","error":{"message":"boom","stack":"at x","code":"E1"}}`, `{"v":1,"type":"ERROR","content":{"message":"boom","code":"E1"}}`},
		{`{"type":"ERROR","content":{"message":"boom"},"stack":"at x"}`, `{"v":1,"type":"ERROR","content":{"message":"boom"}}`},
		{`{"type":"TOOL_RESULT","toolCallId":"c","data":{"result":{"a":1}}}`, `{"v":1,"type":"TOOL_RESULT","toolCallId":"c","content":{"result":{"a":1}}}`},
		{`{"type":"PARAM","name":"tools","value":[1]}`, `{"v":1,"type":"PARAM","key":"tools","value":[1]}`},
		{`{"type":"PARAM","key":"a","name":"b","value":1}`, `{"v":1,"type":"PARAM","name":"b","key":"a","value":1}`},
		{`{"type":"TEXT","ts":7,"timestamp":5}`, `{"v":1,"type":"TEXT","ts":7,"timestamp":5}`},
		{`{"type":"TEXT","timestamp":"today"}`, `{"v":1,"type":"TEXT","timestamp":"today"}`},
		{`{"type":"DATA","data":{"a":1},"content":{"b":2}}`, `{"v":1,"type":"DATA","content":{"b":2},"data":{"a":1}}`},
		{`{"type":"CANCEL","content":{"toolCallId":"c","name":"t"}}`, `{"v":1,"type":"CANCEL","toolCallId":"c","name":"t","content":{"toolCallId":"c","name":"t"}}`},
	} {
		f := decodeOne(t, c.in)
		got, err := Encode(JSON, &f)
		if err != nil || string(got) != c.want {
			t.Errorf("%s\n got %s, %v\nwant %s", c.in, got, err, c.want)
		}
	}
	if _, err := Decode([]byte(`{"type":"PROGRESS","progress":7}`)); CodeOf(err) != CodeBadFrame {
		t.Errorf("a number as content: %v", err)
	}
}

// TestArguments: text wins over a tree; bin that is UTF-8 is text, a timestamp
// RFC 3339; what has no JSON form is VALIDATION_INPUT.
//
// contract: A7, B20, B15
func TestArguments(t *testing.T) {
	at := timeRaw(time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC))
	for _, c := range []struct {
		name    string
		content Fields
		want    string
	}{
		{"nothing", nil, `{}`},
		{"text", Fields{{"argumentsJson", Value(` {"a":1.0}`)}}, ` {"a":1.0}`},
		{"text in bin", Fields{{"argumentsJson", Value([]byte(`{"a":1}`))}}, `{"a":1}`},
		{"blank text", Fields{{"argumentsJson", Value(" \n")}}, `{}`},
		{"text of null", Fields{{"argumentsJson", Value("null")}}, `{}`},
		{"text and tree", Fields{{"arguments", Value(7)}, {"argumentsJson", Value(`{"a":1}`)}}, `{"a":1}`},
		{"nil text and tree", Fields{{"argumentsJson", nil}, {"arguments", Value(map[string]any{"a": 1})}}, `{"a":1}`},
		{"nil tree", Fields{{"arguments", nil}}, `{}`},
		{"broken text is not parsed", Fields{{"argumentsJson", Value(`{"a":`)}}, `{"a":`},
		{"tree", Fields{{"arguments", Value(map[string]any{"f": 1.0, "i": uint64(1 << 63), "n": nil, "s": "1"})}}, `{"f":1.0,"i":9223372036854775808,"n":null,"s":"1"}`},
		{"tree with bin and time", Fields{{"arguments", Fields{{"b", Value([]byte("é"))}, {"t", at}}.Raw()}}, `{"b":"é","t":"2026-01-02T03:04:05.6Z"}`},
		{"binary", Fields{{"arguments", Value([]any{0, map[string]any{"a/b": []byte{0xff}}})}}, "VALIDATION_INPUT at /1/a~1b"},
		{"binary as text", Fields{{"argumentsJson", Value([]byte{0xff})}}, "VALIDATION_INPUT at "},
		{"text of a wrong kind", Fields{{"argumentsJson", Value(map[string]any{})}}, "VALIDATION_INPUT at "},
	} {
		f := NewFrame(TypeToolCall, c.content)
		got, err := f.Arguments()
		text := string(got)
		if err != nil {
			e := AsError(err)
			text = string(e.Code) + " at " + e.Issues[0].Path
		}
		if text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestJSONFrameKeys: in a JSON frame payloads are raw JSON and parts' data is
// base64, in content and in the parameters that hold messages and declarations.
func TestJSONFrameKeys(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"arguments", `{"v":1,"type":"TOOL_CALL","content":{"arguments":{"b":1.50,"a":[]}}}`, `{argumentsJson: "{\"b\":1.50,\"a\":[]}"}`},
		{"result", `{"v":1,"type":"TOOL_RESULT","content":{"result":null}}`, `{resultJson: "null"}`},
		{"decision", `{"v":1,"type":"META","content":{"decision":{"allow":true,"arguments":{"a":1.0}}}}`, `{decision: {allow: true, argumentsJson: "{\"a\":1.0}"}}`},
		{"tool calls", `{"v":1,"type":"DATA","content":{"toolCalls":[{"name":"t","arguments":{}}]}}`, `{toolCalls: [{name: "t", argumentsJson: "{}"}]}`},
		{"text that is no JSON", `{"v":1,"type":"TOOL_CALL","content":{"argumentsJson":"{\"a\":"}}`, `{argumentsJson: "{\"a\":"}`},
		{"text with a key twice", `{"v":1,"type":"TOOL_CALL","content":{"argumentsJson":"{\"a\":1,\"a\":2}"}}`, `{argumentsJson: "{\"a\":1,\"a\":2}"}`},
		{"both", `{"v":1,"type":"TOOL_CALL","content":{"arguments":{"a":1},"argumentsJson":"{}"}}`, `{arguments: {a: 1}, argumentsJson: "{}"}`},
		{"an application's own keys", `{"v":1,"type":"TOOL_RESULT","content":{"details":{"schema":"public","result":{"parts":[{"data":"x"}]}}}}`, `{details: {schema: "public", result: {parts: [{data: "x"}]}}}`},
		{"parts", `{"v":1,"type":"TOOL_RESULT","content":{"parts":[{"type":"image","data":"AP8="},{"data":null}]}}`, `{parts: [{type: "image", data: h'00ff'}, {data: nil}]}`},
		{"messages", `{"v":1,"type":"PARAM","key":"messages","value":[{"role":"user","content":[{"type":"image","data":"AP8="}]},{"role":"assistant","toolCalls":[{"arguments":{"a":1.0}}]},{"content":"text"}]}`,
			`[{role: "user", content: [{type: "image", data: h'00ff'}]}, {role: "assistant", toolCalls: [{argumentsJson: "{\"a\":1.0}"}]}, {content: "text"}]`},
		{"messages, key last", `{"type":"PARAM","value":[{"content":[{"data":"AP8="}]}],"key":"messages"}`, `[{content: [{data: h'00ff'}]}]`},
		{"tools", `{"v":1,"type":"PARAM","key":"tools","value":["a",{"name":"b","schema":{"z":1,"a":2}}]}`, `["a", {name: "b", schemaJson: "{\"z\":1,\"a\":2}"}]`},
		{"tool", `{"v":1,"type":"PARAM","key":"register-tool","value":{"schema":{"z":1}}}`, `{schemaJson: "{\"z\":1}"}`},
		{"other parameter", `{"v":1,"type":"PARAM","key":"response_format","value":{"schema":{"z":1}}}`, `{schema: {z: 1}}`},
	} {
		f := decodeOne(t, c.text)
		got := notation(f.Content)
		if f.Type == TypeParam {
			got = notation(f.Value)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if back, err := Encode(JSON, &f); err != nil || (strings.HasPrefix(c.text, `{"v"`) && string(back) != c.text) {
			t.Errorf("%s, written again: %v\n got %s\nwant %s", c.name, err, back, c.text)
		}
	}
}

// TestMessagesInParam: the parts and calls of messages are readable from a
// msgpack parameter too.
func TestMessagesInParam(t *testing.T) {
	f := Param("messages", []any{map[string]any{"content": []any{map[string]any{"type": "image", "data": []byte{0, 0xff}}},
		"toolCalls": []any{map[string]any{"argumentsJson": `{"a":1}`}}}})
	text, err := f.Value.JSON()
	if want := `[{"content":[{"data":"AP8=","type":"image"}],"toolCalls":[{"argumentsJson":"{\"a\":1}"}]}]`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	for message := range f.Value.Items() {
		for call := range message.Lookup("toolCalls").Items() {
			if args, err := call.Payload("arguments"); err != nil || string(args) != `{"a":1}` {
				t.Errorf("%s, %v", args, err)
			}
		}
	}
}

// TestPartDataAsText: binary data that a client packs as str is the same data.
func TestPartDataAsText(t *testing.T) {
	f := NewFrame(TypeToolResult, map[string]any{"parts": []any{map[string]any{"type": "image", "data": "abc"}}})
	for _, enc := range []Encoding{Msgpack, JSON} {
		data, err := Encode(enc, &f)
		if err != nil {
			t.Fatal(err)
		}
		read := decodeOne(t, string(data))
		r, err := read.Result()
		if err != nil || len(r.Parts) != 1 || string(r.Parts[0].Data) != "abc" {
			t.Errorf("%s: %+v, %v", enc, r, err)
		}
	}
}

// TestDetect: the first byte behind white space tells the encoding, also of
// what cannot be read.
func TestDetect(t *testing.T) {
	for data, want := range map[string]Encoding{"": Msgpack, " \n{": JSON, "{}": JSON, "\x80": Msgpack, " \x80": Msgpack, "[": Msgpack} {
		if m, err := Decode([]byte(data)); Detect([]byte(data)) != want || m.Encoding != want || err == nil {
			t.Errorf("%q: %s, %s, %v", data, Detect([]byte(data)), m.Encoding, err)
		}
	}
	if JSON.String() != "json" || Msgpack.String() != "msgpack" {
		t.Error("the encodings have other names")
	}
}

// TestSeveralJSONFrames reads objects with and without space between.
func TestSeveralJSONFrames(t *testing.T) {
	m := read(t, []byte(" {\"type\":\"PARAM\",\"key\":\"a\",\"value\":1}\n{\"type\":\"START\"}{\"type\":\"NEWS\"}\n"))
	if len(m.Frames) != 3 || m.First(TypeStart) == nil || m.First("NEWS") == nil || m.First(TypeEnd) != nil {
		t.Errorf("read %+v", m.Frames)
	}
}

// TestSharedMemory: frames that were read can be changed without a trace in
// each other.
func TestSharedMemory(t *testing.T) {
	m := read(t, []byte(packed(map[string]any{"type": "TEXT", "metadata": map[string]any{"a": 1}})+packed(map[string]any{"type": "TEXT", "metadata": map[string]any{"a": 2}})))
	m.Frames[0].Metadata.Set("a", Value("much longer than before"))
	m.Frames[0].Metadata = append(m.Frames[0].Metadata, Field{"b", Value(3)})
	if got := m.Frames[1].Metadata.Int("a"); got != 2 || len(m.Frames[1].Metadata) != 1 {
		t.Errorf("the other frame's metadata is %d", got)
	}
	_ = append(m.Frames[0].Metadata[0].Value, 1, 2, 3)
	if got := m.Frames[1].Metadata.Int("a"); got != 2 {
		t.Errorf("the other frame's metadata is %d", got)
	}
}

// TestUnscannedRaw: bytes that nobody checked give the zero value.
func TestUnscannedRaw(t *testing.T) {
	deep := append(Raw(strings.Repeat("\x91", 200_000)), 0xc0)
	if _, err := deep.JSON(); CodeOf(err) != CodeBadFrame {
		t.Errorf("200k deep: %v", err)
	}
	for _, r := range []Raw{nil, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xc6, 0xff, 0xff, 0xff, 0xff}, {0x81, 0xa1}, {0x81, 0xa1, 'a'}, {0xc1}, {0xd4}, {0xdd, 0xff, 0xff, 0xff, 0xff, 1}} {
		readAll(r)
		if r.Lookup("a") != nil || r.text("a") != "" || len(r.Fields()) > 0 {
			t.Errorf("%x has a field", []byte(r))
		}
	}
}

// TestJSONOfFrame: what the CLI prints of a frame's content.
func TestJSONOfFrame(t *testing.T) {
	f := Result(&ToolResult{Result: json.RawMessage(`{"a":1.0}`), Parts: []Part{{Type: "image", Data: []byte{0xff}}}})
	got, err := f.ContentJSON()
	if want := `{"result":{"a":1.0},"isError":false,"parts":[{"type":"image","data":"/w=="}]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	start := Start()
	if got, err := start.ContentJSON(); err != nil || string(got) != "{}" {
		t.Errorf("%s, %v", got, err)
	}
}
