package schema_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: P8
func TestBlankSchemaIsTheDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " \n\t"} {
		s := mustCompile(t, text)
		if got := string(s.Text()); got != frames.DefaultSchema {
			t.Errorf("Text() = %s", got)
		}
		if err := s.Validate([]byte(`{"anything":1}`)); err != nil {
			t.Error(err)
		}
	}
}

// contract: P8
func TestRefusedSchemas(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, path, message string }{
		{"not JSON", `{"type":`, "/type", "the text ends before its JSON value does, at byte 8"},
		{"duplicate keyword", `{"type":"object","type":"string"}`, "/type", `duplicate key "type", at byte 17`},
		{"giant number", `{"maximum":1E1000000}`, "/maximum", "a number's exponent is beyond the limit of 400, at byte 11"},
		{"array root", `["x"]`, "", "a schema is an object or a boolean"},
		{"text root", `"object"`, "", "a schema is an object or a boolean"},
		{"unknown type", `{"properties":{"n":{"type":"int"}}}`, "/properties/n/type", "not one of the allowed values"},
		{"keyword of another type", `{"properties":{"n":{"minimum":"5"}}}`, "/properties/n/minimum", "wrong type"},
		{"required as boolean", `{"properties":{"n":{"required":true}}}`, "/properties/n/required", "wrong type"},
		{"negative size", `{"minLength":-1}`, "/minLength", "too small"},
		// case: arg-25-external-ref
		{"file", `{"properties":{"x":{"$ref":"file:///etc/hostname"}}}`, "/properties/x/$ref",
			`the reference "file:///etc/hostname" leaves the schema, and schemas load nothing`},
		{"network", `{"items":{"$ref":"https://example.com/s.json#/a"}}`, "/items/$ref",
			`the reference "https://example.com/s.json#/a" leaves the schema, and schemas load nothing`},
		{"neighbour", `{"$ref":"other.json"}`, "/$ref", `the reference "other.json" leaves the schema, and schemas load nothing`},
		{"by $id", `{"$id":"https://example.com/a","properties":{"x":{"$ref":"b"}}}`, "", `leaves the schema, and schemas load nothing`},
		{"unknown draft", `{"$schema":"https://example.com/mine"}`, "/$schema", "$schema names no draft that is known here"},
		{"dangling", `{"properties":{"x":{"$ref":"#/$defs/no"}}}`, "/properties/x/$ref",
			`the reference "#/$defs/no" refers to a place that the schema does not have`},
		{"dangling anchor", `{"$ref":"#no"}`, "/$ref", `the reference "#no" refers to an anchor that the schema does not have`},
		{"same $id", `{"$defs":{"a":{"$id":"h:x"},"b":{"$id":"h:x"}}}`, "/$defs/", "the same $id as at /$defs/"},
		{"same anchor", `{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`, "/$defs/", "the same anchor as at /$defs/"},
		{"look-ahead", `{"properties":{"x":{"pattern":"^(?=a)b"}}}`, "/properties/x/pattern",
			"the pattern \"^(?=a)b\" cannot be used: invalid or unsupported Perl syntax: `(?=`"},
		{"back-reference", `{"pattern":"(a)\\1"}`, "/pattern", `the pattern "(a)\\1" cannot be used`},
		{"pattern of names", `{"patternProperties":{"(?!a)":{}}}`, "/patternProperties/(?!a)", `the pattern "(?!a)" cannot be used`},
		{"pattern of names in draft 4", `{"$schema":"http://json-schema.org/draft-04/schema#","patternProperties":{"(?!a)":{}}}`,
			"/patternProperties/(?!a)", `the pattern "(?!a)" cannot be used`},
		{"half a surrogate pair", `{"pattern":"\\ud83d"}`, "/pattern", `the pattern "\\ud83d" cannot be used`},
		{"two first halves", `{"pattern":"\\ud83d\\ud83d"}`, "/pattern", `the pattern "\\ud83d\\ud83d" cannot be used`},
		{"no code point", `{"pattern":"\\u{110000}"}`, "/pattern", `cannot be used`},
		{"no script", `{"pattern":"\\p{Script=Klingon}"}`, "/pattern", `cannot be used`},
		{"open escape", `{"pattern":"a\\"}`, "/pattern", `cannot be used`},
		{"long pattern", `{"pattern":"` + strings.Repeat("a", 5000) + `"}`, "/pattern", "more than the limit of 4096"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := schema.Compile([]byte(tt.schema))
			e := coded(t, err, frames.CodeValidationInput)
			if e.Reason != "bad_schema" || e.Retryable || len(e.Issues) == 0 {
				t.Fatalf("%+v", e)
			}
			if i := e.Issues[0]; !strings.HasPrefix(i.Path, tt.path) || !strings.Contains(i.Message, tt.message) {
				t.Errorf("issue %q: %q", i.Path, i.Message)
			}
			if !strings.HasPrefix(e.Message, "schema refused: ") {
				t.Errorf("message %q", e.Message)
			}
		})
	}
}

