package argstream_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/frames"
)

var quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\x01", `\u0001`)

// inString writes text as a JSON string.
func inString(text string, times int) string {
	for range times {
		text = `"` + quotes.Replace(text) + `"`
	}
	return text
}

// contract: B15
func TestRepairs(t *testing.T) {
	t.Parallel()
	const (
		blank, bom, fence = argstream.RepairBlank, argstream.RepairBOM, argstream.RepairFence
		str, comma, ctrl  = argstream.RepairString, argstream.RepairComma, argstream.RepairControl
	)
	for _, tt := range []struct {
		text, want string
		repairs    []string
	}{
		{``, `{}`, []string{blank}},
		{" \n\t", `{}`, []string{blank}},
		{`null`, `{}`, []string{blank}},
		{"\ufeff", `{}`, []string{bom, blank}},
		{"\ufeff{\"a\":1}", `{"a":1}`, []string{bom}},
		{"```json\n{\"a\":1}\n```", `{"a":1}`, []string{fence}},
		{" ```\n{\"a\":1}```\n", `{"a":1}`, []string{fence}},
		{"\ufeff```JSON\r\n{\"a\":[1,],}\r\n```", `{"a":[1]}`, []string{bom, fence, comma}},
		{"```json\n{\"a\":\"```\"}\n```", "{\"a\":\"```\"}", []string{fence}},
		{inString(`{"order_id":"27422"}`, 1), `{"order_id":"27422"}`, []string{str}},
		{inString(`{"a":1}`, 2), `{"a":1}`, []string{str}},
		{" " + inString(`{"a":"é\n"}`, 3) + "\n", `{"a":"é\n"}`, []string{str}},
		{inString("```json\n{\"a\":1,}\n```", 1), `{"a":1}`, []string{str, fence, comma}},
		{`{"a":[1,2,],"b":{"c":1,},}`, `{"a":[1,2],"b":{"c":1}}`, []string{comma}},
		{"{\"a\":[1 , \n] ,\t}", "{\"a\":[1  \n] \t}", []string{comma}},
		{"{\"a\":\"x\ny\tz\r\n\x00\x1f\"}", `{"a":"x\ny\tz\r\n\u0000\u001f"}`, []string{ctrl}},
		{"{\"a\n\":[\"b\tc, ]\",]}", `{"a\n":["b\tc, ]"]}`, []string{comma, ctrl}},
		{"{\"a\":\"\\\\\n\"}", `{"a":"\\\n"}`, []string{ctrl}},
		{"\"{\\\"a\\\":\n1}\"", `{"a":` + "\n" + `1}`, []string{ctrl, str}},
	} {
		got, repairs, err := argstream.Repair([]byte(tt.text))
		if err != nil || string(got) != tt.want || !reflect.DeepEqual(repairs, tt.repairs) {
			t.Errorf("%q: %s, %v, %v", tt.text, got, repairs, err)
		}
	}
}

// What would need a guess is refused as it came.
func TestNoRepair(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		`[]`: argstream.ReasonNotObject, `"text"`: argstream.ReasonNotObject, `""`: argstream.ReasonNotObject, `12`: argstream.ReasonNotObject,
		inString(`[1]`, 1):                   argstream.ReasonNotObject,
		inString(`null`, 1):                  argstream.ReasonNotObject,
		inString(`{"a":1}`, 4):               argstream.ReasonNotObject,
		`{"a":1}{"a":2}`:                     argstream.ReasonInvalid,
		`{"a":1} and more`:                   argstream.ReasonInvalid,
		`here it is: {"a":1}`:                argstream.ReasonInvalid,
		"```json\n{}\n```\n```json\n{}\n```": argstream.ReasonInvalid,
		"```true```":                         argstream.ReasonInvalid,
		"``````":                             argstream.ReasonInvalid,
		`{"a":1},`:                           argstream.ReasonInvalid,
		`{,}`:                                argstream.ReasonInvalid,
		`{"a":[,]}`:                          argstream.ReasonInvalid,
		`{"a":[1,,]}`:                        argstream.ReasonInvalid,
		`{"a":,}`:                            argstream.ReasonInvalid,
		`{'a':1}`:                            argstream.ReasonInvalid,
		`{a:1}`:                              argstream.ReasonInvalid,
		`{"a":True}`:                         argstream.ReasonInvalid,
		`{"a":NaN,}`:                         argstream.ReasonInvalid,
		`{"a":"C:\path"}`:                    argstream.ReasonInvalid,
		"{\"a\":\"\\\n\"}":                   argstream.ReasonInvalid,
		`{"a":1 /* c */}`:                    argstream.ReasonInvalid,
		`{"a":1,"a":2,}`:                     argstream.ReasonDuplicate,
		`{"a":"\ud800",}`:                    argstream.ReasonUTF8,
		"{\"a\":\"\xff\",}":                  argstream.ReasonUTF8,
		// cut off: whatever else is wrong
		`{"command":"rm -rf build`:  argstream.ReasonIncomplete,
		`{"a":[1,2,]`:               argstream.ReasonIncomplete,
		"{\"a\":\"x\ny":             argstream.ReasonIncomplete,
		"```json\n{\"a\":1":         argstream.ReasonIncomplete,
		"```json\n{\"a\":1}\n":      argstream.ReasonIncomplete,
		"\ufeff{\"a\":1":            argstream.ReasonIncomplete,
		inString(`{"a":1`, 1):       argstream.ReasonIncomplete,
		`"{\"a\":1}`:                argstream.ReasonIncomplete,
		"\"{\\\"a\\\":\\\"x\ny\\\"": argstream.ReasonIncomplete,
	} {
		got, repairs, err := argstream.Repair([]byte(text))
		e := frames.AsError(err)
		if e == nil || got != nil || repairs != nil {
			t.Errorf("%q: %s, %v", text, got, repairs)
			continue
		}
		if e.Reason != reason {
			t.Errorf("%q: %s, want %s", text, e.Reason, reason)
		}
		if reason == argstream.ReasonIncomplete && !strings.Contains(e.ForModel(), "cut off") {
			t.Errorf("%q: %s", text, e.ForModel())
		}
		bounded(t, err)
	}
}

