package frames

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

// under wraps a value as the content's field of a frame.
func under(value []byte) []byte {
	b := appendMapHeader(nil, 2)
	b = appendString(appendString(b, "type"), "TEXT")
	b = appendMapHeader(appendString(b, "content"), 1)
	return append(appendString(b, "x"), value...)
}

func repeat(n int, b ...byte) []byte { return bytes.Repeat(b, n) }

func jsonUnder(value string) []byte {
	return []byte(`{"type":"TEXT","content":{"x":` + value + `}}`)
}

func manyKeys(n int) []byte {
	b := appendMapHeader(nil, n)
	for i := range n {
		b = appendNil(appendString(b, fmt.Sprintf("%05d", i)))
	}
	return b
}

func manyJSONKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%05d":0`, i)
	}
	return "{" + b.String()[1:] + "}"
}

func header32(first byte, n uint32, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{first}, n), rest...)
}

// withField makes a frame of a type and one more field.
func withField(key string, value []byte) []byte {
	b := appendString(appendString(appendMapHeader(nil, 2), "type"), "TEXT")
	return append(appendString(b, key), value...)
}

type hostileCase struct {
	name string
	data []byte
	// why is part of the refusal; empty: the message is read.
	why string
}

var hugeLengths = []hostileCase{
	{"bin32", under(header32(0xc6, math.MaxUint32, 0)), "bytes, but only 1 are left"},
	{"str32", under(header32(0xdb, math.MaxUint32, 0)), "bytes, but only 1 are left"},
	{"array32", under(header32(0xdd, math.MaxUint32, 0)), "array of 2147483647"},
	{"array32 16M", under(header32(0xdd, 16<<20, 0)), "array of 16777216"},
	{"map32", under(header32(0xdf, math.MaxUint32, 0)), "map of 2147483647"},
	{"ext32", under(header32(0xc9, math.MaxUint32, 5)), "ext type 5"},
	{"ext32 of a timestamp", under(header32(0xc9, math.MaxUint32, 0xff)), "timestamp of a wrong length"},
	{"bare array32", header32(0xdd, math.MaxUint32, 0), "a frame is a map, not array"},
	{"bare map32", header32(0xdf, math.MaxUint32, 0), "a frame of 2147483647 keys"},
	{"bare map32 within the keys", header32(0xdf, 1000, 0), "map of 1000, but only 1 bytes are left"},
	{"key of 4 GB", append(appendMapHeader(nil, 1), header32(0xdb, math.MaxUint32, 'a')...), "key of 2147483647 bytes"},
	{"array32 with bytes for it", under(append(header32(0xdd, 1<<20), repeat(1<<20, 0xc0)...)), "more than 65536 values"},
}

var deepNesting = []hostileCase{
	{"1000 array32 of 1M", under(bytes.Repeat(header32(0xdd, 1<<20), 1000)), "but only"},
	{"1000 array32", under(bytes.Repeat(header32(0xdd, 1), 1000)), "nested deeper than 64"},
	{"100k arrays", under(repeat(100_000, 0x91)), "nested deeper than 64"},
	{"9M arrays", under(repeat(9_000_000, 0x91)), "nested deeper than 64"},
	{"9M maps", under(repeat(3_000_000, 0x81, 0xa1, 'a')), "nested deeper than 64"},
	{"in an unknown key", withField("zzz", repeat(9_000_000, 0x91)), "nested deeper than 64"},
	{"62 below content", under(append(repeat(62, 0x91), 0xc0)), ""},
	{"63 below content", under(append(repeat(63, 0x91), 0xc0)), "nested deeper than 64"},
	{"JSON, 100k", jsonUnder(strings.Repeat("[", 100_000)), "nested deeper than 64"},
	{"JSON, 9M objects", jsonUnder(strings.Repeat(`{"":`, 2_250_000)), "nested deeper than 64"},
	{"JSON, 62 below content", jsonUnder(strings.Repeat("[", 62) + strings.Repeat("]", 62)), ""},
	{"JSON, 63 below content", jsonUnder(strings.Repeat("[", 63) + strings.Repeat("]", 63)), "nested deeper than 64"},
	{"JSON, in arguments", []byte(`{"type":"TOOL_CALL","content":{"arguments":` + strings.Repeat("[", 100_000) + "}}"), "nested deeper than 64"},
}