func TestSchemaOverTheLimit(t *testing.T) {
	t.Parallel()
	at := func(size int) []byte {
		return []byte(`{"description":"` + strings.Repeat("x", size-18) + `"}`)
	}
	if _, err := schema.Compile(at(frames.MaxSchema)); err != nil {
		t.Error(err)
	}
	_, err := schema.Compile(at(frames.MaxSchema + 1))
	if e := coded(t, err, frames.CodeTooLarge); !strings.Contains(e.Message, "65536") {
		t.Errorf("%v does not name the limit", e)
	}
}

// case: arg-24-old-drafts
func TestOldDrafts(t *testing.T) {
	t.Parallel()
	draft := func(n string) string { return `"$schema":"http://json-schema.org/draft-` + n + `/schema#",` }
	tests := []struct{ name, schema, good, bad string }{
		{"flag without draft", `{"properties":{"n":{"minimum":1,"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":true}}}`, `{"n":2}`, `{"n":1}`},
		{"upper flag", `{"properties":{"n":{"maximum":3,"exclusiveMaximum":true}}}`, `{"n":2}`, `{"n":3}`},
		{"flag off", `{"properties":{"n":{"minimum":1,"exclusiveMinimum":false}}}`, `{"n":1}`, `{"n":0}`},
		{"flag in draft 4", `{` + draft("04") + `"properties":{"n":{"minimum":1,"exclusiveMinimum":true}}}`, `{"n":2}`, `{"n":1}`},
		{"tuple without draft", `{"properties":{"t":{"items":[{"type":"string"},{"type":"integer"}],"additionalItems":false}}}`, `{"t":["a",1]}`, `{"t":["a",1,2]}`},
		{"tuple's items", `{"properties":{"t":{"items":[{"type":"string"},{"type":"integer"}]}}}`, `{"t":["a",1,2]}`, `{"t":["a","b"]}`},
		{"empty tuple", `{"properties":{"t":{"items":[],"additionalItems":{"type":"string"}}}}`, `{"t":["a"]}`, `{"t":[1]}`},
		{"tuple in draft 7", `{` + draft("07") + `"properties":{"t":{"items":[{"type":"string"}],"additionalItems":false}}}`, `{"t":["a"]}`, `{"t":["a",1]}`},
		{"definitions", `{"properties":{"x":{"$ref":"#/definitions/A"}},"definitions":{"A":{"type":"string"}}}`, `{"x":"a"}`, `{"x":1}`},
		{"siblings of $ref count", `{"properties":{"x":{"$ref":"#/$defs/A","maxLength":1}},"$defs":{"A":{"type":"string"}}}`, `{"x":"a"}`, `{"x":"ab"}`},
		{"but not in draft 7", `{` + draft("07") + `"properties":{"x":{"$ref":"#/definitions/A","maxLength":1}},"definitions":{"A":{"type":"string"}}}`, `{"x":"ab"}`, `{"x":1}`},
		{"a property called items", `{"properties":{"items":{"type":"array"},"exclusiveMinimum":{"type":"boolean"}}}`, `{"items":[],"exclusiveMinimum":true}`, `{"items":1}`},
		{"a value that looks old", `{"properties":{"v":{"enum":[{"items":[1]}]},"t":{"items":[{"type":"string"}]}}}`, `{"v":{"items":[1]}}`, `{"v":{"prefixItems":[1]}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, tt.schema)
			if err := s.Validate([]byte(tt.good)); err != nil {
				t.Errorf("%s: %v", tt.good, err)
			}
			if s.Validate([]byte(tt.bad)) == nil {
				t.Errorf("%s fits", tt.bad)
			}
		})
	}
}

func TestPatternsOfECMAScript(t *testing.T) {
	t.Parallel()
	tests := []struct{ pattern, good, bad string }{
		{`^[\\u4e00-\\u9fa5]+$`, "搜索", "abc"}, //nolint:gosmopolitan // the pattern is of Han letters
		{`^\\\\u00e9$`, `\\u00e9`, "é"},
		{`^\\/a\\-b$`, "/a-b", "ab"},
		{`^\\p{L}+$`, "äb", "1"},
		{`^(?<y>\\d{4})$`, "2026", "26"},
		{`^\\u{1F600}$`, "😀", "x"},
		{`^\\uD83D\\uDE00$`, "😀", "x"},
		{`^[\\uD83D\\uDE00-\\uD83D\\uDE4F]+$`, "😀😃", "x"},
		{`^\\cJ\\cj$`, `\n\n`, "J"},
		{`^\\p{Script=Greek}+$`, "αβ", "ab"},
		{`^\\P{sc=Greek}+$`, "ab", "αβ"},
		{`^\\p{gc=Lu}$`, "A", "a"},
	}
	for _, tt := range tests {
		s := mustCompile(t, `{"properties":{"x":{"pattern":"`+tt.pattern+`"}}}`)
		if err := s.Validate([]byte(`{"x":"` + tt.good + `"}`)); err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
		}
		err := s.Validate([]byte(`{"x":"` + tt.bad + `"}`))
		if err == nil {
			t.Errorf("%s matches %s", tt.pattern, tt.bad)
		} else if !strings.Contains(err.Error(), tt.pattern) {
			t.Errorf("%v does not show the pattern as declared", err)
		}
	}
}

func TestMetaschemaIsNoForeignSchema(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"s":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}`)
	if err := s.Validate([]byte(`{"s":{"type":"object"}}`)); err != nil {
		t.Error(err)
	}
	if s.Validate([]byte(`{"s":{"type":"strng"}}`)) == nil {
		t.Error("a broken schema fits the metaschema")
	}
}

func TestForArguments(t *testing.T) {
	t.Parallel()
	for text, fits := range map[string]bool{
		``:                                      true,
		`true`:                                  true,
		`{}`:                                    true,
		`{"type":["object","null"]}`:            true,
		`{"$ref":"#"}`:                          true,
		`{"$ref":"#/$defs/a","$defs":{"a":{}}}`: true,
		`{"anyOf":[{"type":"string"},{"type":"object"}]}`:                true,
		`{"not":{"type":"string"}}`:                                      true,
		`{"not":{"type":"object","required":["a"]}}`:                     true,
		`{"allOf":[{"type":"object"},{"required":["a"]}]}`:               true,
		`{"enum":["a",{"b":1}]}`:                                         true,
		`false`:                                                          false,
		`{"type":"string"}`:                                              false,
		`{"type":["array","null"]}`:                                      false,
		`{"$ref":"#/$defs/a","$defs":{"a":{"type":"array"}}}`:            false,
		`{"oneOf":[{"type":"string"},{"type":"array"}]}`:                 false,
		`{"allOf":[{"type":"object"},{"type":"string"}]}`:                false,
		`{"not":{"type":"object"}}`:                                      false,
		`{"not":{"type":"object","properties":{"a":{"type":"string"}}}}`: true,
		`{"not":true}`:                                                   false,
		`{"const":1}`:                                                    false,
		`{"enum":["a","b"]}`:                                             false,
		`{"enum":[` + list(40, strconv.Itoa) + `]}`:                      false,
	} {
		err := mustCompile(t, text).ForArguments()
		if (err == nil) != fits {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil && coded(t, err, frames.CodeValidationInput).Reason != "bad_schema" {
			t.Errorf("%s: %+v", text, err)
		}
	}
}

func TestNamedAndDigest(t *testing.T) {
	t.Parallel()
	a := mustCompile(t, `{"type":"object"}`)
	b := a.Named("x")
	if a.Digest() != b.Digest() || len(a.Digest()) != 64 || a.Digest() == mustCompile(t, `{"type": "object"}`).Digest() {
		t.Error("the digest is that of the text")
	}
}

// Schemas that are made to stop whoever compiles them.
func TestHostileSchemas(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"many empty parts": `{"allOf":[` + list(5990, func(int) string { return "{}" }) + `]}`,
		"many ids":         `{"$defs":{` + list(2000, func(i int) string { return fmt.Sprintf(`"%d":{"$id":"h:%d"}`, i, i) }) + `}}`,
		"odd references": `{"allOf":[` + list(700, func(i int) string { return fmt.Sprintf(`{"$ref":"#/x/%d"}`, i) }) +
			`],"x":{` + list(700, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) }) + `}}`,
		"repeated pattern":  `{"pattern":"` + strings.Repeat("x{1000}", 500) + `"}`,
		"repeating parts":   `{"allOf":[` + list(2000, func(i int) string { return fmt.Sprintf(`{"pattern":"x{1000}%d"}`, i) }) + `]}`,
		"nested pattern":    `{"pattern":"` + strings.Repeat("(", 2000) + strings.Repeat(")", 2000) + `"}`,
		"depth bomb":        strings.Repeat(`{"not":`, 5000) + "{}" + strings.Repeat("}", 5000),
		"loop of $schema":   `{"$schema":"weavebus:///schema"}`,
		"metaschema's name": `{"$id":"https://json-schema.org/draft/2020-12/schema","$ref":"meta/core"}`,
		"dynamic anchors":   `{"$dynamicAnchor":"a","$defs":{"x":{"$dynamicAnchor":"b","$dynamicRef":"#b"}},"$dynamicRef":"#a"}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			s, err := schema.Compile([]byte(text))
			if err != nil {
				coded(t, err, frames.CodeValidationInput)
			} else {
				_ = s.Validate([]byte(`{"a":{"b":1}}`))
			}
			if d := time.Since(start); d > time.Minute {
				t.Errorf("took %v", d)
			}
		})
	}
}

// contract: S32
func TestCache(t *testing.T) {
	t.Parallel()
	var c schema.Cache
	a, err := c.Compile([]byte(`{"type":"object"}`))
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := c.Compile([]byte(`{"type":"object"}`)); a != b {
		t.Error("compiled twice")
	}
	blank, _ := c.Compile(nil)
	if std, _ := c.Compile([]byte(frames.DefaultSchema)); blank != std {
		t.Error("a blank text is the default's")
	}
	_, err1 := c.Compile([]byte(`{"type":"no"}`))
	_, err2 := c.Compile([]byte(`{"type":"no"}`))
	if err1 == nil || frames.AsError(err1) != frames.AsError(err2) {
		t.Error("the failure was not remembered")
	}
	if c.Len() != 3 {
		t.Errorf("%d entries", c.Len())
	}
	if _, err := c.Compile(make([]byte, frames.MaxSchema+1)); coded(t, err, frames.CodeTooLarge) != nil && c.Len() != 3 {
		t.Error("an oversized text was kept")
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := schema.Cache{MaxBytes: 10_000}
	text := func(i int) []byte { return fmt.Appendf(nil, `{"description":"%d"}`, i) }
	first, _ := c.Compile(text(0))
	for i := range 50 {
		if _, err := c.Compile(text(i)); err != nil {
			t.Fatal(err)
		}
		if again, _ := c.Compile(text(0)); again != first {
			t.Fatal("dropped what was used last")
		}
	}
	if n := c.Len(); n > 10 {
		t.Errorf("%d entries", n)
	}
	small := schema.Cache{MaxBytes: 1}
	for i := range 3 {
		if _, err := small.Compile(text(i)); err != nil || small.Len() != 1 {
			t.Errorf("%d entries, %v", small.Len(), err)
		}
	}
}
