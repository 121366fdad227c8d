package schema_test

import (
	"encoding/json"
	"io"
	"math"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

func decoded[T any](t *testing.T, args string) T {
	t.Helper()
	var v T
	if err := schema.Decode([]byte(args), &v); err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	return v
}

func TestDecodeWholeNumbers(t *testing.T) {
	t.Parallel()
	type numbers struct {
		I int      `json:"i"`
		U uint8    `json:"u"`
		L []int64  `json:"l"`
		P *int32   `json:"p"`
		F float64  `json:"f"`
		B *big.Int `json:"b"`
		M map[string]uint64
	}
	p := int32(-300)
	want := numbers{
		I: 100, U: 255, L: []int64{1, math.MaxInt64, math.MinInt64, 0}, P: &p, F: 0.1,
		B: new(big.Int).Exp(big.NewInt(10), big.NewInt(30), nil), M: map[string]uint64{"a": math.MaxUint64, "b": 5},
	}
	got := decoded[numbers](t, `{"i":1e2,"u":2.55E2,"l":[1.0,9223372036854775807,-9223372036854775808,-0],"p":-3.0e2,"f":0.1,"b":1e30,"M":{"a":18446744073709551615,"b":5.000}}`)
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Error(diff)
	}
}

// case: arg-05-big-integers
// case: arg-06-decimal-precision
func TestDecodeLosesNothing(t *testing.T) {
	t.Parallel()
	got := decoded[struct {
		ID   int64           `json:"id"`
		U    uint64          `json:"u"`
		D    any             `json:"d"`
		C    json.RawMessage `json:"c"`
		N    json.Number     `json:"n"`
		List []any           `json:"list"`
	}](t, `{"id":9007199254740993,"u":18446744073709551615,"d":{"x":2932809024865746956},"c":{"z":12345678901234567890.123456789,"a":1.10},"n":1.10,"list":[9007199254740993]}`)
	if got.ID != 9007199254740993 || got.U != math.MaxUint64 || got.N != "1.10" {
		t.Errorf("%+v", got)
	}
	if string(got.C) != `{"z":12345678901234567890.123456789,"a":1.10}` {
		t.Errorf("raw: %s", got.C)
	}
	if diff := cmp.Diff(map[string]any{"x": json.Number("2932809024865746956")}, got.D); diff != "" {
		t.Error(diff)
	}
	if got.List[0] != json.Number("9007199254740993") {
		t.Error(got.List)
	}
}