var manyValues = []hostileCase{
	{"map of 64k keys", under(manyKeys(64_000)), ""},
	{"map of 66k keys", under(manyKeys(66_000)), "more than 65536 values"},
	{"map of 400k keys", under(manyKeys(400_000)), "more than 65536 values"},
	{"metadata of 64k keys", withField("metadata", manyKeys(64_000)), "has 64000 keys, the most is 1024"},
	{"frame of 64k keys", manyKeys(64_000), "a frame of 64000 keys, the most is 1024"},
	{"a million nils", under(append(header32(0xdd, 1_000_000), repeat(1_000_000, 0xc0)...)), "more than 65536 values"},
	{"20k frames", bytes.Repeat(withField("id", []byte{0xa1, 'a'}), 20_000), "more than 1024 frames"},
	{"JSON map of 64k keys", jsonUnder(manyJSONKeys(64_000)), ""},
	{"JSON map of 66k keys", jsonUnder(manyJSONKeys(66_000)), "more than 65536 values"},
	{"JSON array of a million", jsonUnder("[" + strings.Repeat("1,", 1_000_000) + "1]"), "more than 65536 values"},
	{"JSON arguments of a million", []byte(`{"type":"TOOL_CALL","content":{"arguments":[` + strings.Repeat("1,", 1_000_000) + "1]}}"), "more than 65536 values"},
	{"JSON, a million commas", jsonUnder(strings.Repeat(",", 1_000_000)), "broken JSON: ',' begins no value"},
	{"JSON, a million commas in a text", jsonUnder(`"` + strings.Repeat(",", 100_000) + `"`), ""},
	{"JSON, 64k frames", bytes.Repeat([]byte(`{"type":"A"}`), 64_000), "more than 1024 frames"},
	{"JSON metadata of 64k keys", []byte(`{"type":"TEXT","metadata":` + manyJSONKeys(64_000) + "}"), "the most is 1024"},
}

var badValues = []hostileCase{
	{"duplicate key", under([]byte{0x82, 0xa1, 'a', 1, 0xa1, 'a', 2}), `duplicate key "a"`},
	{"duplicate key of the frame", withField("type", []byte{0xa1, 'X'}), `duplicate key "type"`},
	{"duplicate among many", under(append(manyKeysHeader(101, 100), 0xa5, '0', '0', '0', '0', '7', 0xc0)), `duplicate key "00007"`},
	{"JSON duplicate key", jsonUnder(`{"a":1,"b":{},"a":2}`), `duplicate key "a"`},
	{"JSON duplicate key, escaped", jsonUnder(`{"a":1,"\u0061":2}`), `duplicate key "a"`},
	{"JSON duplicate key in arguments", []byte(`{"type":"TOOL_CALL","content":{"arguments":{"path":"ok","path":"../x"}}}`), `duplicate key "path"`},
	{"invalid UTF-8", under([]byte{0xa2, 'a', 0xff}), "invalid UTF-8"},
	{"lone surrogate", under([]byte{0xa3, 0xed, 0xa0, 0x80}), "invalid UTF-8"},
	{"invalid UTF-8 in a key", under([]byte{0x81, 0xa1, 0xff, 1}), "invalid UTF-8 in a key"},
	{"JSON invalid UTF-8", jsonUnder("\"\xff\""), "invalid UTF-8"},
	{"JSON lone surrogate", jsonUnder(`"\ud800"`), `lone surrogate \ud800`},
	{"JSON lone low surrogate", jsonUnder(`"\udc00\ud800"`), `lone surrogate \udc00`},
	{"JSON lone surrogate in arguments", []byte(`{"type":"TOOL_CALL","content":{"arguments":{"a":"\ud800"}}}`), "lone surrogate"},
	{"int key", under([]byte{0x81, 1, 1}), "key is uint, want a string"},
	{"nil key", under([]byte{0x81, 0xc0, 1}), "key is nil, want a string"},
	{"bin key", under([]byte{0x81, 0xc4, 1, 'a', 1}), "key is bin, want a string"},
	{"map key", under([]byte{0x81, 0x80, 1}), "key is map, want a string"},
	{"byte c1", under([]byte{0xc1}), "byte c1 begins no value"},
	{"ext 5", under([]byte{0xd4, 5, 0}), "ext type 5 is not spoken"},
	{"ext 0", under([]byte{0xd4, 0, 0}), "leave the key out"},
	{"records", under([]byte{0xd4, 0x72, 0x40}), "useRecords: false"},
	{"timestamp of 1 byte", under([]byte{0xd4, 0xff, 0}), "timestamp of a wrong length"},
	{"timestamp of 1e9 ns", under(append([]byte{0xc7, 12, 0xff}, append(header32(0, 1_000_000_000)[1:], repeat(8, 0)...)...)), "timestamp out of range"},
	{"timestamp in the year 292 billion", under(append([]byte{0xc7, 12, 0xff, 0, 0, 0, 0, 0x7f}, repeat(7, 0xff)...)), "timestamp out of range"},
	{"JSON number of 1e400", jsonUnder("1e400"), "out of range"},
	{"JSON number of 1e999999999", jsonUnder("1e999999999"), "out of range"},
	{"JSON number of 400 digits", jsonUnder(strings.Repeat("9", 400)), "out of range"},
	{"JSON number of a million digits", jsonUnder("0." + strings.Repeat("1", 1_000_000)), "number of 1000002 characters"},
	{"JSON arguments of 1e999999999", []byte(`{"type":"TOOL_CALL","content":{"arguments":{"n":1e999999999}}}`), "out of range"},
	{"JSON NaN", jsonUnder("NaN"), "'N' begins no value"},
	{"JSON, Infinity", jsonUnder("-Infinity"), "'-' begins no value"},
	{"JSON leading zero", jsonUnder("01"), "begins no value"},
	{"JSON control character", jsonUnder("\"a\nb\""), "control character 0a in a string"},
	{"JSON unknown escape", jsonUnder(`"\x41"`), "unknown escape"},
	{"JSON half an escape", jsonUnder(`"\u00`), "unknown escape"},
}

