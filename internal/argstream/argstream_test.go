package argstream_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contract: P58
// case: acc-22-escape-split
// case: arg-05-big-integers
// case: arg-06-decimal-precision
// case: arg-07-valid-json-untouched
func TestParseKeepsWhatItAccepts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, " {\n} \t\r\n", `{"a":1}`, `{"a":{"a":[{"a":null},true,false,-0.5e-10]}}`,
		`{"id":9007199254740993,"n":9223372036854775807,"u":18446744073709551615,"d":2932809024865746956}`,
		`{"a":0.1,"b":1.10,"c":12345678901234567890.123456789,"d":1.0,"e":1E+400,"f":1e-400,"g":-0}`,
		`{"cmd":"a, }, ] \",}","re":"[1,]"}`,
		`{"t":"\u00e9 \ud83d\ude00 \n\\\/\b\f\r\t\""}`, `{"t":"ä😀` + "\u007f" + `"}`, `{"":0," ":1}`,
		`{"A":1,"a":2}`, `{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`,
		`{"n":` + strings.Repeat("9", 1000) + `}`,
	} {
		got, err := argstream.Parse([]byte(text))
		if err != nil || string(got) != text {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// contract: B15
func TestBlankIsAnEmptyObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "\n\t\r ", "\u00a0"} {
		if got, err := argstream.Parse([]byte(text)); err != nil || string(got) != "{}" {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// contract: P58, B15
// case: arg-16-duplicate-keys
// case: arg-28-lone-surrogate-and-bad-utf8
// case: arg-30-json-nan-text
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text, reason string
		offset       int
		says         string
	}{
		{`{"path":"ok.txt","path":"../../etc/passwd"}`, argstream.ReasonDuplicate, 17, `duplicate key "path"`},
		{`{"path":1,"p\u0061th":2}`, argstream.ReasonDuplicate, 10, `duplicate key "path"`},
		{`{"a":{"b":1,"c":2,"b":3}}`, argstream.ReasonDuplicate, 18, `duplicate key "b"`},
		{manyKeys(20, "k7"), argstream.ReasonDuplicate, -1, `duplicate key "k7"`},
		{`{"a":NaN}`, argstream.ReasonInvalid, 5, "NaN"},
		{`{"a":Infinity}`, argstream.ReasonInvalid, 5, ""},
		{`{"a":+1}`, argstream.ReasonInvalid, 5, ""},
		{`{"a":01}`, argstream.ReasonInvalid, 5, "needless 0"},
		{`{"a":1.}`, argstream.ReasonInvalid, 7, "a digit"},
		{`{"a":-}`, argstream.ReasonInvalid, 6, "a digit"},
		{`{"a":1e}`, argstream.ReasonInvalid, 7, "a digit"},
		{`{"a":.5}`, argstream.ReasonInvalid, 5, ""},
		{`{"a":tru}`, argstream.ReasonInvalid, 5, ""},
		{`{"a":[1,2,],"b":1}`, argstream.ReasonInvalid, 10, ""},
		{`{"a":1,}`, argstream.ReasonInvalid, 7, "a key"},
		{`{,}`, argstream.ReasonInvalid, 1, "a key"},
		{`{"a" 1}`, argstream.ReasonInvalid, 5, "a colon"},
		{`{"a":1 "b":2}`, argstream.ReasonInvalid, 7, "a comma"},
		{`{'a':1}`, argstream.ReasonInvalid, 1, "a key"},
		{`{"a":1}{"a":2}`, argstream.ReasonInvalid, 7, "something follows"},
		{`{"a":1} x`, argstream.ReasonInvalid, 8, "something follows"},
		{"{\"a\":\"x\ny\"}", argstream.ReasonInvalid, 7, "control character"},
		{`{"a":"\x"}`, argstream.ReasonInvalid, 6, "escape"},
		{`{"a":"\u12g4"}`, argstream.ReasonInvalid, 10, "hexadecimal"},
		{"\ufeff{}", argstream.ReasonInvalid, 0, ""},
		{"```json\n{}\n```", argstream.ReasonInvalid, 0, ""},
		{`[]`, argstream.ReasonNotObject, 0, "an array"},
		{` "{\"a\":1}"`, argstream.ReasonNotObject, 1, "a string"},
		{`null`, argstream.ReasonNotObject, 0, "null"},
		{`12`, argstream.ReasonNotObject, 0, "a number"},
		{`true`, argstream.ReasonNotObject, 0, "a boolean"},
		{"{\"a\":\"\xff\"}", argstream.ReasonUTF8, 6, "UTF-8"},
		{"{\"a\":\"\xed\xa0\x80\"}", argstream.ReasonUTF8, 6, ""},
		{"{\"a\":\"\xc0\x80\"}", argstream.ReasonUTF8, 6, ""},
		{"{\xff}", argstream.ReasonUTF8, 1, ""},
		{`{"a":"\ud800"}`, argstream.ReasonUTF8, 6, "surrogate"},
		{`{"a":"\ude00\ud83d"}`, argstream.ReasonUTF8, 6, ""},
		{`{"a":"\ud800\u0041"}`, argstream.ReasonUTF8, 6, ""},
		{`{"\ud800":1}`, argstream.ReasonUTF8, 2, ""},
		{`{"a":1e401}`, argstream.ReasonLimit, 5, "exponent"},
		{`{"a":1E-1000000000000000000000}`, argstream.ReasonLimit, 5, "exponent"},
		{`{"a":` + strings.Repeat("9", 1001) + `}`, argstream.ReasonLimit, 5, "more digits than the limit of 1000"},
		{`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, argstream.ReasonLimit, 68, "deeper than the limit of 64"},
		{strings.Repeat(`{"a":`, 100_000), argstream.ReasonLimit, 320, ""},
		{`{"a":"` + "\xc3", argstream.ReasonIncomplete, 7, ""},
		{`{"x":1,"y"`, argstream.ReasonIncomplete, 10, "ends before"},
		{`{"path":"a.txt","content":"lin`, argstream.ReasonIncomplete, 30, "ends before"},
	}
	for _, tt := range tests {
		_, err := argstream.Parse([]byte(tt.text))
		var at *argstream.PositionError
		if !errors.As(err, &at) || frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("%.60q: %v", tt.text, err)
			continue
		}
		if at.Reason != tt.reason || frames.AsError(err).Reason != tt.reason || !strings.Contains(at.What, tt.says) {
			t.Errorf("%.60q: %s: %v", tt.text, at.Reason, at)
		}
		if tt.offset >= 0 && at.Offset != tt.offset {
			t.Errorf("%.60q: at %d, want %d: %v", tt.text, at.Offset, tt.offset, at)
		}
		bounded(t, err)
	}
}

func manyKeys(n int, again string) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		fmt.Fprintf(&b, `"k%d":1,`, i)
	}
	b.WriteString(`"` + again + `":1}`)
	return b.String()
}

func bounded(t *testing.T, err error) {
	t.Helper()
	e := frames.AsError(err)
	for _, text := range []string{e.Message, e.LLMMessage} {
		if len(text) > 800 || !utf8.ValidString(text) || text == "" {
			t.Errorf("text of %d bytes: %.100q", len(text), text)
		}
	}
}

// Every proper beginning of an object is told as cut off, never as wrong and
// never as whole.
func TestEachBeginningIsCutOff(t *testing.T) {
	t.Parallel()
	const whole = `{"a":[1.5e+3,-2,true,null,{"é":"\u00e9\ud83d\ude00 😀\n"}],"b":{}}`
	for n := 1; n < len(whole); n++ {
		_, err := argstream.Parse([]byte(whole[:n]))
		if got := frames.AsError(err); got == nil || got.Reason != argstream.ReasonIncomplete || !strings.Contains(got.ForModel(), "cut off") {
			t.Errorf("%q: %v", whole[:n], err)
		}
	}
}

func TestPreviewIsAtThePlace(t *testing.T) {
	t.Parallel()
	text := `{"a":"` + strings.Repeat("ä", 100) + `" "b":"` + strings.Repeat("ö", 100) + `"}`
	_, err := argstream.Parse([]byte(text))
	var at *argstream.PositionError
	if !errors.As(err, &at) {
		t.Fatal(err)
	}
	if want := `…` + strings.Repeat("ä", 11) + `" "b":"` + strings.Repeat("ö", 9) + `…`; at.Preview != want {
		t.Errorf("preview %s, want %s", at.Preview, want)
	}
}

func TestSizeLimits(t *testing.T) {
	t.Parallel()
	j := argstream.Joiner{Limit: 10}
	if err := j.Add([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	err := j.Add([]byte("x"))
	if e := frames.AsError(err); e == nil || e.Code != frames.CodeTooLarge || !strings.Contains(e.Message, "10 bytes") {
		t.Errorf("error %v", err)
	}
	if j.Len() != 10 {
		t.Errorf("%d bytes kept", j.Len())
	}
	if _, err := argstream.Parse(bytes.Repeat([]byte(" "), argstream.MaxBytes+1)); frames.CodeOf(err) != frames.CodeTooLarge {
		t.Errorf("error %v", err)
	}
	var most argstream.Joiner
	if err := errors.Join(most.Add(make([]byte, argstream.MaxBytes)), most.Add([]byte("x"))); frames.CodeOf(err) != frames.CodeTooLarge {
		t.Errorf("error %v", err)
	}
}

// case: acc-21-utf8-split
func TestPiecesCutInsideRunes(t *testing.T) {
	t.Parallel()
	var j argstream.Joiner
	for _, piece := range []string{"7b2274223a22c3", "a4f09f", "98", "80227d"} {
		raw, err := hex.DecodeString(piece)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Add(raw); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := j.Parse(); err != nil || string(got) != `{"t":"ä😀"}` || j.Text() != string(got) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestAnyCutGivesTheSameResult(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 40), objectText()).Draw(rt, "text")
		want, wantErr := argstream.Parse(text)
		var j argstream.Joiner
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "n")
			if err := j.Add(rest[:n]); err != nil {
				rt.Fatal(err)
			}
			rest = rest[n:]
		}
		got, err := j.Parse()
		if string(got) != string(want) || errorText(err) != errorText(wantErr) {
			rt.Fatalf("%s, %v; want %s, %v", got, err, want, wantErr)
		}
	})
}

