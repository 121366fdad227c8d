package export_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

type testCase struct {
	ID    string `json:"id"`
	Input struct {
		Tools     json.RawMessage `json:"tools"`
		Schema    json.RawMessage `json:"schema"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"input"`
	Expected json.RawMessage `json:"expected"`
}

func (c *testCase) schema() string { return string(c.Input.Schema) }

var caseTests = map[string]func(*testing.T, *testCase){
	"arg-14-null-for-optional":        caseNull,
	"exp-01-openai-name":              caseNames(export.OpenAI, `^[a-zA-Z0-9_-]{1,64}$`),
	"exp-02-long-names":               caseNames(export.OpenAI, `^[a-zA-Z0-9_-]{1,64}$`),
	"exp-03-non-ascii-names":          caseNames(export.Anthropic, `^[a-zA-Z0-9_-]{1,64}$`),
	"exp-04-anthropic-root-union":     caseRootUnion,
	"exp-05-anthropic-required-anyof": caseRequiredUnion,
	"exp-06-anthropic-property-keys":  casePropertyKeys,
	"exp-07-openai-array-items":       caseItems,
	"exp-08-openai-object-properties": caseNoProperties,
	"exp-09-strict-optional":          caseStrict,
	"exp-12-gemini-nullable-array":    caseGeminiArray,
	"exp-13-gemini-enum":              caseGeminiEnum,
	"exp-14-gemini-refs":              caseGeminiRefs,
	"exp-15-gemini-recursive":         caseGeminiRecursive,
	"exp-17-tool-count":               caseCount,
	"exp-18-empty-tools":              caseEmpty,
}

// contract: B28, B29, S35
// case: arg-14-null-for-optional, exp-01-openai-name, exp-02-long-names, exp-03-non-ascii-names
// case: exp-04-anthropic-root-union, exp-05-anthropic-required-anyof, exp-06-anthropic-property-keys
// case: exp-07-openai-array-items, exp-08-openai-object-properties, exp-09-strict-optional
// case: exp-12-gemini-nullable-array, exp-13-gemini-enum, exp-14-gemini-refs, exp-15-gemini-recursive
// case: exp-17-tool-count, exp-18-empty-tools
func TestCases(t *testing.T) {
	t.Parallel()
	all := readCases(t)
	passed := 0
	for i := range all {
		c := &all[i]
		run := caseTests[c.ID]
		if run == nil {
			t.Errorf("case %s has no test", c.ID)
			continue
		}
		if t.Run(c.ID, func(t *testing.T) { run(t, c) }) { //nolint:paralleltest // they are counted
			passed++
		}
	}
	t.Logf("%d of %d cases passed", passed, len(all))
	if len(all) != len(caseTests) {
		t.Errorf("%d cases, %d tests", len(all), len(caseTests))
	}
}

func readCases(t *testing.T) []testCase {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []testCase
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c testCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func caseNames(f export.Format, pattern string) func(*testing.T, *testCase) {
	return func(t *testing.T, c *testCase) {
		t.Helper()
		var names []string
		if err := json.Unmarshal(c.Input.Tools, &names); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		set := mustExport(t, f, tools(names...))
		for i, m := range list(t, f, set) {
			wire, _ := m["name"].(string)
			if !regexp.MustCompile(pattern).MatchString(wire) || want[wire] != "" {
				t.Errorf("%q is exported as %q", names[i], wire)
			}
			want[wire] = names[i]
			if back, _ := set.Own(wire, "{}"); back != names[i] {
				t.Errorf("%q comes back as %q", wire, back)
			}
			alone := mustExport(t, f, tools("other", names[i], "z.z"))
			if got := alone.Names().Wire(names[i]); got != wire {
				t.Errorf("%q is %q beside other tools, %q before", names[i], got, wire)
			}
		}
		slices.Reverse(names)
		for wire, own := range want {
			if got := mustExport(t, f, tools(names...)).Names().Wire(own); got != wire {
				t.Errorf("%q is %q in another order, %q before", own, got, wire)
			}
		}
	}
}

func caseRootUnion(t *testing.T, c *testCase) {
	t.Helper()
	got := one(t, export.Anthropic, c.schema())
	s := schemaOf(got)
	for _, key := range []string{"oneOf", "anyOf", "allOf", "required"} {
		if s[key] != nil {
			t.Errorf("%s is %v", key, s[key])
		}
	}
	same(t, "input_schema", s, `{"type":"object","properties":{"content":{"type":"string"},"source_url":{"type":"string"}}}`)
	if !strings.Contains(got["description"].(string), "at least one of these: content; source_url") {
		t.Errorf("description %q", got["description"])
	}
	if accepts(t, c.schema(), `{}`) || !accepts(t, c.schema(), `{"content":"x"}`) {
		t.Error("the tool's own schema judges otherwise")
	}
}

func caseRequiredUnion(t *testing.T, c *testCase) {
	t.Helper()
	got := one(t, export.Anthropic, c.schema())
	same(t, "input_schema", schemaOf(got), `{"type":"object","properties":{"route":{"type":"string"},"file":{"type":"string"}}}`)
	if !strings.Contains(got["description"].(string), "at least one of these: route; file") {
		t.Errorf("description %q", got["description"])
	}
	if accepts(t, c.schema(), `{}`) {
		t.Error("the tool's own schema takes {}")
	}
}

// What a root forbids to come together is told too.
//
// case: exp-05-anthropic-required-anyof
func TestRootsThatExclude(t *testing.T) {
	t.Parallel()
	const props = `"properties":{"a":{},"b":{},"c":{}}`
	for rule, told := range map[string]string{
		`"not":{"required":["a","b"]}`: "d\n\nDo not give any of these together: a + b.",
		`"not":{"anyOf":[{"required":["a","b"]},{"type":"object","required":["b","c"]}]}`: "d\n\nDo not give any of these together: a + b; b + c.",
		`"oneOf":[{"required":["a"]},{"required":["b"]}],"not":{"required":["c"]}`:        "d\n\nGive exactly one of these: a; b. Do not give any of these together: c.",
		`"not":{"properties":{"a":{"const":1}},"required":["a"]}`:                         "d",
		`"not":{}`: "d",
	} {
		for _, f := range []export.Format{export.Anthropic, export.OpenAI} {
			got := one(t, f, `{"type":"object",`+props+`,`+rule+`}`)
			if got["description"] != told {
				t.Errorf("%s: %q", rule, got["description"])
			}
			same(t, rule, schemaOf(got), `{"type":"object",`+props+`}`)
		}
	}
}

func casePropertyKeys(t *testing.T, c *testCase) {
	t.Helper()
	set := mustExport(t, export.Anthropic, []export.Tool{tool("f", c.schema())})
	s := schemaOf(list(t, export.Anthropic, set)[0])
	props := object(s["properties"])
	if len(props) != 3 {
		t.Fatalf("properties %v", props)
	}
	args := `{"filter[id]":"1","filter_id_":"2","$top":9007199254740993}`
	_, wire := set.Wire("f", args)
	for key := range props {
		if !regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`).MatchString(key) || !strings.Contains(wire, `"`+key+`":`) {
			t.Errorf("key %q, arguments %s", key, wire)
		}
	}
	if required, _ := at(s, "required", 0).(string); props[required] == nil || required == "filter_id_" {
		t.Errorf("required %v", s["required"])
	}
	if _, back := set.Own("f", wire); back != args {
		t.Errorf("%s comes back as %s", wire, back)
	}
}

func caseItems(t *testing.T, c *testCase) {
	t.Helper()
	for _, f := range []export.Format{export.OpenAI, export.OpenAIResponses, export.OpenAIStrict, export.Anthropic, export.Gemini, export.Vercel} {
		same(t, string(f), schemaOf(one(t, f, c.schema()))["properties"],
			`{"v":{"type":"array","items":{}},"w":{"type":"array","items":{"type":"array","items":{}}}}`)
	}
}

func caseNoProperties(t *testing.T, c *testCase) {
	t.Helper()
	for _, text := range []string{c.schema(), `{}`, `true`, ``, `{"type":["object","null"]}`, `{"title":"t","properties":7}`} {
		s := schemaOf(one(t, export.OpenAI, text))
		delete(s, "title")
		same(t, text, s, `{"type":"object","properties":{}}`)
	}
}

func caseStrict(t *testing.T, c *testCase) {
	t.Helper()
	got := one(t, export.OpenAIStrict, c.schema())
	same(t, "function", got, `{"name":"f","description":"d","strict":true,"parameters":{"type":"object","properties":{
		"q":{"type":"string"},
		"n":{"type":["integer","null"],"minimum":1},
		"u":{"anyOf":[{"type":"string"},{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false},{"type":"null"}]},
		"e":{"type":["string","null"],"enum":["x","y",null]},
		"o":{"type":["object","null"],"properties":{"k":{"type":["string","null"]}},"required":["k"],"additionalProperties":false}},
		"required":["q","n","u","e","o"],"additionalProperties":false}}`)
}

// The root is an object and nothing else, whatever its schema says beside.
//
// case: exp-09-strict-optional
func TestStrictRootIsAnObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"type":["object","null"]}`, `{"type":["null","object"],"properties":{}}`, `{"type":["object"]}`, `true`} {
		got := one(t, export.OpenAIStrict, text)
		same(t, text, got["parameters"], `{"type":"object","properties":{},"required":[],"additionalProperties":false}`)
		same(t, text, got["strict"], `true`)
	}
}

func caseNull(t *testing.T, c *testCase) {
	t.Helper()
	set := mustExport(t, export.OpenAIStrict, []export.Tool{tool("f", c.schema())})
	_, got := set.Own("f", string(c.Input.Arguments))
	if got != `{"q":"x"}` || got != export.Arguments(c.Input.Schema, string(c.Input.Arguments)) {
		t.Errorf("the tool gets %s", got)
	}
	own := `{"type":"object","properties":{"n":{"type":["integer","null"]},"m":{"type":"integer"}}}`
	if got := export.Arguments(json.RawMessage(own), `{"m":null,"n":null}`); got != `{"n":null}` {
		t.Errorf("the tool gets %s", got)
	}
}

func caseGeminiArray(t *testing.T, c *testCase) {
	t.Helper()
	same(t, "parameters", at(one(t, export.GeminiParameters, c.schema()), "parameters", "properties"),
		`{"l":{"type":"array","nullable":true,"items":{"type":"string"}}}`)
	union := `{"type":"object","properties":{"u":{"description":"x","anyOf":[{"type":"string"},{"type":["integer","boolean"]},{"type":"null"}]}}}`
	same(t, "union", at(one(t, export.GeminiParameters, union), "parameters", "properties", "u"),
		`{"anyOf":[{"type":"string","nullable":true,"description":"x"},{"type":"integer","nullable":true},{"type":"boolean","nullable":true}]}`)
}

func caseGeminiEnum(t *testing.T, c *testCase) {
	t.Helper()
	same(t, "parameters", at(one(t, export.GeminiParameters, c.schema()), "parameters", "properties"),
		`{"m":{"type":"string","nullable":true,"enum":["a","b"]},"k":{"type":"integer","format":"enum","enum":["1","2"]},"c":{"type":"string","enum":["z"]}}`)
}

// Of values that an enum may not hold the model is told in words, whatever the order
// of keywords.
//
// case: exp-13-gemini-enum
func TestGeminiEnumsInWords(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"string","enum":["","a"],"description":"x"}`: `{"type":"string","description":"x (one of [\"\",\"a\"])"}`,
		`{"description":"x","enum":["a","a","b"]}`:            `{"type":"string","description":"x","enum":["a","b"]}`,
		`{"enum":[true]}`:       `{"type":"boolean","description":"one of [true]"}`,
		`{"enum":[true,false]}`: `{"type":"boolean"}`,
		`{"const":{"a":1.0}}`:   `{"type":"object","description":"one of [{\"a\":1.0}]"}`,
		`{"type":"number","exclusiveMinimum":1,"description":"x"}`:    `{"type":"number","description":"x (exclusiveMinimum: 1)","minimum":1}`,
		`{"type":["string","null"],"enum":["",null]}`:                 `{"type":"string","nullable":true,"description":"one of [\"\"]"}`,
		`{"type":"array","items":{"enum":[9007199254740993,1,1.50]}}`: `{"type":"array","items":{"anyOf":[{"type":"integer","format":"enum","enum":["9007199254740993","1"]},{"type":"number","format":"enum","enum":["9007199254740993","1","1.50"]}]}}`,
	} {
		same(t, schema, at(one(t, export.GeminiParameters, `{"type":"object","properties":{"p":`+schema+`}}`), "parameters", "properties", "p"), want)
	}
}

func caseGeminiRefs(t *testing.T, c *testCase) {
	t.Helper()
	same(t, "parameters", at(one(t, export.GeminiParameters, c.schema()), "parameters"), `{"type":"object","properties":{
		"h":{"type":"object"},"a":{"type":"array","items":{"type":"object"}},
		"o":{"type":"object","description":"d","properties":{"n":{"type":"integer"}}}}}`)
	escaped := `{"type":"object","properties":{"x":{"$ref":"#/$defs/a~1b%20c~0"}},"$defs":{"a/b c~":{"type":"string"}}}`
	same(t, "escapes", at(one(t, export.GeminiParameters, escaped), "parameters", "properties", "x"), `{"type":"string"}`)
}

func caseGeminiRecursive(t *testing.T, c *testCase) {
	t.Helper()
	got := one(t, export.GeminiParameters, c.schema())
	if got["parameters"] != nil || len(text(t, got)) > 20_000 {
		t.Errorf("exported as %v", got)
	}
	s := text(t, got["parametersJsonSchema"])
	if !accepts(t, s, `{"v":"a","kids":[{"v":"b"}]}`) || accepts(t, s, `{"v":"a","kids":[{"kids":[]}]}`) {
		t.Errorf("schema %s", s)
	}
}

func caseCount(t *testing.T, c *testCase) {
	t.Helper()
	var n int
	if err := json.Unmarshal(c.Input.Tools, &n); err != nil {
		t.Fatal(err)
	}
	for f, limit := range map[export.Format]int{
		export.OpenAI: n - 1, export.OpenAIStrict: n - 1, export.OpenAIResponses: n - 1,
		export.Gemini: 512, export.GeminiParameters: 512,
	} {
		var names []string
		for i := range limit + 1 {
			names = append(names, fmt.Sprintf("t%d", i))
		}
		many := tools(names...)
		_, err := export.Export(f, many)
		if e := frames.AsError(err); e == nil || e.Code != frames.CodeTooLarge || !strings.Contains(e.Message, "the limit of "+text(t, limit)) {
			t.Errorf("%s: %v", f, err)
		}
		if _, err := export.Export(f, many[:limit]); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		if _, err := export.Export(f, many, export.WithMaxTools(-1)); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func caseEmpty(t *testing.T, _ *testCase) {
	t.Helper()
	for _, f := range export.Formats() {
		want := "[]"
		if f == export.Vercel {
			want = "{}"
		}
		for _, none := range [][]export.Tool{nil, {}, export.FromTools([]provider.Tool{})} {
			if set := mustExport(t, f, none); set.Len() != 0 || string(set.JSON()) != want || len(set.Split(1)) != 0 {
				t.Errorf("%s: %s", f, set.JSON())
			}
		}
	}
}
