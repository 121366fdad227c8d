package export_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

const planeSchema = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{"type":"string","default":"<x>"}},"required":["z"]}`

// Each format to the byte: keys, their order, and numbers as the tool wrote them.
//
// contract: W22, W23, W24, W25, W27
func TestShapes(t *testing.T) {
	t.Parallel()
	const (
		plain  = `{"type":"object","properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{"type":"string","default":"<x>"}},"required":["z"]}`
		closed = `{"type":"object","properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{"type":["string","null"],"default":"<x>"}},"required":["z","a"],"additionalProperties":false}`
	)
	yes, no := []export.Option{export.WithStrict(true)}, []export.Option{export.WithStrict(false)}
	for _, tt := range []struct {
		format export.Format
		opts   []export.Option
		want   string
	}{
		{export.OpenAI, nil, `[{"type":"function","function":{"name":"plane","description":"d","parameters":` + plain + `}}]`},
		{export.OpenAI, no, `[{"type":"function","function":{"name":"plane","description":"d","parameters":` + plain + `,"strict":false}}]`},
		{export.OpenAI, yes, `[{"type":"function","function":{"name":"plane","description":"d","parameters":` + closed + `,"strict":true}}]`},
		{export.OpenAIStrict, nil, `[{"type":"function","function":{"name":"plane","description":"d","parameters":` + closed + `,"strict":true}}]`},
		{export.OpenAIResponses, nil, `[{"type":"function","name":"plane","description":"d","parameters":` + plain + `,"strict":false}]`},
		{export.OpenAIResponses, yes, `[{"type":"function","name":"plane","description":"d","parameters":` + closed + `,"strict":true}]`},
		{export.Anthropic, nil, `[{"name":"plane","description":"d","input_schema":` + plain + `}]`},
		{export.Gemini, nil, `[{"functionDeclarations":[{"name":"plane","description":"d","parametersJsonSchema":` + plain + `}]}]`},
		{export.GeminiParameters, yes, `[{"functionDeclarations":[{"name":"plane","description":"d","parameters":` + plain + `}]}]`},
		{export.Vercel, nil, `{"plane":{"description":"d","inputSchema":` + plain + `}}`},
		{export.Vercel, no, `{"plane":{"description":"d","inputSchema":` + plain + `,"strict":false}}`},
		{export.MCP, nil, `[{"name":"plane","description":"d","inputSchema":` + planeSchema + `}]`},
	} {
		set := mustExport(t, tt.format, []export.Tool{tool("plane", planeSchema)}, tt.opts...)
		if diff := cmp.Diff(tt.want, string(set.JSON())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.format, diff)
		}
		if len(set.Notes()) > 0 {
			t.Errorf("%s: %v", tt.format, set.Notes())
		}
	}
}

// contract: B54, S1
func TestMCPSaysWhatAToolDoes(t *testing.T) {
	t.Parallel()
	d := &frames.Declaration{
		Name: "drop", Title: "Drop it", Description: "d", Schema: json.RawMessage(`{"anyOf":[{"required":["a"]}]}`),
		OutputSchema: json.RawMessage(`{"type":"object"}`), Annotations: frames.Annotations{Destructive: true, OpenWorld: true, RequiresConfirmation: true},
	}
	look := export.Tool{Tool: provider.Tool{Name: "look"}, OutputSchema: json.RawMessage(`{"type":"array"}`), Annotations: frames.Annotations{ReadOnly: true, Idempotent: true}}
	set := mustExport(t, export.MCP, []export.Tool{export.FromDeclaration(d), look, tool("silent", "")})
	same(t, "tools", value(t, set.JSON()), `[
		{"name":"drop","title":"Drop it","description":"d","inputSchema":{"type":"object","anyOf":[{"required":["a"]}]},"outputSchema":{"type":"object"},
		 "annotations":{"destructiveHint":true,"openWorldHint":true},"_meta":{"weavebus/requiresConfirmation":true}},
		{"name":"look","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true,"idempotentHint":true,"destructiveHint":false}},
		{"name":"silent","description":"d","inputSchema":{"type":"object","properties":{}}}]`)
}

// A tool's own choice of strict counts more than that of the export.
//
// contract: S34
func TestStrictOfOneTool(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	list3 := tools("a", "b", "c")
	list3[0].Strict, list3[1].Strict = &yes, &no
	for _, f := range []export.Format{export.OpenAI, export.Anthropic, export.Vercel} {
		for _, m := range list(t, f, mustExport(t, f, list3)) {
			want := map[any]any{"a": true, "b": false, "c": nil}[m["name"]]
			if m["strict"] != want {
				t.Errorf("%s: strict of %v is %v", f, m["name"], m["strict"])
			}
		}
	}
}