func TestRepairIsBounded(t *testing.T) {
	t.Parallel()
	long := `{"a":"` + strings.Repeat("\n", argstream.MaxBytes-10) + `"}` // twice as long in escapes
	if _, _, err := argstream.Repair([]byte(long)); frames.CodeOf(err) != frames.CodeTooLarge {
		t.Errorf("error %v", err)
	}
	if _, _, err := argstream.Repair(bytes.Repeat([]byte(" "), argstream.MaxBytes+1)); frames.CodeOf(err) != frames.CodeTooLarge {
		t.Errorf("error %v", err)
	}
}

// Whatever harmless damage was done to an object is undone to the last value, and
// what is an object is left alone.
func TestRepairUndoesDamage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		object := string(objectText().Draw(rt, "object"))
		if got, repairs, err := argstream.Repair([]byte(object)); err != nil || string(got) != object || repairs != nil {
			rt.Fatalf("%s: %s, %v, %v", object, got, repairs, err)
		}
		text := damage(rt, object)
		got, _, err := argstream.Repair([]byte(text))
		if err != nil {
			rt.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(decoded(rt, object), decoded(rt, string(got))); diff != "" {
			rt.Fatalf("%q: %s", text, diff)
		}
	})
}

func decoded(rt *rapid.T, text string) (v any) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		rt.Fatalf("%q: %v", text, err)
	}
	return v
}

func damage(rt *rapid.T, object string) string {
	text := object
	if rapid.Bool().Draw(rt, "control") {
		text = strings.NewReplacer(`\\`, `\\`, `\n`, "\n", `\t`, "\t", `\u0001`, "\x01").Replace(text)
	}
	if rapid.Bool().Draw(rt, "comma") && object != "{}" {
		text = text[:len(text)-1] + " ,\n}"
	}
	if rapid.Bool().Draw(rt, "fence") {
		text = "```" + rapid.SampledFrom([]string{"", "json", "JSON"}).Draw(rt, "language") + "\n" + text + "\n```"
	}
	text = inString(text, rapid.IntRange(0, argstream.MaxStrings).Draw(rt, "strings"))
	if rapid.Bool().Draw(rt, "bom") {
		text = "\ufeff" + text
	}
	return text
}

// No beginning of an object, however it is wrapped, is ever taken for the object.
func TestNoBeginningIsRepaired(t *testing.T) {
	t.Parallel()
	whole := []string{
		`{"a":[1.5,{"b":"x, ]"},],"c":"d` + "\n" + `",}`, "```json\n{\"a\":[1,],\"b\":{}}\n```", inString(`{"a":{"b":[true,null]}}`, 2),
	}
	for _, text := range whole {
		if _, _, err := argstream.Repair([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for n := 1; n < len(text); n++ {
			if got, repairs, err := argstream.Repair([]byte(text[:n])); err == nil {
				t.Errorf("%q: %s by %v", text[:n], got, repairs)
			}
		}
	}
}

func FuzzRepair(f *testing.F) {
	for _, seed := range []string{"", "\ufeff```json\n{\"a\":[1,],}\n```", inString(`{"a":"x"}`, 3), "{\"a\":\"\n\\\n\"}", `{"a":1,`, `",]"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, repairs, err := argstream.Repair(text)
		strict, strictErr := argstream.Parse(text)
		switch {
		case err != nil:
			bounded(t, err)
			if strictErr == nil || repairs != nil {
				t.Fatalf("%q: %v although %s", text, err, strict)
			}
			return
		case (repairs == nil) != bytes.Equal(got, text):
			t.Fatalf("%q: %s by %v", text, got, repairs)
		}
		if again, err := argstream.Parse(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q: %q is no object: %v", text, got, err)
		}
		if len(got) > 6*len(text)+2 {
			t.Fatalf("%d bytes from %d", len(got), len(text))
		}
	})
}
