package schema_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

const readFile = `{"type":"object","properties":{"path":{"type":"string"},"offset":{"type":"integer","minimum":0},` +
	`"limit":{"type":"integer"},"recursive":{"type":"boolean"},"mode":{"enum":["head","tail"]}},` +
	`"required":["path"],"additionalProperties":false}`

func TestValidateAccepts(t *testing.T) {
	t.Parallel()
	tests := []struct{ schema, args string }{
		{readFile, `{"path":"a.txt","offset":10,"limit":1e2,"recursive":false,"mode":"head"}`},
		{readFile, ` {"path":"","offset":1.0} `},
		{``, `{}`},
		{`true`, `{"a":null}`},
		// case: arg-05-big-integers
		{`{"properties":{"id":{"type":"integer"},"u":{"type":"integer","maximum":18446744073709551615}}}`, `{"id":9007199254740993,"u":18446744073709551615}`},
		// case: arg-06-decimal-precision
		{`{"properties":{"c":{"enum":[12345678901234567890.123456789]}}}`, `{"c":12345678901234567890.1234567890}`},
		{`{"properties":{"s":{"maxLength":1}}}`, `{"s":"😀"}`},
		// case: exp-04-anthropic-root-union
		{`{"type":"object","anyOf":[{"required":["content"]},{"required":["source_url"]}]}`, `{"content":"x"}`},
		// case: loop-15-validation-error-loops-back
		{`{"properties":{"destination":{"type":"string"}},"required":["destination"]}`, `{"destination":"Oslo"}`},
	}
	for _, tt := range tests {
		if err := mustCompile(t, tt.schema).Validate([]byte(tt.args)); err != nil {
			t.Errorf("%s: %v", tt.args, err)
		}
	}
}