// What cannot be strict goes out as it is, and says so.
//
// contract: B28
func TestSchemasThatCannotBeStrict(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 11) + `{"type":"string"}` + strings.Repeat(`}}`, 11)
	enum := `{"type":"object","properties":{"e":{"enum":["` + strings.Repeat(`x","`, 1001) + `y"]}}}`
	for why, schema := range map[string]string{
		"/properties/m: an object with any keys":      `{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"string"}}}}`,
		"the root: an object with any keys":           `{"type":"object","additionalProperties":true}`,
		"/properties/o: an object with any keys":      `{"type":"object","properties":{"o":{"type":"object"}}}`,
		"/properties/e: an object with any keys":      `{"type":"object","properties":{"e":{"type":"object","properties":{}}}}`,
		"/properties/x: takes any value":              `{"type":"object","properties":{"x":{}}}`,
		"/properties/x: an array of anything":         `{"type":"object","properties":{"x":{"type":"array"}}}`,
		"a union at the root":                         `{"type":"object","anyOf":[{"properties":{"a":{"type":"string"}}}]}`,
		"/properties/x: prefixItems cannot be strict": `{"type":"object","properties":{"x":{"type":"array","items":[{"type":"string"}]}}}`,
		"the root: if cannot be strict":               `{"type":"object","if":{"required":["a"]},"then":{"required":["b"]}}`,
		"requires \"a\"":                              `{"type":"object","required":["a"]}`,
		"is not a place in the schema":                `{"type":"object","properties":{"x":{"$ref":"#/$defs/no"}}}`,
		"is not to a definition":                      `{"type":"object","properties":{"a":{"type":"string"},"x":{"$ref":"#/properties/a"}}}`,
		"11 levels, more than the limit of 10":        deep,
		"values in enums, more than the limit":        enum,
		"allOf says pattern twice":                    `{"type":"object","properties":{"a":{"allOf":[{"type":"string","pattern":"a"},{"pattern":"b"}]}}}`,
	} {
		set := mustExport(t, export.OpenAIStrict, []export.Tool{tool("f", schema)})
		if got := list(t, export.OpenAIStrict, set)[0]; got["strict"] != false || !strings.Contains(text(t, set.Notes()), strings.Trim(text(t, why), `"`)) {
			t.Errorf("%s: strict %v, notes %v", why, got["strict"], set.Notes())
		}
		if _, args := set.Own("f", `{"a":null}`); args != `{"a":null}` {
			t.Errorf("%s: a null was taken out of arguments that are not strict", why)
		}
	}
}