func manyKeysHeader(said, are int) []byte {
	return append(appendMapHeader(nil, said), manyKeys(are)[3:]...)
}

var notWhole = []hostileCase{
	{"empty", nil, "empty message"},
	{"white space", []byte(" \n\t\r "), "empty message"},
	{"brace", []byte("{"), "broken JSON: cut off"},
	{"space and brace", []byte("  {"), "unreadable frame at byte 3"},
	{"JSON cut in a text", []byte(`{"type":"TE`), "a string that does not end"},
	{"JSON cut behind a key", []byte(`{"type"`), "the end instead of a colon"},
	{"JSON cut behind a colon", []byte(`{"type":`), "cut off"},
	{"JSON trailing comma", []byte(`{"type":"TEXT",}`), "'}' instead of a key"},
	{"JSON missing comma", []byte(`{"type":"TEXT" "id":"1"}`), "instead of a comma"},
	{"JSON tail", []byte(`{"type":"TEXT"} x`), "a frame is an object, not 'x'"},
	{"JSON array behind a frame", []byte(`{"type":"TEXT"}[]`), "a frame is an object, not '['"},
	{"JSON brackets crossed", []byte(`{"type":"TEXT","content":{"x":[}]}`), "begins no value"},
	{"JSON behind msgpack", append(withField("id", []byte{0xa1, 'a'}), '{', '}'), "a frame is a map, not uint"},
	{"msgpack behind JSON", append([]byte(`{"type":"TEXT"}`), 0x80), "invalid UTF-8"},
	{"empty map", []byte{0x80}, "(/type): missing"},
	{"empty object", []byte("{}"), "(/type): missing"},
	{"a number", []byte{5}, "a frame is a map, not uint"},
	{"a text", []byte("hello\n"), `a frame is a map, not uint: it is the text "hello\n"`},
	{"a long text", []byte(strings.Repeat("x", 100)), `it is the text "` + strings.Repeat("x", 40) + `"`},
	{"c1", []byte{0xc1}, "byte c1 begins no value"},
	{"tail of one byte", append(withField("id", []byte{0xa1, 'a'}), 0), "a frame is a map, not uint"},
	{"cut off", withField("id", []byte{0xa2, 'a'}), "string of 2 bytes, but only 1 are left"},
	{"cut off at a value", withField("id", nil), "cut off"},
	{"cut off at a header", withField("id", []byte{0xd9}), "cut off inside a header"},
}

// TestHostile: every hostile message is refused as a whole with a reason, or
// read, within a megabyte, and at once.
//
// contract: F7
// case: arg-28-lone-surrogate-and-bad-utf8
func TestHostile(t *testing.T) {
	for _, group := range [][]hostileCase{hugeLengths, deepNesting, manyValues, badValues, notWhole} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) { checkHostile(t, c) })
		}
	}
}

func checkHostile(t *testing.T, c hostileCase) {
	var m Message
	var err error
	start := time.Now()
	bytes := allocated(func() { m, err = Decode(c.data) })
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if bytes > 1<<20 {
		t.Errorf("allocated %d bytes for a message of %d", bytes, len(c.data))
	}
	switch {
	case c.why == "" && err != nil:
		t.Errorf("refused: %v", err)
	case c.why == "":
	case err == nil:
		t.Errorf("read as %d frames, want a refusal: %s", len(m.Frames), c.why)
	case CodeOf(err) != CodeBadFrame || !strings.Contains(err.Error(), c.why) || len(m.Frames) != 0:
		t.Errorf("got %v with %d frames, want BAD_FRAME: …%s…", err, len(m.Frames), c.why)
	}
}

