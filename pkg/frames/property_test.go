package frames

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawJSONValue draws a Go value that JSON can say: what both encodings carry.
func drawJSONValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth > 0 {
		kinds = 8
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Uint64().Draw(t, "uint")
	case 4:
		return drawFloat(t)
	case 5:
		return drawText(t)
	case 6:
		return drawList(t, depth, drawJSONValue)
	default:
		return drawMap(t, depth, drawJSONValue)
	}
}

// drawValue draws what msgpack can say: bin and timestamps too.
func drawValue(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return rapid.SliceOf(rapid.Byte()).Draw(t, "bin")
	case 1:
		return drawTimestamp(t)
	case 2:
		if depth > 0 {
			return drawList(t, depth, drawValue)
		}
	case 3:
		if depth > 0 {
			return drawMap(t, depth, drawValue)
		}
	}
	return drawJSONValue(t, min(depth, 1))
}

func drawTimestamp(t *rapid.T) time.Time {
	sec := rapid.OneOf(rapid.Int64Range(minSecond, maxSecond), rapid.Int64Range(-2, 1<<34+2)).Draw(t, "sec")
	nsec := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 999_999_999)).Draw(t, "nsec")
	return time.Unix(sec, nsec).UTC()
}

func drawFloat(t *rapid.T) float64 {
	return rapid.OneOf(
		rapid.Float64().Filter(isFinite),
		rapid.Map(rapid.Int64Range(-1<<53, 1<<53), func(n int64) float64 { return float64(n) }),
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e21, 1e-7, 1 << 63, 1 << 64}),
	).Draw(t, "float")
}