// contract: S43
// case: arg-17-case-folded-keys
func TestDecodeKeysMatchExactly(t *testing.T) {
	t.Parallel()
	type args struct {
		Path string `json:"path"`
		Rest string
	}
	want := args{Path: "a.txt"}
	got := decoded[args](t, `{"path":"a.txt","PATH":"b.txt","Path":"c.txt","rest":"d","ſest":"e"}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := decoded[args](t, `{"\u0070ath":"x"}`); got.Path != "x" {
		t.Error("an escaped key is the same key")
	}
	text, err := schema.For[args]()
	if err != nil {
		t.Fatal(err)
	}
	err = mustCompile(t, string(text)).Validate([]byte(`{"path":"a.txt","PATH":"b.txt","Rest":""}`))
	if got := line(t, err); !strings.Contains(got, `unknown property "PATH"; did you mean "path"?`) {
		t.Error(got)
	}
}

func TestDecodeEverything(t *testing.T) {
	t.Parallel()
	text := `{"path":"p","depth":2,"extra":"late","named":{"path":"n","note":"nn"},"note":"own","flag":true,"count":1,` +
		`"ratio":1e-3,"maybe":null,"perhaps":7,"tags":["red"],"pair":[1,2.5],"mode":"tail","level":3,"env":{"A":"b"},` +
		`"free":{"x":[1,null]},"any":{"k":1.0},"raw":[1, 2],"when":"2026-01-02T15:04:05Z","wait":5,"data":"aGk=","blob":"aGk=",` +
		`"addr":"192.0.2.1","huge":123456789012345678901234567890,"number":1e2,"own":{},"quoted":"42","points":[{"X":1},null],"Untagged":"u","-":"dash"}`
	var v everything
	err := schema.Decode([]byte(strings.Replace(text, `"own":{},`, "", 1)), &v)
	if err != nil {
		t.Fatal(err)
	}
	perhaps, level := 7, 3
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	want := everything{
		Common: Common{Path: "p"}, hidden: hidden{Depth: 2}, Late: &Late{Extra: "late"}, Named: Common{Path: "n", Note: "nn"},
		Note: "own", Flag: true, Count: 1, Ratio: 1e-3, Perhaps: &perhaps, Tags: []string{"red"}, Pair: [2]float32{1, 2.5},
		Mode: "tail", Level: &level, Env: map[string]string{"A": "b"}, Free: map[string]any{"x": []any{json.Number("1"), nil}},
		Any: map[string]any{"k": json.Number("1.0")}, Raw: json.RawMessage(`[1, 2]`), When: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
		Wait: 5, Data: []byte("hi"), Blob: blob("hi"), Addr: netip.MustParseAddr("192.0.2.1"), Huge: huge, Number: "1e2",
		Quoted: 42, Points: []*point{{X: 1}, nil}, Untagged: "u", Dash: "dash",
	}
	if diff := cmp.Diff(want, v, cmp.AllowUnexported(everything{}, ownJSON{}), cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeKeepsDefaultsAndNulls(t *testing.T) {
	t.Parallel()
	type args struct {
		N    int            `json:"n"`
		S    []int          `json:"s"`
		M    map[string]int `json:"m"`
		P    *int           `json:"p"`
		Arr  [2]int         `json:"arr"`
		Text string         `json:"text"`
	}
	one := 1
	v := args{N: 5, S: []int{1}, M: map[string]int{"a": 1}, P: &one, Arr: [2]int{7, 8}, Text: "keep"}
	if err := schema.Decode([]byte(`{"n":null,"s":null,"m":{"b":2},"p":null,"arr":[1],"text":null}`), &v); err != nil {
		t.Fatal(err)
	}
	want := args{N: 5, M: map[string]int{"a": 1, "b": 2}, Arr: [2]int{1, 0}, Text: "keep"}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Error(diff)
	}
	if got := decoded[args](t, `{"s":[],"m":{}}`); got.S == nil || got.M == nil {
		t.Error("an empty list is not nil")
	}
}

func TestDecodeMisfits(t *testing.T) {
	t.Parallel()
	type args struct {
		I8    int8              `json:"i8"`
		U     uint              `json:"u"`
		I     int               `json:"i"`
		F32   float32           `json:"f32"`
		F     float64           `json:"f"`
		S     string            `json:"s"`
		B     bool              `json:"b"`
		L     []map[string]int8 `json:"l"`
		A     [1]int            `json:"a"`
		T     time.Time         `json:"t"`
		D     []byte            `json:"d"`
		O     struct{ X point } `json:"o"`
		Addr  netip.Addr        `json:"addr"`
		ByInt map[int]string    `json:"byInt"`
		N     json.Number       `json:"n"`
		Q     int               `json:"q,string"`
		Big   big.Int           `json:"big"`
	}
	tests := []struct{ args, want string }{
		{`{"i8":128}`, `/i8: number out of range (expected integer from -128 to 127, got 128)`},
		{`{"i8":-1e400}`, `/i8: number out of range (expected integer from -128 to 127, got -1e400)`},
		{`{"u":-1}`, `/u: number out of range (expected integer from 0 to 18446744073709551615, got -1)`},
		{`{"i":9223372036854775808}`, `/i: number out of range (expected integer from -9223372036854775808 to 9223372036854775807, got 9223372036854775808)`},
		{`{"i":1.5}`, `/i: not a whole number (expected integer, got 1.5)`},
		{`{"i":"1"}`, `/i: wrong type (expected integer, got string "1")`},
		{`{"f32":1e39}`, `/f32: number out of range (expected number that fits float32, got 1e39)`},
		{`{"f":1e400}`, `/f: number out of range (expected number that fits float64, got 1e400)`},
		{`{"f":"1"}`, `/f: wrong type (expected number, got string "1")`},
		{`{"s":1}`, `/s: wrong type (expected string, got number 1)`},
		{`{"b":"true"}`, `/b: wrong type (expected boolean, got string "true")`},
		{`{"l":[{},{"a/b":300}]}`, `/l/1/a~1b: number out of range (expected integer from -128 to 127, got 300)`},
		{`{"l":{}}`, `/l: wrong type (expected array, got an empty object)`},
		{`{"l":[[]]}`, `/l/0: wrong type (expected object, got an array of 0 items)`},
		{`{"a":[1,2]}`, `/a: too many items (expected at most 1 item, got an array of 2 items)`},
		{`{"a":1}`, `/a: wrong type (expected array, got number 1)`},
		{`{"t":"tomorrow"}`, `/t: wrong format (expected a time as "2006-01-02T15:04:05Z", got "tomorrow")`},
		{`{"d":"!"}`, `/d: wrong format (expected base64 text, got "!")`},
		{`{"o":{"X":[]}}`, `/o/X: wrong type (expected object, got an array of 0 items)`},
		{`{"addr":"nowhere"}`, `/addr: does not decode`},
		{`{"byInt":{"x":"y"}}`, `/byInt: does not decode`},
		{`{"n":"x"}`, `/n: wrong type (expected number, got string "x")`},
		{`{"q":"x"}`, `/q: wrong type (expected JSON in a string, got string "x")`},
		{`{"q":"[1]"}`, `/q: wrong type (expected integer, got an array of 1 item)`},
		{`{"q":1}`, `/q: wrong type (expected JSON in a string, got number 1)`},
		{`{"big":1.5}`, `/big: not a whole number (expected integer, got 1.5)`},
		{`[]`, `(root): wrong type (expected object, got an array of 0 items)`},
		{`{"i":1`, `/i: the text ends before its JSON value does, at byte 6 (got {"i":1)`},
		{`{"i":1,"i":2}`, `/i: duplicate key "i", at byte 7 (got {"i":1,"i":2})`},
	}
	for _, tt := range tests {
		var v args
		err := schema.Decode([]byte(tt.args), &v)
		if got := line(t, err); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s\ngot  %s\nwant %s", tt.args, got, tt.want)
		}
	}
}

type panics struct{}

func (*panics) UnmarshalJSON([]byte) error { panic("boom") }

func TestDecodeNeverPanics(t *testing.T) {
	t.Parallel()
	for _, v := range []any{nil, 5, (*int)(nil), struct{}{}, new(chan int), new(func()), new(io.Reader), new(complex64), new(panics), new(private)} {
		err := schema.Decode([]byte(`{"A":1}`), v)
		if e := coded(t, err, frames.CodeInternal); e.Message == "" {
			t.Errorf("%T: %v", v, err)
		}
	}
}

func TestDecoderRemembersTypes(t *testing.T) {
	t.Parallel()
	var d schema.Decoder
	for i := range 3 {
		var a Common
		var b out2
		if err := d.Decode([]byte(`{"path":"x"}`), &a); err != nil || a.Path != "x" {
			t.Error(i, a, err)
		}
		if err := d.Decode([]byte(`{"a":2.0}`), &b); err != nil || b.A != 2 {
			t.Error(i, b, err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	type args struct {
		Path      string `json:"path"`
		Offset    int    `json:"offset"`
		Limit     int    `json:"limit"`
		Recursive bool   `json:"recursive"`
		Mode      string `json:"mode"`
	}
	text := []byte(`{"path":"src/main.go","offset":10,"limit":200,"recursive":true,"mode":"head"}`)
	var d schema.Decoder
	b.Run("five fields", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v args
			if err := d.Decode(text, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v args
			if err := json.Unmarshal(text, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
