package jsontext_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/jsontext"
)

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `null`, ` true `, `false`, `0`, `-0`, `-0.0e+0`, `1E400`, `1e-400`, `""`,
		`"\u00e9\ud83d\ude00\\\"\/\b\f\n\r\t"`, `"ä😀"`, "\t[1,\r\n2 , {\"a\" : [ ] }]",
		`{"a":1,"A":2,"":3,"b":{"a":1}}`, `[{"a":1},{"a":2}]`,
		// case: arg-05-big-integers
		// case: arg-06-decimal-precision
		`{"id":9007199254740993,"u":18446744073709551615,"c":12345678901234567890.123456789}`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64),
		strings.Repeat("9", 1000),
	} {
		if p := jsontext.Check([]byte(text), jsontext.Limits{}); p != nil {
			t.Errorf("Check(%.60q) = %v", text, p)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       jsontext.Problem
	}{
		{"empty", " \n", jsontext.Problem{Kind: jsontext.Empty, Offset: 2, Reason: "there is no JSON value"}},
		{"cut object", `{"a":{"b":1`, jsontext.Problem{Kind: jsontext.Unfinished, Offset: 11, Path: "/a/b", Reason: "the text ends before its JSON value does"}},
		{"cut string", `["x`, jsontext.Problem{Kind: jsontext.Unfinished, Offset: 3, Path: "/0", Reason: "the text ends before its JSON value does"}},
		{"cut surrogate pair", `"\ud83d`, jsontext.Problem{Kind: jsontext.Unfinished, Offset: 7, Reason: "the text ends before its JSON value does"}},
		{"two values", `{} {}`, jsontext.Problem{Kind: jsontext.Trailing, Offset: 3, Reason: "something follows the JSON value: '{'"}},
		// case: arg-30-json-nan-text
		{"NaN", `{"a":NaN}`, jsontext.Problem{Kind: jsontext.Syntax, Offset: 5, Path: "/a", Reason: "expected a value, found NaN"}},
		{"infinity", `[0,-Infinity]`, jsontext.Problem{Kind: jsontext.Syntax, Offset: 4, Path: "/1", Reason: "expected a digit, found Infinity"}},
		{"trailing comma", `{"a":1,}`, jsontext.Problem{Kind: jsontext.Syntax, Offset: 7, Reason: "expected a key in double quotes, found '}'"}},
		{"needless zero", `[01]`, jsontext.Problem{Kind: jsontext.Syntax, Offset: 1, Path: "/0", Reason: "a number begins with a needless 0"}},
		{"raw newline", "[\"a\nb\"]", jsontext.Problem{Kind: jsontext.Syntax, Offset: 3, Path: "/0", Reason: `raw control character in a string, written as an escape it is \n`}},
		{"byte order mark", "\ufeff{}", jsontext.Problem{Kind: jsontext.Syntax, Reason: "the text begins with a byte order mark"}},
		// case: arg-16-duplicate-keys
		{"duplicate", `{"path":"ok.txt","path":"../x"}`, jsontext.Problem{Kind: jsontext.DuplicateKey, Offset: 17, Path: "/path", Reason: `duplicate key "path"`}},
		{"duplicate by escape", `{"a":{"x/y":1,"x\u002fy":2}}`, jsontext.Problem{Kind: jsontext.DuplicateKey, Offset: 14, Path: "/a/x~1y", Reason: `duplicate key "x/y"`}},
		// case: arg-28-lone-surrogate-and-bad-utf8
		{"lone surrogate", `{"a":"\ud800"}`, jsontext.Problem{Kind: jsontext.BadText, Offset: 6, Path: "/a", Reason: "half of a surrogate pair in a string"}},
		{"low surrogate", `"\udc00"`, jsontext.Problem{Kind: jsontext.BadText, Offset: 1, Reason: "half of a surrogate pair in a string"}},
		{"high then letter", `"\ud800\u0041"`, jsontext.Problem{Kind: jsontext.BadText, Offset: 1, Reason: "half of a surrogate pair in a string"}},
		{"bad UTF-8", "{\"a\":\"\xff\"}", jsontext.Problem{Kind: jsontext.BadText, Offset: 6, Path: "/a", Reason: "invalid UTF-8 in a string"}},
		{"surrogate as UTF-8", "\"\xed\xa0\x80\"", jsontext.Problem{Kind: jsontext.BadText, Offset: 1, Reason: "invalid UTF-8 in a string"}},
		{"exponent", `{"n":1E1000000}`, jsontext.Problem{Kind: jsontext.BigNumber, Offset: 5, Path: "/n", Reason: "a number's exponent is beyond the limit of 400"}},
		{"exponent past int64", `1e-99999999999999999999999`, jsontext.Problem{Kind: jsontext.BigNumber, Reason: "a number's exponent is beyond the limit of 400"}},
		{"digits", strings.Repeat("1", 1001), jsontext.Problem{Kind: jsontext.BigNumber, Reason: "a number has more digits than the limit of 1000"}},
		{"depth", strings.Repeat("[", 65) + strings.Repeat("]", 65), jsontext.Problem{Kind: jsontext.TooDeep, Offset: 64, Path: strings.Repeat("/0", 64), Reason: "nested deeper than the limit of 64"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := jsontext.Check([]byte(tt.text), jsontext.Limits{})
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLimitsAreSettable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text   string
		limits jsontext.Limits
		want   jsontext.Kind
	}{
		{`[[]]`, jsontext.Limits{Depth: 1}, jsontext.TooDeep},
		{`[[1]]`, jsontext.Limits{Depth: 2}, 0},
		{`[1,2,3]`, jsontext.Limits{Nodes: 3}, jsontext.TooMany},
		{`[1,2,3]`, jsontext.Limits{Nodes: 4}, 0},
		{`12.34`, jsontext.Limits{Digits: 3}, jsontext.BigNumber},
		{`1e5`, jsontext.Limits{Exponent: 4}, jsontext.BigNumber},
		{`1e999999`, jsontext.Limits{Exponent: -1}, 0},
		{strings.Repeat("1", 5000), jsontext.Limits{Digits: -1}, 0},
		{strings.Repeat("[", 128) + strings.Repeat("]", 128), jsontext.Limits{Depth: -1}, 0},
		{strings.Repeat("[", 129) + strings.Repeat("]", 129), jsontext.Limits{Depth: 1 << 20}, jsontext.TooDeep},
	}
	for _, tt := range tests {
		var got jsontext.Kind
		if p := jsontext.Check([]byte(tt.text), tt.limits); p != nil {
			got = p.Kind
		}
		if got != tt.want {
			t.Errorf("Check(%.40q, %+v): %v, want %v", tt.text, tt.limits, got, tt.want)
		}
	}
}

// manyKeys is an object of n members, nested under one key when that is set.
func manyKeys(n int, extra string) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		fmt.Fprintf(&b, `"k%d":{"x":%d},`, i, i)
	}
	return b.String() + extra + ":0}"
}