// objectText draws objects as encoding/json writes them.
func objectText() *rapid.Generator[[]byte] {
	return rapid.Custom(func(rt *rapid.T) []byte {
		value := rapid.OneOf(rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Bool().AsAny(), rapid.SliceOf(rapid.String()).AsAny())
		text, err := json.Marshal(rapid.MapOf(rapid.String(), value).Draw(rt, "object"))
		if err != nil {
			rt.Fatal(err)
		}
		return text
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What encoding/json writes is accepted.
func TestParseAcceptsWhatIsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := objectText().Draw(rt, "text")
		if _, err := argstream.Parse(text); err != nil {
			rt.Fatalf("%s: %v", text, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", `{"a":1}`, `{"a":"\ud83d\ude00","b":[1e400]}`, `{"a":{"a":1,"a":2}}`, "{\"\xed\xa0\x80\":-0.0}", `[[[[`} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		got, err := argstream.Parse(text)
		if err != nil {
			bounded(t, err)
			refusedForAReason(t, text, err)
		} else if !json.Valid(got) || !utf8.Valid(got) || trimmed(got)[0] != '{' {
			t.Fatalf("accepted %q", text)
		}
		cut = max(0, min(cut, len(text)))
		var j argstream.Joiner
		if err := errors.Join(j.Add(text[:cut]), j.Add(text[cut:])); err != nil || j.Text() != string(text) {
			t.Fatalf("joined %q, %v", j.Text(), err)
		}
	})
}

// refusedForAReason holds the reasons to what encoding/json makes of the text.
func refusedForAReason(t *testing.T, text []byte, err error) {
	t.Helper()
	valid := json.Valid(text)
	switch reason := frames.AsError(err).Reason; reason {
	case argstream.ReasonInvalid, argstream.ReasonIncomplete:
		if valid {
			t.Fatalf("%s, but %q is JSON", reason, text)
		}
	case argstream.ReasonNotObject:
		if !valid || trimmed(text)[0] == '{' {
			t.Fatalf("%s: %q", reason, text)
		}
	}
}

func trimmed(text []byte) []byte { return bytes.TrimSpace(text) }

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"path":"a.txt","content":"` + strings.Repeat(`line of text with an escape\n`, 1000) + `","n":[1,2,3.5]}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := argstream.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