// contract: B28
func TestStrictTransform(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ schema, want string }{
		"allOf is merged":         {`{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"const":1}}}]}`, `{"a":{"type":"string"},"b":{"type":["integer","null"],"enum":[1,null]}}`},
		"a wrapped reference":     {`{"properties":{"a":{"description":"d","allOf":[{"$ref":"#/$defs/s"}]}},"$defs":{"s":{"type":"string"}}}`, `{"a":{"description":"d","anyOf":[{"$ref":"#/$defs/s"},{"type":"null"}]}}`},
		"null is there already":   {`{"properties":{"a":{"$ref":"#/$defs/s"}},"$defs":{"s":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, `{"a":{"$ref":"#/$defs/s"}}`},
		"what stands by a union":  {`{"properties":{"u":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}},"required":["u"]}`, `{"u":{"anyOf":[{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["string","null"]}},"required":["a","b"],"additionalProperties":false},{"type":"object","properties":{"a":{"type":["string","null"]},"b":{"type":"string"}},"required":["a","b"],"additionalProperties":false}]}}`},
		"oneOf":                   {`{"properties":{"u":{"oneOf":[{"type":"string"},{"type":"integer"}]}},"required":["u"]}`, `{"u":{"anyOf":[{"type":"string"},{"type":"integer"}]}}`},
		"keywords become words":   {`{"properties":{"l":{"type":"array","items":{"type":"string","format":"uri"},"uniqueItems":true,"description":"d"}},"required":["l"]}`, `{"l":{"type":"array","items":{"type":"string","description":"format: \"uri\""},"description":"d (uniqueItems: true)"}}`},
		"patterns with more":      {`{"properties":{"p":{"type":"string","pattern":"^(?=a)b"},"q":{"type":"string","pattern":"^(?:a|b)$"}},"required":["p","q"]}`, `{"p":{"type":"string","description":"pattern: \"^(?=a)b\""},"q":{"type":"string","pattern":"^(?:a|b)$"}}`},
		"values that never fit":   {`{"properties":{"e":{"type":"string","enum":["a",1,null]}},"required":["e"]}`, `{"e":{"type":"string","enum":["a"]}}`},
		"types that are not said": {`{"properties":{"o":{"properties":{"a":{"enum":["x",2]}}},"l":{"items":{"type":"null"}}},"required":["o","l"]}`, `{"o":{"type":"object","properties":{"a":{"type":["string","integer","null"],"enum":["x",2,null]}},"required":["a"],"additionalProperties":false},"l":{"type":"array","items":{"type":"null"}}}`},
		"a default is optional":   {`{"properties":{"d":{"type":"integer","default":5}}}`, `{"d":{"type":["integer","null"],"default":5}}`},
	} {
		set := mustExport(t, export.OpenAIStrict, []export.Tool{tool("f", tt.schema)})
		got := list(t, export.OpenAIStrict, set)[0]
		if got["strict"] != true {
			t.Errorf("%s: %v", name, set.Notes())
			continue
		}
		same(t, name, at(got, "parameters", "properties"), tt.want)
	}
}

// A null is taken out by the form of the union that the rest of the object has.
//
// case: arg-14-null-for-optional
func TestArguments(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{
		"u":{"anyOf":[
			{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"string"}},"required":["kind"]},
			{"type":"object","properties":{"kind":{"const":"b"},"x":{"type":["string","null"]}},"required":["kind"]}]},
		"l":{"type":"array","items":{"$ref":"#/$defs/n"}},"big":{"type":"number"}},
		"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/n"}},"required":["v"]}}}`
	for given, want := range map[string]string{
		`{"u":{"kind":"a","x":null}}`:                  `{"u":{"kind":"a"}}`,
		`{"u":{"x":null,"kind":"b"}}`:                  `{"u":{"x":null,"kind":"b"}}`,
		`{"u":null,"l":null,"big":null}`:               `{}`,
		`{"l":[{"v":1,"next":{"v":2.0,"next":null}}]}`: `{"l":[{"v":1,"next":{"v":2.0}}]}`,
		`{"big":9007199254740993.10,"u":null}`:         `{"big":9007199254740993.10}`,
		`{ "big" : 1 }`:                                `{ "big" : 1 }`,
		`{"other":null}`:                               `{"other":null}`,
		`{"l":[null]}`:                                 `{"l":[null]}`,
		`{"u":null,"u":null}`:                          `{"u":null,"u":null}`,
		`{"u":null`:                                    `{"u":null`,
		`null`:                                         `null`,
		`{"u":{"kind":"\u0061","x":null},"big":1e2,"s":"\u00e9\/<>"}`: `{"u":{"kind":"\u0061"},"big":1e2,"s":"\u00e9\/<>"}`,
	} {
		if got := export.Arguments(json.RawMessage(schema), given); got != want {
			t.Errorf("%s is read as %s, want %s", given, got, want)
		}
	}
	if got := export.Arguments(json.RawMessage(`{"type":`), `{"a":null}`); got != `{"a":null}` {
		t.Errorf("without a schema: %s", got)
	}
}

// contract: W23
func TestAnthropicStrict(t *testing.T) {
	t.Parallel()
	schema := `{"type":"object","properties":{"u$":{"type":"string","format":"uri","minLength":3},"o":{"type":"object","properties":{"a":{"type":"integer","minimum":1}}}},"required":["u$"]}`
	set := mustExport(t, export.Anthropic, []export.Tool{tool("f", schema)}, export.WithStrict(true))
	wire, _ := at(list(t, export.Anthropic, set)[0], "input_schema", "required", 0).(string)
	same(t, "schema", list(t, export.Anthropic, set)[0], `{"name":"f","description":"d","strict":true,"input_schema":{"type":"object","properties":{
		"`+wire+`":{"type":"string","format":"uri","description":"minLength: 3"},
		"o":{"type":"object","properties":{"a":{"type":"integer","description":"minimum: 1"}},"required":[],"additionalProperties":false}},
		"required":["`+wire+`"],"additionalProperties":false}}`)
	if _, args := set.Own("f", `{"`+wire+`":"x","o":null}`); args != `{"u$":"x","o":null}` {
		t.Errorf("read as %s", args)
	}
	recursive := `{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}}`
	if got := one(t, export.Anthropic, recursive, export.WithStrict(true)); got["strict"] != false {
		t.Errorf("a recursive schema is strict: %v", got)
	}
}

