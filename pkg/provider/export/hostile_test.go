package export_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// bomb writes a schema whose definitions refer to the next one twice, by what
// stands around the references.
func bomb(levels int, around string) string {
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range levels {
		fmt.Fprintf(&b, `"d%d":`, i)
		b.WriteString(strings.ReplaceAll(around, "NEXT", fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)) + ",")
	}
	fmt.Fprintf(&b, `"d%d":{"type":"string"}}}`, levels)
	return b.String()
}

func hostile() map[string]string {
	wide := strings.Repeat(`{"$ref":"#"},`, 1500)
	return map[string]string{
		"properties":    bomb(60, `{"type":"object","properties":{"a":NEXT,"b":NEXT}}`),
		"allOf":         bomb(60, `{"allOf":[NEXT,NEXT]}`),
		"anyOf":         bomb(60, `{"anyOf":[NEXT,NEXT]}`),
		"objects":       bomb(60, `{"type":"object","allOf":[NEXT,NEXT],"properties":{"a":NEXT}}`),
		"root allOf":    `{"$ref":"#/$defs/d0",` + bomb(60, `{"allOf":[NEXT,NEXT]}`)[1:],
		"root union":    `{"oneOf":[{"$ref":"#/$defs/d0"},{"$ref":"#/$defs/d1"}],` + bomb(60, `{"anyOf":[NEXT,NEXT],"properties":{"a":NEXT}}`)[1:],
		"itself":        `{"$ref":"#"}`,
		"two":           `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"wide":          `{"anyOf":[` + wide + `{}]}`,
		"wide objects":  `{"type":"object","properties":{"x":{"type":"object","allOf":[` + wide + `{}]}}}`,
		"wide in wide":  `{"allOf":[` + wide + `{"properties":{"x":{"allOf":[` + wide + `{}]}}}]}`,
		"deep":          strings.Repeat(`{"properties":{"a":`, 31) + `{}` + strings.Repeat(`}}`, 31),
		"deep union":    strings.Repeat(`{"anyOf":[{"type":"null"},`, 31) + `{}` + strings.Repeat(`]}`, 31),
		"nowhere":       `{"properties":{"a":{"$ref":"https://example.com/x"},"b":{"$ref":"#/nowhere"},"c":{"$ref":"#anchor"},"d":{"$ref":7}}}`,
		"into a tuple":  `{"properties":{"a":{"items":[{"type":"string"}],"type":"array"},"b":{"$ref":"#/properties/a/items/0"}}}`,
		"into a union":  `{"anyOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"b":{"$ref":"#/anyOf/0/properties/a"}}}]}`,
		"odd shapes":    `{"properties":[],"required":{},"anyOf":{},"allOf":7,"$defs":"x","type":{},"enum":{},"items":[]}`,
		"odd parts":     `{"allOf":[null,7,"x",[],false],"properties":{"a":null,"b":7,"c":[],"d":false}}`,
		"tuple":         `{"properties":{"a":{"type":"array","items":[{"type":"string"},{}],"additionalItems":false}}}`,
		"of old drafts": `{"properties":{"a":{"type":"number","minimum":1,"exclusiveMinimum":true},"b":{"maximum":3,"exclusiveMaximum":false}}}`,
	}
}

// maxOutput bounds what one schema becomes: itself, and what was copied into it.
const maxOutput = 1 << 20

func checkHostile(t *testing.T, schema, arguments string) {
	t.Helper()
	for _, f := range export.Formats() {
		for _, opts := range [][]export.Option{nil, {export.WithStrict(true)}} {
			set, err := export.Export(f, []export.Tool{tool("f", schema)}, opts...)
			if err != nil {
				if c := frames.CodeOf(err); c != frames.CodeValidationInput && c != frames.CodeTooLarge {
					t.Fatalf("%s: %v", f, err)
				}
				continue
			}
			out := set.JSON()
			if !json.Valid(out) || len(out) > maxOutput {
				t.Fatalf("%s: %d bytes: %.500s", f, len(out), out)
			}
			_, wire := set.Wire("f", arguments)
			_, own := set.Own("f", wire)
			if json.Valid([]byte(arguments)) != json.Valid([]byte(own)) {
				t.Fatalf("%s: %s is read as %s", f, arguments, own)
			}
		}
	}
}

func TestHostileSchemas(t *testing.T) {
	t.Parallel()
	for name, schema := range hostile() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkHostile(t, schema, `{"x":null,"a":{"a":null}}`) // a bomb that goes off ends no test
		})
	}
}

func TestSchemasThatAreNone(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON": `{"type":`, "a word": `"x"`, "nothing fits": `false`, "a list": `[]`,
		"deep": strings.Repeat(`{"not":`, 80) + `{}` + strings.Repeat(`}`, 80),
	} {
		_, err := export.Export(export.OpenAI, []export.Tool{tool("first", ""), tool("bad one", text)})
		e := frames.AsError(err)
		if e == nil || e.Code != frames.CodeValidationInput || !strings.Contains(e.Message, "tool bad one: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := export.Export(export.OpenAI, []export.Tool{tool("f", `{"description":"`+strings.Repeat("x", frames.MaxSchema)+`"}`)})
	if frames.CodeOf(err) != frames.CodeTooLarge {
		t.Errorf("a long schema: %v", err)
	}
	for _, names := range [][]string{{""}, {"a", "b", "a"}} {
		if _, err := export.Export(export.MCP, tools(names...)); frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("%q: %v", names, err)
		}
	}
	if _, err := export.Export("yaml", nil); frames.CodeOf(err) != frames.CodeValidationInput || !strings.Contains(err.Error(), "openai-strict") {
		t.Errorf("an unknown format: %v", err)
	}
}

// A union that looks alike at every level is read back without trying all ways.
func TestHostileArguments(t *testing.T) {
	t.Parallel()
	form := `{"type":"object","properties":{"next":{"$ref":"#/$defs/u"},"n":{"type":"string"}},"required":["next"]}`
	schema := `{"type":"object","properties":{"u":{"$ref":"#/$defs/u"}},"$defs":{"u":{"anyOf":[` + form + `,` + form + `,{"type":"integer"}]}}}`
	arguments := `{"u":` + strings.Repeat(`{"n":null,"next":`, 60) + `true` + strings.Repeat(`}`, 60) + `}`
	checkHostile(t, schema, arguments)
	good := strings.Replace(arguments, "true", "7", 1)
	if got := export.Arguments(json.RawMessage(schema), good); strings.Contains(got, "null") || !strings.Contains(got, "7") {
		t.Errorf("read as %s", got)
	}
}

func FuzzExport(f *testing.F) {
	for _, schema := range hostile() {
		f.Add(schema, `{"a":null}`)
	}
	f.Add(`{"type":"object","properties":{"$top":{"type":["integer","null"],"enum":[1,null]}}}`, `{"$top":null,"x":1.0}`)
	f.Fuzz(func(t *testing.T, schema, arguments string) { checkHostile(t, schema, arguments) })
}