func drawText(t *rapid.T) string {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\x00\x1f\x7f", `"\/`, "\u2028😀", strings.Repeat("x", 31), strings.Repeat("y", 32), strings.Repeat("z", 256)})).Draw(t, "text")
}

func drawList(t *rapid.T, depth int, draw func(*rapid.T, int) any) []any {
	list := make([]any, rapid.IntRange(0, 20).Draw(t, "n"))
	for i := range list {
		list[i] = draw(t, depth-1)
	}
	return list
}

func drawMap(t *rapid.T, depth int, draw func(*rapid.T, int) any) map[string]any {
	m := map[string]any{}
	for range rapid.IntRange(0, 40).Draw(t, "n") {
		m[drawText(t)] = draw(t, depth-1)
	}
	return m
}

// rawOf writes a drawn value; timestamps as the msgpack ones.
func rawOf(v any) Raw {
	switch v := v.(type) {
	case time.Time:
		return timeRaw(v)
	case []any:
		b := appendArrayHeader(nil, len(v))
		for _, item := range v {
			b = append(b, rawOf(item)...)
		}
		return b
	case map[string]any:
		fs := Fields{}
		for k, item := range v {
			fs = append(fs, Field{k, rawOf(item)})
		}
		return fs.Raw()
	}
	return Value(v)
}

func timeRaw(v time.Time) Raw {
	sec, nsec := uint64(v.Unix()), uint64(v.Nanosecond())
	switch {
	case sec>>34 != 0:
		b := append(Raw{0xc7, 12, 0xff}, header32(0, uint32(nsec))[1:]...)
		return append(append(b, header32(0, uint32(sec>>32))[1:]...), header32(0, uint32(sec))[1:]...)
	case nsec == 0 && sec>>32 == 0:
		return append(Raw{0xd6, 0xff}, header32(0, uint32(sec))[1:]...)
	}
	n := nsec<<34 | sec
	return append(append(Raw{0xd7, 0xff}, header32(0, uint32(n>>32))[1:]...), header32(0, uint32(n))[1:]...)
}

// drawFrame draws a frame whose values are drawn by draw.
func drawFrame(t *rapid.T, draw func(*rapid.T, int) any) Frame {
	maybe := func(label string) string {
		return rapid.OneOf(rapid.Just(""), rapid.String()).Draw(t, label)
	}
	f := Frame{
		Type: rapid.OneOf(rapid.SampledFrom(types[:]), rapid.Just(Type("NEWS"))).Draw(t, "type"),
		ID:   maybe("id"), StreamID: maybe("streamId"), ToolCallID: maybe("toolCallId"), Name: maybe("name"), Key: maybe("key"),
		TS:    rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-maxMillis, maxMillis)).Draw(t, "ts"),
		Seq:   rapid.Uint64().Draw(t, "seq"),
		Entry: rapid.Uint64().Draw(t, "entry"), Epoch: rapid.Uint64().Draw(t, "epoch"),
		Part: rapid.IntRange(0, math.MaxInt32).Draw(t, "part"), Last: rapid.Bool().Draw(t, "last"),
	}
	if rapid.Bool().Draw(t, "has value") {
		f.Value = rawOf(draw(t, 2))
	}
	if rapid.Bool().Draw(t, "has content") {
		f.Content = rawOf(drawMap(t, 2, draw))
	}
	f.Metadata = drawFields(t, "m", draw)
	f.Extra = drawFields(t, "x", draw)
	return settle(f)
}

func drawFields(t *rapid.T, prefix string, draw func(*rapid.T, int) any) Fields {
	var fs Fields
	for i := range rapid.IntRange(0, 18).Draw(t, prefix) {
		fs = append(fs, Field{prefix + strconv.Itoa(i), rawOf(draw(t, 1))})
	}
	return fs
}

// settle takes what the reader takes differently by purpose: nil is absent, a
// PARAM's name is its key, a CANCEL's call may stand in its content.
func settle(f Frame) Frame {
	if f.Value.Absent() {
		f.Value = nil
	}
	if f.Type == TypeParam && f.Key == "" {
		f.Key, f.Name = f.Name, ""
	}
	if f.Type == TypeCancel {
		f.adoptCall()
	}
	f.Extra = slicesOf(f.Extra)
	return f
}

func slicesOf(fs Fields) Fields {
	var out Fields
	for _, x := range fs {
		if !x.Value.Absent() {
			out = append(out, x)
		}
	}
	return out
}

// TestRoundTrip: what is written in msgpack is read back as it was, value for
// value and byte for byte.
//
// contract: F8, P48
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := []Frame{drawFrame(t, drawValue), drawFrame(t, drawValue)}
		data, err := Encode(Msgpack, &want[0], &want[1])
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, m.Frames, equalRaw); diff != "" {
			t.Fatalf("-written +read:\n%s", diff)
		}
		again, _ := Encode(Msgpack, &m.Frames[0], &m.Frames[1])
		if !bytes.Equal(data, again) {
			t.Fatalf("%x\nis written again as\n%x", data, again)
		}
	})
}

// TestTranscode: a frame of JSON values goes through JSON and back without loss.
//
// contract: F8, P48
func TestTranscode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawFrame(t, drawJSONValue)
		data, err := Encode(JSON, &want)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(data) {
			t.Fatalf("no JSON: %s", data)
		}
		m, err := Decode(data)
		if err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if diff := cmp.Diff([]Frame{want}, m.Frames, equalRaw); diff != "" {
			t.Fatalf("-written +read:\n%s\n%s", diff, data)
		}
	})
}

// TestArgumentsUntouched: argument text is the same bytes at the tool, through
// both encodings and through both in turn.
//
// case: arg-05-big-integers, arg-06-decimal-precision
func TestArgumentsUntouched(t *testing.T) {
	for _, text := range []string{
		`{"id":9007199254740993,"n":9223372036854775807,"u":18446744073709551615,"d":2932809024865746956}`,
		`{"a":0.1,"b":1.10,"c":12345678901234567890.123456789}`,
		`{"z":1,"a":1.0,"m":{"y":[1e2,-0.0,  "\u00e9\/"]}}`,
	} {
		f := Call("t", json.RawMessage(text))
		for _, enc := range []Encoding{Msgpack, JSON, Msgpack, JSON} {
			data, err := Encode(enc, &f)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			f = m.Frames[0]
			if got, err := f.Arguments(); err != nil || string(got) != text {
				t.Errorf("%s: got %s, %v\nwant %s", enc, got, err, text)
			}
		}
	}
}

// TestValueJSON: FromJSON and JSON are inverse on what JSON can say.
func TestValueJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rawOf(drawJSONValue(t, 3))
		text, err := want.JSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := FromJSON(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if !bytes.Equal(want, got) {
			t.Fatalf("%x\nbecame %s\nand %x", want, text, got)
		}
	})
}

// TestNumbersExact: whole numbers of 64 bits are exact, others the nearest
// float64, and a float stays one.
func TestNumbersExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		raw, err := FromJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		out, err := raw.JSON()
		if err != nil {
			t.Fatal(err)
		}
		want, _, _ := big.ParseFloat(text, 10, 512, big.ToNearestEven)
		got, _, _ := big.ParseFloat(string(out), 10, 512, big.ToNearestEven)
		if want.Cmp(got) == 0 {
			return
		}
		if f, _ := want.Float64(); raw.Kind() != KindFloat || strconv.FormatFloat(f, 'g', -1, 64) != strconv.FormatFloat(must(raw.Float64()), 'g', -1, 64) {
			t.Fatalf("%s became %s", text, out)
		}
	})
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("no value")
	}
	return v
}

// TestJSONAgrees: what encoding/json refuses is refused, and what both read is
// the same value.
func TestJSONAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune(`{}[]",:01.eE+-\u/ntrfals 	é`)), 0, 12, -1).Draw(t, "text")
		checkJSONAgrees(t, []byte(text))
	})
}