// contract: G45
func TestIssues(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, args, want string }{
		{"type", readFile, `{"path":5}`, `/path: wrong type (expected string, got number 5)`},
		{"types", `{"properties":{"a":{"type":["integer","null"]}}}`, `{"a":"5"}`, `/a: wrong type (expected null or integer, got string "5")`},
		// case: loop-15-validation-error-loops-back
		{"object for text", `{"properties":{"destination":{"type":"string"}}}`, `{"destination":{"k":"v"}}`,
			`/destination: wrong type (expected string, got an object with key "k")`},
		// case: arg-15-defaults-nested
		{"null is not absent", `{"properties":{"n":{"type":"integer","default":5}}}`, `{"n":null}`, `/n: wrong type (expected integer, got null)`},
		{"root", ``, `[1,2]`, `(root): wrong type (expected object, got an array of 2 items)`},
		{"root of any schema", `true`, `"x"`, `(root): wrong type (expected object, got string "x")`},
		{"nothing fits", `false`, `{}`, `(root): not allowed here (expected nothing, got an empty object)`},
		{"missing", readFile, `{"mode":"tail"}`, `(root): missing required property "path" (expected property "path": string, got key "mode")`},
		{"all missing at once", `{"required":["a","b","c"],"properties":{"a":{"type":"string"},"b":{"$ref":"#/$defs/n"},"c":true},"$defs":{"n":{"type":"integer"}}}`,
			`{}`, `(root): missing required properties "a", "b", "c" (expected properties "a": string, "b": integer, "c", got an empty object)`},
		{"dependent", `{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `(root): missing required property "b", which "a" needs beside it (expected property "b", got key "a")`},
		{"dependency", `{"dependencies":{"a":["b"]}}`, `{"a":1}`, `(root): missing required property "b", which "a" needs beside it (expected property "b", got key "a")`},
		// case: arg-17-case-folded-keys
		{"case of a key", readFile, `{"path":"a.txt","PATH":"b.txt","Path":"c.txt"}`,
			`(root): unknown properties "PATH", "Path"; did you mean "path"? (expected only "limit", "mode", "offset", "path", "recursive", got keys "PATH", "Path")`},
		{"typo", readFile, `{"path":"a","ofset":1}`,
			`(root): unknown property "ofset"; did you mean "offset"? (expected only "limit", "mode", "offset", "path", "recursive", got key "ofset")`},
		{"separator", `{"properties":{"max_lines":{}},"additionalProperties":false}`, `{"maxLines":1}`,
			`(root): unknown property "maxLines"; did you mean "max_lines"? (expected only "max_lines", got key "maxLines")`},
		{"nothing like it", readFile, `{"path":"a","zebra":1}`, `(root): unknown property "zebra" (expected only "limit", "mode", "offset", "path", "recursive", got key "zebra")`},
		{"closed and empty", `{"additionalProperties":false}`, `{"a":1}`, `(root): unknown property "a" (expected no properties, got key "a")`},
		{"unevaluated", `{"unevaluatedProperties":false,"allOf":[{"properties":{"a":{}}}]}`, `{"a":1,"b":2}`, `/b: not allowed here (expected nothing, got 2)`},
		{"enum", readFile, `{"path":"a","mode":"tial"}`, `/mode: not one of the allowed values; did you mean "tail"? (expected one of "head", "tail", got "tial")`},
		{"enum with null", `{"properties":{"a":{"enum":[1,null]}}}`, `{"a":2}`, `/a: not one of the allowed values (expected one of 1, null, got 2)`},
		{"long enum", `{"properties":{"a":{"enum":[` + list(500, func(i int) string { return fmt.Sprintf(`"v%03d"`, i) }) + `]}}}`, `{"a":"other"}`,
			`/a: not one of the allowed values (expected one of ` + strings.ReplaceAll(list(20, func(i int) string { return fmt.Sprintf(`"v%03d"`, i) }), ",", ", ") + ` and 480 more, got "other")`},
		{"const", `{"properties":{"a":{"const":{"b":1}}}}`, `{"a":2}`, `/a: wrong value (expected {"b":1}, got 2)`},
		// case: arg-19-bound-message
		{"bound", `{"properties":{"n":{"type":"integer","maximum":9007199254740992}}}`, `{"n":9007199254740993}`,
			`/n: too large (expected at most 9007199254740992, got 9007199254740993)`},
		{"bounds are exact", `{"properties":{"n":{"minimum":0.1}}}`, `{"n":0.09999999999999999999}`, `/n: too small (expected at least 0.1, got 0.09999999999999999999)`},
		{"exclusive", `{"properties":{"n":{"exclusiveMinimum":0}}}`, `{"n":0}`, `/n: too small (expected more than 0, got 0)`},
		{"exclusive above", `{"properties":{"n":{"exclusiveMaximum":2.5}}}`, `{"n":2.5}`, `/n: too large (expected less than 2.5, got 2.5)`},
		{"multiple", `{"properties":{"n":{"multipleOf":0.25}}}`, `{"n":0.3}`, `/n: not a multiple (expected a multiple of 0.25, got 0.3)`},
		{"short", `{"properties":{"s":{"minLength":2}}}`, `{"s":"😀"}`, `/s: too short (expected at least 2 characters, got 1 character)`},
		{"long", `{"properties":{"s":{"maxLength":1}}}`, `{"s":"ab"}`, `/s: too long (expected at most 1 character, got 2 characters)`},
		{"few items", `{"properties":{"l":{"minItems":1}}}`, `{"l":[]}`, `/l: too few items (expected at least 1 item, got 0 items)`},
		{"many items", `{"properties":{"l":{"maxItems":1}}}`, `{"l":[1,2]}`, `/l: too many items (expected at most 1 item, got 2 items)`},
		{"few members", `{"minProperties":1}`, `{}`, `(root): too few members (expected at least 1 member, got 0 members)`},
		{"many members", `{"maxProperties":0}`, `{"a":1}`, `(root): too many members (expected at most 0 members, got 1 member)`},
		{"tuple is full", `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"l":{"items":[{}],"additionalItems":false}}}`, `{"l":[1,2]}`,
			`/l: too many items (expected 1 item fewer, got an array of 2 items)`},
		{"pattern", `{"properties":{"s":{"pattern":"^\\d+$"}}}`, `{"s":"x"}`, `/s: does not match the pattern (expected text that matches "^\\d+$", got "x")`},
		{"format of an old draft", `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"s":{"format":"date"}}}`, `{"s":"today"}`,
			`/s: wrong format (expected format "date", got "today")`},
		{"equal items", `{"properties":{"l":{"uniqueItems":true}}}`, `{"l":[1,2,1.0]}`, `/l: items 0 and 2 are equal (expected items that all differ, got an array of 3 items)`},
		{"contains", `{"properties":{"l":{"contains":{"type":"string"}}}}`, `{"l":[1]}`, `/l: no item is of the kind that must be in it (expected at least 1 such item, got an array of 1 item)`},
		{"few contained", `{"properties":{"l":{"contains":{"type":"string"},"minContains":2}}}`, `{"l":["a"]}`,
			`/l: too few items of the kind that must be in it (expected at least 2 such items, got 1 such item)`},
		{"many contained", `{"properties":{"l":{"contains":{"type":"string"},"maxContains":1}}}`, `{"l":["a","b"]}`,
			`/l: too many items of the kind that is limited (expected at most 1 such item, got 2 such items)`},
		{"not", `{"properties":{"a":{"not":{"type":"string"}}}}`, `{"a":"x"}`, `/a: of a form that the schema excludes (expected another value, got "x")`},
		{"key", `{"propertyNames":{"pattern":"^[a-z]+$"}}`, `{"ok":1,"Bad":2}`, `(root): the key "Bad" is not allowed (expected text that matches "^[a-z]+$", got "Bad")`},
		{"pointer", `{"properties":{"a/b":{"additionalProperties":{"items":{"type":"string"}}}}}`, `{"a/b":{"x~y":["",1]}}`, `/a~1b/x~0y/1: wrong type (expected string, got number 1)`},
		{"loop", `{"allOf":[{"$ref":"#"}]}`, `{}`, `(root): the schema refers to itself without end, no value can be checked (expected nothing, got an empty object)`},
		{"if then", `{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, `(root): missing required property "b" (expected property "b", got key "a")`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := line(t, mustCompile(t, tt.schema).Validate([]byte(tt.args))); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestChoices(t *testing.T) {
	t.Parallel()
	byKind := `{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"]},` +
		`{"type":"object","properties":{"k":{"const":"b"},"y":{"type":"string"}},"required":["k","y"]}]}`
	ownKeys := `{"oneOf":[{"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]},` +
		`{"properties":{"c":{"type":"string"}},"required":["c"]}]}`
	tests := []struct{ name, schema, args, want string }{
		// case: arg-21-oneof-branch
		{"branch by constant", byKind, `{"k":"a","x":"1"}`, `/x: wrong type (expected integer, got string "1")`},
		{"no branch has it", byKind, `{"k":"q","x":1}`, `/k: not one of the allowed values (expected one of "a", "b", got "q")`},
		{"branch of fewest faults", `{"anyOf":[{"required":["a"],"properties":{"a":{"type":"string"}},"additionalProperties":false},{"required":["b","c"]}]}`,
			`{"a":1}`, `/a: wrong type (expected string, got number 1)`},
		// case: arg-21-oneof-branch
		{"branch of known keys", ownKeys, `{"a":1,"b":"2"}`, `/a: wrong type (expected string, got number 1)`},
		{"branch of some known keys", ownKeys, `{"a":"1"}`, `(root): missing required property "b" (expected property "b": string, got key "a")`},
		{"branch of most known keys", ownKeys, `{"a":"1","b":2,"c":3}`, `/b: wrong type (expected string, got number 2)`},
		{"branch of known keys by reference", `{"$defs":{"ab":{"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]},"c":{"properties":{"c":{}},"required":["c"]}},` +
			`"properties":{"v":{"items":{"anyOf":[{"$ref":"#/$defs/ab"},{"$ref":"#/$defs/c"}]}}}}`, `{"v":[{"c":1},{"a":"1"}]}`,
			`/v/1: missing required property "b" (expected property "b": string, got key "a")`},
		{"no known keys", ownKeys, `{"z":1}`, `(root): missing required property "c" (expected property "c": string, got key "z")`},
		{"types", `{"properties":{"v":{"anyOf":[{"type":"string"},{"type":["integer","null"]}]}}}`, `{"v":[]}`, `/v: wrong type (expected string or null or integer, got an array of 0 items)`},
		{"type then content", `{"properties":{"v":{"anyOf":[{"type":"null"},{"type":"object","required":["a"]}]}}}`, `{"v":{}}`,
			`/v: missing required property "a" (expected property "a", got an empty object)`},
		{"constants", `{"properties":{"v":{"anyOf":[{"const":"x"},{"const":"y"},{"type":"integer"},{"type":"null"}]}}}`, `{"v":"z"}`,
			`/v: not one of the allowed values (expected one of "x", "y" or integer or null, got "z")`},
		// case: exp-05-anthropic-required-anyof
		{"no nearest", `{"properties":{"route":{"type":"string"},"file":{"type":"string"}},"anyOf":[{"required":["route"]},{"required":["file"]}]}`, `{}`,
			`(root): fits none of the 2 allowed forms (expected property "route" | property "file", got an empty object)`},
		// case: exp-04-anthropic-root-union
		{"no nearest, typed", `{"anyOf":[{"type":"object","properties":{"content":{"type":"string"}},"required":["content"]},{"type":"object","properties":{"source_url":{"type":"string"}},"required":["source_url"]}]}`, `{}`,
			`(root): fits none of the 2 allowed forms (expected property "content": string | property "source_url": string, got an empty object)`},
		{"many forms", `{"anyOf":[` + list(9, func(i int) string { return fmt.Sprintf(`{"required":["p%d"]}`, i) }) + `]}`, `{}`,
			`(root): fits none of the 9 allowed forms (expected property "p0" | property "p1" | property "p2" | property "p3" | 5 more forms, got an empty object)`},
		{"inner places", `{"anyOf":[{"properties":{"a":{"minimum":5}}},{"properties":{"a":{"multipleOf":7}}}]}`, `{"a":3}`,
			`(root): fits none of the 2 allowed forms (expected /a: at least 5 | /a: a multiple of 7, got an object with key "a")`},
		{"too many fit", `{"oneOf":[{"required":["a"]},{"required":["z"]},{"required":["b"]}]}`, `{"a":1,"b":2}`,
			`(root): fits more than one of the allowed forms: numbers 1 and 3 in the schema's order (expected exactly one form, got an object with keys "a", "b")`},
		{"choice in a choice", `{"anyOf":[{"anyOf":[{"type":"string"},{"type":"array"}]},{"type":"object","properties":{"k":{"oneOf":[{"const":1},{"const":2}]}}}]}`, `{"k":3}`,
			`/k: not one of the allowed values (expected one of 1, 2, got 3)`},
		{"by reference", `{"$defs":{"s":{"type":"string"},"n":{"type":"number"}},"properties":{"v":{"oneOf":[{"$ref":"#/$defs/s"},{"$ref":"#/$defs/n"}]}}}`, `{"v":true}`,
			`/v: wrong type (expected string or number, got true)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := line(t, mustCompile(t, tt.schema).Validate([]byte(tt.args))); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// contract: S10
func TestTextForTheModel(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, readFile).Named("read_file")
	e := coded(t, s.Validate([]byte(`{"PATH":"x","offset":-1}`)), frames.CodeValidationInput)
	want := `The arguments of tool "read_file" do not fit the schema:
  - (root): unknown property "PATH"; did you mean "path"? (expected only "limit", "mode", "offset", "path", "recursive", got key "PATH")
  - (root): missing required property "path" (expected property "path": string, got keys "PATH", "offset")
  - /offset: too small (expected at least 0, got -1)
Fix the arguments and call the tool again.`
	if diff := cmp.Diff(want, e.ForModel()); diff != "" {
		t.Error(diff)
	}
	if !e.Retryable || e.Effect != frames.EffectNone {
		t.Errorf("%+v", e)
	}
	wantIssue := frames.Issue{Path: "/offset", Expected: "at least 0", Got: "-1", Message: "too small"}
	if diff := cmp.Diff(wantIssue, e.Issues[2]); diff != "" {
		t.Error(diff)
	}
	unnamed := coded(t, mustCompile(t, ``).Validate([]byte(`[]`)), frames.CodeValidationInput)
	if first, _, _ := strings.Cut(unnamed.ForModel(), "\n"); first != "The arguments do not fit the schema:" {
		t.Error(first)
	}
}

// contract: S11
func TestTextForTheModelOfAResult(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"type":"object","properties":{"mean":{"type":"number"}},"required":["mean"]}`).Named("stats")
	if err := s.ValidateOutput([]byte(`{"mean":1.5}`)); err != nil {
		t.Error(err)
	}
	e := coded(t, s.ValidateOutput([]byte(`{"mean":"high"}`)), frames.CodeValidationOutput)
	want := `The result of tool "stats" does not fit the output schema, so the tool is at fault, not your call:
  - /mean: wrong type (expected number, got string "high")
Other arguments will not mend the tool. It may have done its work; go on without its result.`
	if diff := cmp.Diff(want, e.ForModel()); diff != "" {
		t.Error(diff)
	}
	if e.Retryable || e.Effect != frames.EffectDone {
		t.Errorf("%+v", e)
	}
	// case: res-01-nan
	e = coded(t, s.ValidateOutput([]byte(`{"mean":NaN}`)), frames.CodeValidationOutput)
	if e.Issues[0].Path != "/mean" || !strings.Contains(e.ForModel(), "NaN") || !strings.Contains(e.ForModel(), "at fault") {
		t.Errorf("%+v", e)
	}
	if err := mustCompile(t, `{"type":"array"}`).ValidateOutput([]byte(`[1]`)); err != nil {
		t.Error("a result may be any value:", err)
	}
}

func TestTextThatIsNoSoundJSON(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, reason, want string }{
		{``, "empty", `(root): there is no JSON value, at byte 0`},
		{`{"a":1`, "unfinished", `/a: the text ends before its JSON value does, at byte 6 (got {"a":1)`},
		{`{} {}`, "trailing", `(root): something follows the JSON value: '{', at byte 3 (got {} {})`},
		// case: arg-30-json-nan-text
		{`{"a":NaN}`, "syntax", `/a: expected a value, found NaN, at byte 5 (got {"a":NaN})`},
		// case: arg-16-duplicate-keys
		{`{"path":"ok.txt","path":"../../etc/passwd"}`, "duplicate_key", `/path: duplicate key "path", at byte 17 (got {"path":"ok.txt","path":"../../etc/passwd…)`},
		// case: arg-28-lone-surrogate-and-bad-utf8
		{`{"a":"\ud800"}`, "bad_text", `/a: half of a surrogate pair in a string, at byte 6 (got {"a":"\ud800"})`},
		{"{\"a\":\"\xff\"}", "bad_text", "/a: invalid UTF-8 in a string, at byte 6 (got {\"a\":\"\uFFFD\"})"},
		{strings.Repeat(`{"a":`, 65) + `1` + strings.Repeat(`}`, 65), "too_deep", ""},
		{`{"n":1E1000000}`, "big_number", `/n: a number's exponent is beyond the limit of 400, at byte 5 (got {"n":1E1000000})`},
		{`{"n":` + strings.Repeat("1", 1001) + `}`, "big_number", ""},
		{`{"l":[` + list(70_000, func(int) string { return "0" }) + `]}`, "too_many", ""},
	}
	s := mustCompile(t, `{"properties":{"path":{"type":"string"},"n":{"type":"integer"}}}`)
	for _, tt := range tests {
		err := s.Validate([]byte(tt.args))
		e := coded(t, err, frames.CodeValidationInput)
		if e.Reason != tt.reason || tt.want != "" && line(t, err) != tt.want {
			t.Errorf("reason %s, %s", e.Reason, line(t, err))
		}
		if !strings.HasPrefix(e.ForModel(), "The arguments are not the JSON they have to be:\n  - ") {
			t.Error(e.ForModel())
		}
	}
}

func TestIssuesAreBounded(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"additionalProperties":{"type":"integer"}}`)
	args := `{` + list(50, func(i int) string { return fmt.Sprintf(`"k%02d":%q`, i, strings.Repeat("ä", 5000)) }) + `}`
	e := coded(t, s.Validate([]byte(args)), frames.CodeValidationInput)
	if len(e.Issues) != schema.MaxIssues || !strings.HasSuffix(e.Message, "(and 49 more)") {
		t.Errorf("%d issues, %s", len(e.Issues), e.Message)
	}
	if want := `string "` + strings.Repeat("ä", 38) + `…" (5000 characters)`; e.Issues[0].Got != want {
		t.Errorf("got %s", e.Issues[0].Got)
	}
	lines := strings.Split(e.ForModel(), "\n")
	if len(lines) != schema.MaxIssues+3 || lines[schema.MaxIssues+1] != "  - and 42 more problems" {
		t.Errorf("%q", lines)
	}
}

// What a caller's keys and values hold must not break the list of lines.
func TestIssuesStayOnTheirLines(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("k", 100_000)
	s := mustCompile(t, `{"additionalProperties":{"type":"integer"},"propertyNames":{"maxLength":20}}`)
	e := coded(t, s.Validate([]byte(`{"a\nFix \u2028b":"x\ny","`+huge+`":1}`)), frames.CodeValidationInput)
	if got := strings.Count(e.ForModel(), "\n"); got != len(e.Issues)+1 {
		t.Errorf("%d lines for %d issues:\n%s", got, len(e.Issues), e.ForModel())
	}
	for _, i := range e.Issues {
		if len(i.Path)+len(i.Got)+len(i.Message)+len(i.Expected) > 2000 {
			t.Errorf("an issue of %d bytes", len(i.Path)+len(i.Got)+len(i.Message)+len(i.Expected))
		}
	}
}

// The validator walks maps; the same arguments must read the same each time.
func TestIssuesAreDeterministic(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"a":{"type":"string"},"b":{"minimum":5},"c":{"enum":[1,2]}},"required":["x","y"],"additionalProperties":false,"propertyNames":{"maxLength":1}}`)
	args := []byte(`{"a":1,"b":1,"c":5,"zz":1,"yy":2,"xx":{"a":1}}`)
	first := frames.AsError(s.Validate(args))
	for range 50 {
		if diff := cmp.Diff(first.ForModel(), frames.AsError(s.Validate(args)).ForModel()); diff != "" {
			t.Fatal(diff)
		}
	}
}