// allocated gives how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestNotFinite: NaN and the infinities refuse the message, but in arguments
// and results they fail the call.
//
// contract: F7
// case: arg-29-infinity-arg, res-01-nan
func TestNotFinite(t *testing.T) {
	payload := func(typ, key string, v any) Frame {
		return NewFrame(Type(typ), map[string]any{key: map[string]any{"limit": v}})
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, c := range []struct {
			name  string
			frame Frame
			want  Code
		}{
			{"arguments", payload("TOOL_CALL", "arguments", v), CodeValidationInput},
			{"result", payload("TOOL_RESULT", "result", v), CodeValidationOutput},
			{"details", payload("TOOL_RESULT", "details", v), CodeBadFrame},
			{"schema", payload("DESCRIPTION", "schema", v), CodeBadFrame},
			{"arguments of another type", payload("PROGRESS", "arguments", v), CodeBadFrame},
			{"result of a call", payload("TOOL_CALL", "result", v), CodeBadFrame},
			{"content", Progress(map[string]any{"progress": v}), CodeBadFrame},
			{"metadata", Text("x", WithMeta("n", v)), CodeBadFrame},
			{"value", Param("temperature", v), CodeBadFrame},
			{"unknown key", Frame{Type: TypeText, Extra: Fields{{"n", Value(v)}}}, CodeBadFrame},
			{"seq", Frame{Type: TypeText, Extra: Fields{{"seq", Value(v)}}}, CodeBadFrame},
		} {
			t.Run(fmt.Sprintf("%s/%v", c.name, v), func(t *testing.T) { checkNotFinite(t, &c.frame, c.want) })
		}
	}
}

func checkNotFinite(t *testing.T, f *Frame, want Code) {
	data, err := Encode(Msgpack, f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Encode(JSON, f); CodeOf(err) != CodeBadFrame {
		t.Errorf("written as JSON: %v", err)
	}
	m, err := Decode(data)
	if want == CodeBadFrame {
		if CodeOf(err) != want {
			t.Errorf("got %v, want BAD_FRAME", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Frames[0].Arguments()
	if want == CodeValidationOutput {
		_, err = m.Frames[0].Result()
	}
	e := AsError(err)
	if e == nil || e.Code != want || len(e.Issues) != 1 || e.Issues[0].Path != "/limit" {
		t.Errorf("got %v, want %s at /limit", err, want)
	}
}

// TestFaultPlace: a refusal tells the byte and the path.
//
// contract: E20
func TestFaultPlace(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"\x82\xa4type\xa1X\xa7content\x81\xa1a\x92\x01\xc1", "BAD_FRAME: unreadable frame at byte 21 (/content/a/1): byte c1 begins no value"},
		{"\x82\xa4type\xa1X\xa7content\x81\xa3a/b\xc1", "BAD_FRAME: unreadable frame at byte 21 (/content/a~1b): byte c1 begins no value"},
		{"\x81\xa4type\xa1X\x81\xa4type\x01", "BAD_FRAME: unreadable frame at byte 8 (/type): is 1, want a string"},
		{`{"type":"X","content":{"a":[1,{"b":tru}]}}`, "BAD_FRAME: unreadable frame at byte 35 (/content/a/1/b): broken JSON: 't' begins no value"},
		{`{"type":"X"}  {"type":"X","seq":"1"}`, `BAD_FRAME: unreadable frame at byte 14 (/seq): is "1", want a whole number, 0 or more`},
		{`{"type":"X","content":{"parts":[{"data":"a"}]}}`, "BAD_FRAME: unreadable frame at byte 40 (/content/parts/0/data): data is no padded base64"},
		{`{"v":2,"type":7}`, "BAD_FRAME: unreadable frame at byte 0 (/v): protocol version 2 is not spoken, only 1 is"},
		{`{"type":7,"v":"1"}`, `BAD_FRAME: unreadable frame at byte 0 (/v): protocol version "1" is not spoken, only 1 is`},
	} {
		_, err := Decode([]byte(c.data))
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.data, err, c.want)
		}
	}
}

// TestLongKeysStayShort: a refusal does not carry the message back.
func TestLongKeysStayShort(t *testing.T) {
	long := strings.Repeat("k", 10_000)
	deep := strings.Repeat(`{"`+long+`":`, 60) + "tru" + strings.Repeat("}", 60)
	_, err := Decode(jsonUnder(deep))
	if n := len(AsError(err).Raw()); err == nil || n > 4096 {
		t.Errorf("the refusal takes %d bytes", n)
	}
}