// fataler is a test of testing or of rapid.
type fataler interface {
	Fatalf(format string, args ...any)
}

// checkJSONAgrees compares CheckJSON and FromJSON with encoding/json.
func checkJSONAgrees(t fataler, text []byte) {
	ours, raw := CheckJSON(text), Raw(nil)
	if r, err := FromJSON(text); (err == nil) != (ours == nil) {
		t.Fatalf("%q: CheckJSON says %v, FromJSON %v", text, ours, err)
	} else {
		raw = r
	}
	valid := json.Valid(text)
	if ours == nil && !valid {
		t.Fatalf("%q is taken, but is no JSON", text)
	}
	if ours != nil {
		if valid && !stricter(ours) {
			t.Fatalf("%q is refused: %v", text, ours)
		}
		return
	}
	var want any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&want); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if got := toGo(raw); !same(floats(want), floats(got), true) {
		t.Fatalf("%q is %v\nto encoding/json %v", text, got, want)
	}
}

// stricter are the refusals of what the grammar allows.
func stricter(err error) bool {
	for _, why := range []string{"duplicate key", "lone surrogate", "out of range", "invalid UTF-8", "nested deeper", "more than 65536 values", "characters, the most"} {
		if strings.Contains(err.Error(), why) {
			return true
		}
	}
	return false
}

// floats makes all numbers float64.
func floats(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return err
		}
		return f
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = floats(v[k])
		}
	}
	return v
}

// TestFields: Fields behaves as an ordered map.
func TestFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fs Fields
		want := map[string]int64{}
		var order []string
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
			if rapid.Bool().Draw(t, "delete") {
				fs.Delete(key)
				delete(want, key)
				order = remove(order, key)
				continue
			}
			n := rapid.Int64().Draw(t, "n")
			if _, ok := want[key]; !ok {
				order = append(order, key)
			}
			want[key] = n
			fs.Set(key, Value(n))
		}
		checkFields(t, fs, order, want)
		checkFields(t, fs.Raw().Fields(), order, want)
		checkFields(t, fs.Clone(), order, want)
	})
}

func remove(order []string, key string) []string {
	var out []string
	for _, k := range order {
		if k != key {
			out = append(out, k)
		}
	}
	return out
}

func checkFields(t *rapid.T, fs Fields, order []string, want map[string]int64) {
	if len(fs) != len(order) {
		t.Fatalf("%d fields, want %d", len(fs), len(order))
	}
	for i, key := range order {
		if fs[i].Key != key || fs.Int(key) != want[key] {
			t.Fatalf("field %d is %s = %d, want %s = %d", i, fs[i].Key, fs.Int(key), key, want[key])
		}
	}
	if fs.Get("none") != nil || fs.Int("none") != 0 || fs.Text("a") != "" || fs.Bool("a") {
		t.Fatalf("a value that is not there")
	}
}