// Arguments and schemas that are made to keep the validator busy.
func TestHostileArguments(t *testing.T) {
	t.Parallel()
	doubling := `{"$ref":"#/$defs/a0","$defs":{` + list(40, func(i int) string {
		return fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i+1, i+1)
	}) + `,"a40":{"minProperties":1}}}`
	chain := `{"$ref":"#/$defs/0","$defs":{` + list(1500, func(i int) string { return fmt.Sprintf(`"%d":{"$ref":"#/$defs/%d"}`, i, i+1) }) +
		`,"1500":{"additionalProperties":{"$ref":"#"}}}}`
	nested := strings.Repeat(`{"a":`, 60) + "{}" + strings.Repeat(`}`, 60)
	long := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	tests := []struct{ name, schema, args string }{
		{"doubling branches", doubling, `{}`},
		{"doubling with depth", `{"anyOf":[{"additionalProperties":{"$ref":"#"}},{"additionalProperties":{"$ref":"#"}}],"minProperties":1}`, nested},
		{"long chain of references", chain, nested},
		{"numbers against a long enum", `{"additionalProperties":{"items":{"enum":[` + list(5900, strconv.Itoa) + `]}}}`,
			`{"a":[` + list(60_000, func(int) string { return "99999" }) + `]}`},
		{"unevaluated", `{"unevaluatedProperties":true,"allOf":[` + list(1500, func(int) string { return `{"required":["a"]}` }) + `]}`,
			`{` + list(30_000, func(i int) string { return fmt.Sprintf(`"%d":1`, i) }) + `}`},
		{"lengths of one text", `{"additionalProperties":{"allOf":[` + list(2500, func(i int) string { return fmt.Sprintf(`{"maxLength":%d}`, i) }) + `]}}`, long},
		{"large pattern on a long text", `{"additionalProperties":{"pattern":"^(x?){1000}y"}}`, long},
		{"many wrong items", `{"additionalProperties":{"items":{"type":"integer"}}}`, `{"a":[` + list(60_000, func(int) string { return `""` }) + `]}`},
		{"long numbers", `{"additionalProperties":{"items":{"multipleOf":3}}}`, `{"a":[` + list(1000, func(int) string { return strings.Repeat("7", 1000) }) + `]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, tt.schema)
			start := time.Now()
			err := s.Validate([]byte(tt.args))
			if d := time.Since(start); d > time.Minute {
				t.Errorf("took %v", d)
			}
			if err != nil {
				coded(t, err, frames.CodeValidationInput)
			}
			if tt.schema == doubling && !strings.Contains(fmt.Sprint(err), "takes more work than one call may cost") {
				t.Error(err)
			}
		})
	}
}

// A schema that once used up its budget goes on working for sound calls.
func TestHeavySchemaStillValidates(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"n":{"type":"integer"}},"anyOf":[{"additionalProperties":{"$ref":"#"}},{"additionalProperties":{"$ref":"#"}}],"maxProperties":1}`)
	bomb := strings.Repeat(`{"a":`, 40) + `{"b":1,"c":2}` + strings.Repeat(`}`, 40)
	for range 2 {
		coded(t, s.Validate([]byte(bomb)), frames.CodeValidationInput)
		if err := s.Validate([]byte(`{"n":1}`)); err != nil {
			t.Error(err)
		}
		if s.Validate([]byte(`{"n":"x"}`)) == nil {
			t.Error("fits")
		}
	}
}

// The nine bytes cost the validator half a second; they must not reach it. The
// best of many runs counts: the machine may be busy.
func TestGiantNumberIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"n":{"type":"integer"}}}`)
	best := time.Hour
	for range 50 {
		start := time.Now()
		coded(t, s.Validate([]byte(`{"n":1E1000000}`)), frames.CodeValidationInput)
		best = min(best, time.Since(start))
	}
	if best > time.Millisecond {
		t.Errorf("took %v", best)
	}
}

func BenchmarkValidate(b *testing.B) {
	s := mustCompile(b, readFile)
	args := []byte(`{"path":"src/main.go","offset":10,"limit":200,"recursive":true,"mode":"head"}`)
	b.Run("five fields", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Validate(args); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("five fields, two wrong", func(b *testing.B) {
		b.ReportAllocs()
		wrong := []byte(`{"path":5,"offset":10,"limit":200,"recursive":true,"mode":"x"}`)
		for b.Loop() {
			if s.Validate(wrong) == nil {
				b.Fatal("fits")
			}
		}
	})
}