// The root is one object that takes what any of its forms takes.
//
// case: exp-04-anthropic-root-union
func TestRootsThatProvidersRefuse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ schema, want, says string }{
		"tags":       {`{"oneOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"string"}},"required":["kind","x"]},{"properties":{"kind":{"const":"b"},"x":{"type":"integer"}},"required":["kind"]}]}`, `{"type":"object","properties":{"kind":{"type":"string","enum":["a","b"]},"x":{"anyOf":[{"type":"string"},{"type":"integer"}]}},"required":["kind"]}`, "exactly one of these: kind + x; kind"},
		"allOf":      {`{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"$ref":"#/$defs/b"}],"$defs":{"b":{"properties":{"b":{"type":"string"}},"required":["b"]}}}`, `{"type":"object","$defs":{"b":{"properties":{"b":{"type":"string"}},"required":["b"]}},"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}`, ""},
		"reference":  {`{"$ref":"#/definitions/a","definitions":{"a":{"type":"object","description":"says","properties":{"a":{"$ref":"#/definitions/a"}}}}}`, `{"type":"object","definitions":{"a":{"type":"object","description":"says","properties":{"a":{"$ref":"#/definitions/a"}}}},"description":"says","properties":{"a":{"$ref":"#/definitions/a"}}}`, ""},
		"into forms": {`{"anyOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"b":{"$ref":"#/anyOf/0/properties/a"}}}]}`, `{"type":"object","$defs":{"moved":{"type":"string"}},"properties":{"a":{"type":"string"},"b":{"$ref":"#/$defs/moved"}}}`, ""},
		"closed":     {`{"anyOf":[{"properties":{"a":{"type":"string"}},"additionalProperties":false},{"properties":{"b":{"type":"string"}},"additionalProperties":false}]}`, `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"additionalProperties":false}`, ""},
		"refused":    {`{"type":"object","not":{"required":["a"]},"enum":[{"a":1}],"const":{}}`, `{"type":"object","properties":{}}`, ""},
	} {
		for _, f := range []export.Format{export.OpenAI, export.Anthropic, export.Gemini, export.Vercel} {
			got := one(t, f, tt.schema)
			same(t, name, schemaOf(got), tt.want)
			if !strings.Contains(text(t, got["description"]), tt.says) {
				t.Errorf("%s: description %v", name, got["description"])
			}
		}
	}
}

// contract: W24
func TestGeminiParameters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ schema, want string }{
		"number bounds":     {`{"n":{"type":"number","exclusiveMinimum":1,"multipleOf":2}}`, `{"n":{"type":"number","minimum":1,"description":"exclusiveMinimum: 1 (multipleOf: 2)"}}`},
		"formats":           {`{"a":{"type":"string","format":"date-time"},"b":{"type":"string","format":"uri"}}`, `{"a":{"type":"string","format":"date-time"},"b":{"type":"string","description":"format: uri"}}`},
		"allOf":             {`{"o":{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"integer"}}}]},"s":{"allOf":[{"type":"string"},{"minLength":1}]}}`, `{"o":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"]},"s":{"type":"string","minLength":1}}`},
		"a union by a type": {`{"u":{"type":"string","anyOf":[{"pattern":"a"},{"pattern":"b"}]}}`, `{"u":{"anyOf":[{"type":"string","pattern":"a"},{"type":"string","pattern":"b"}]}}`},
		"one form":          {`{"u":{"description":"d","oneOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]}}`, `{"u":{"type":"array","items":{"type":"string"},"nullable":true,"description":"d"}}`},
		"mixed enum":        {`{"e":{"enum":["a",1,true,null]}}`, `{"e":{"anyOf":[{"type":"string","enum":["a"],"nullable":true},{"type":"integer","format":"enum","enum":["1"],"nullable":true},{"type":"boolean","nullable":true,"description":"one of [true]"}]}}`},
	} {
		same(t, name, at(one(t, export.GeminiParameters, `{"type":"object","properties":`+tt.schema+`}`), "parameters", "properties"), tt.want)
	}
	for why, schema := range map[string]string{
		"it takes values of any type": `{"properties":{"x":{}}}`, "it refers to itself": `{"properties":{"x":{"$ref":"#"}}}`,
		"it has a reference that leads nowhere": `{"properties":{"x":{"$ref":"#/$defs/x"}}}`, "it has a place that takes no value": `{"properties":{"x":false}}`,
		"it has a property name that may not stand there": `{"properties":{"x":{"type":"object","properties":{"a-b":{"type":"string"}}}}}`,
	} {
		set := mustExport(t, export.GeminiParameters, []export.Tool{tool("f", schema)})
		if got := list(t, export.GeminiParameters, set)[0]; got["parametersJsonSchema"] == nil || got["parameters"] != nil || !strings.Contains(text(t, set.Notes()), why) {
			t.Errorf("%s: %v, notes %v", why, got, set.Notes())
		}
	}
	if got := one(t, export.GeminiParameters, ``); len(got) != 2 {
		t.Errorf("a tool without parameters: %v", got)
	}
}