func TestDuplicatesInLargeAndNestedObjects(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 15, 16, 17, 300, 5000} {
		if p := jsontext.Check([]byte(manyKeys(n, `"fresh"`)), jsontext.Limits{}); p != nil {
			t.Errorf("%d keys: %v", n, p)
		}
		for _, again := range []string{`"k0"`, `"\u006b0"`, fmt.Sprintf(`"k%d"`, n-1)} {
			p := jsontext.Check([]byte(manyKeys(n, again)), jsontext.Limits{})
			if p == nil || p.Kind != jsontext.DuplicateKey {
				t.Errorf("%d keys and %s again: %v", n, again, p)
			}
		}
	}
	var deep strings.Builder
	for i := range 60 {
		fmt.Fprintf(&deep, `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g%d":`, i)
	}
	text := deep.String() + `{"x":1,"x":2}` + strings.Repeat("}", 60)
	if p := jsontext.Check([]byte(text), jsontext.Limits{}); p == nil || p.Kind != jsontext.DuplicateKey {
		t.Errorf("below 420 open keys: %v", p)
	}
}

func TestHostileTextIsCheap(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"depth bomb":     strings.Repeat("[", 4<<20),
		"object bomb":    strings.Repeat(`{"a":`, 1<<20),
		"giant key":      `{"` + strings.Repeat("k", 4<<20) + `":[`,
		"giant exponent": "1e" + strings.Repeat("9", 4<<20),
		"empty arrays":   "[" + strings.Repeat("[],", 1<<20) + "0]",
	} {
		best := time.Hour // of some: other programs want the processor too
		for try := 0; try < 5 && best > 2*time.Second; try++ {
			start := time.Now()
			p := jsontext.Check([]byte(text), jsontext.Limits{})
			if p == nil || len(p.Path) > jsontext.MaxPath || len(p.Reason) > 200 {
				t.Errorf("%s: %.300v", name, p)
			}
			best = min(best, time.Since(start))
		}
		if best > 2*time.Second {
			t.Errorf("%s took %v", name, best)
		}
	}
}

func TestCheckAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts all allocations
	text := []byte(`{"path":"src/ä.go","offset":10,"deep":{"list":[1,2.5e3,true,null,"x\n"]},"last":"ok"}`)
	if n := testing.AllocsPerRun(100, func() {
		if jsontext.Check(text, jsontext.Limits{}) != nil {
			panic("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNear(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("ä", 20) + "\n!" + strings.Repeat("é", 20))
	got := jsontext.Near(text, 41)
	if want := "…" + strings.Repeat("ä", 11) + " !" + strings.Repeat("é", 11) + "…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, at := range []int{-5, 0, 1, len(text), len(text) + 9} {
		if got := jsontext.Near(text, at); len(got) > 80 {
			t.Errorf("Near(%d) is %d bytes", at, len(got))
		}
	}
}

func TestProblemString(t *testing.T) {
	t.Parallel()
	p := jsontext.Check([]byte(`{"a":NaN}`), jsontext.Limits{})
	if got, want := p.String(), "expected a value, found NaN (at byte 5, in /a)"; got != want {
		t.Errorf("got %q", got)
	}
	if got := jsontext.Kind(0).String() + jsontext.BadText.String() + jsontext.Kind(200).String(); got != "unknownbad_textunknown" {
		t.Errorf("kinds: %q", got)
	}
}

func TestMembersAndItems(t *testing.T) {
	t.Parallel()
	var got []string
	err := jsontext.Members([]byte(` { "a\n" : [1,{"x":"}"}] , "b":"\"," ,"c":{} }`), func(k, v []byte) error {
		got = append(got, jsontext.Unquote(k), string(v))
		return nil
	})
	if diff := cmp.Diff([]string{"a\n", `[1,{"x":"}"}]`, "b", `"\","`, "c", "{}"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got = nil
	err = jsontext.Items([]byte(`[ -1.5e3 , "]" , [ ] , null]`), func(v []byte) error {
		got = append(got, string(v))
		return nil
	})
	if diff := cmp.Diff([]string{"-1.5e3", `"]"`, "[ ]", "null"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	stop := errors.New("stop")
	if err := jsontext.Items([]byte(`[1,2]`), func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Error("the visitor's error was lost")
	}
	if err := jsontext.Members([]byte(`[1]`), func(_, _ []byte) error { return stop }); err != nil {
		t.Error("an array has no members")
	}
}

// FuzzCheck compares with encoding/json: nothing it refuses is accepted here,
// and what it accepts is refused here by a stated limit only.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.5e-3,"x\u00e9\ud83d\ude00",null,true,false]}`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"",
		`1e401`, `[[[[`, `{"a"`, ` `, `"\u12`, `tru`, "\ufeff{}", `{"a":1,}`, `01`, `-`, `"\x"`, `[1 2]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p := jsontext.Check(text, jsontext.Limits{})
		switch valid := json.Valid(text); {
		case p == nil && !valid:
			t.Fatalf("accepted %q", text)
		case p == nil:
			walk(t, text, json.RawMessage(text))
		case valid && p.Kind < jsontext.TooDeep:
			t.Fatalf("refused %q: %v", text, p)
		case p.Offset < 0 || p.Offset > len(text) || p.Reason == "" || len(p.Path) > jsontext.MaxPath:
			t.Fatalf("bad problem %+v for %q", p, text)
		}
		_ = jsontext.Near(text, len(text)/2)
	})
}

// walk proves that Members and Items see what encoding/json sees.
func walk(t *testing.T, text []byte, raw json.RawMessage) {
	t.Helper()
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) == nil && object != nil {
		n := 0
		_ = jsontext.Members(text, func(k, v []byte) error {
			n++
			if want, ok := object[jsontext.Unquote(k)]; !ok || string(want) != string(v) {
				t.Fatalf("member %q of %q: %q, want %q", k, text, v, want)
			}
			walk(t, v, object[jsontext.Unquote(k)])
			return nil
		})
		if n != len(object) {
			t.Fatalf("%d members of %q", n, text)
		}
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) == nil && items != nil {
		n := 0
		_ = jsontext.Items(text, func(v []byte) error {
			if n >= len(items) || string(items[n]) != string(v) {
				t.Fatalf("item %d of %q: %q", n, text, v)
			}
			n++
			return nil
		})
		if n != len(items) {
			t.Fatalf("%d items of %q", n, text)
		}
	}
}

// FuzzMembers feeds text that was never checked: it must end and not panic.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"c"}],"d`))
	f.Add([]byte(`[[[[{{{{::,,`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_ = jsontext.Members(text, func(k, _ []byte) error { _ = jsontext.Unquote(k); return nil })
		_ = jsontext.Items(text, func([]byte) error { return nil })
	})
}

func BenchmarkCheck(b *testing.B) {
	small := []byte(`{"path":"src/main.go","offset":10,"limit":200,"recursive":true,"note":"hello"}`)
	large := []byte(`{"content":"` + strings.Repeat("all work and no play ", 50_000) + `"}`)
	for name, text := range map[string][]byte{"five fields": small, "1 MB": large} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if jsontext.Check(text, jsontext.Limits{}) != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}
