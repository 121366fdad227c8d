package export_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/provider/export"
)

// gen draws schemas, and instances of exported ones.
type gen struct {
	*rapid.T

	open bool // draw what cannot be strict too
}

func (g gen) pick(label string, n int) int { return rapid.IntRange(0, n-1).Draw(g.T, label) }

func (g gen) bool(label string) bool { return rapid.Bool().Draw(g.T, label) }

// schema draws the schema of a value.
func (g gen) schema(depth int) map[string]any {
	kinds := 8
	if depth == 0 {
		kinds = 5
	}
	if g.open {
		kinds += 4
	}
	s := g.kind(depth, g.pick("kind", kinds))
	if g.bool("described") {
		s["description"] = "says <what> & why"
	}
	return s
}

func (g gen) kind(depth, kind int) map[string]any {
	if g.open && kind >= 5 && depth == 0 {
		kind += 3
	}
	switch kind {
	case 0:
		return g.nullable(map[string]any{"type": "string"})
	case 1:
		return g.nullable(map[string]any{"type": "integer", "minimum": 0, "maximum": 9})
	case 2:
		return g.nullable(map[string]any{"enum": []any{"x", "y"}, "type": "string"})
	case 3:
		return map[string]any{"const": "z"}
	case 4:
		return map[string]any{"$ref": "#/$defs/" + []string{"leaf", "tree", "maybe"}[g.pick("ref", 3)]}
	case 5:
		return g.nullable(map[string]any{"type": "array", "items": g.schema(depth - 1), "maxItems": 3})
	case 6:
		return g.nullable(g.object(depth - 1))
	case 7:
		return map[string]any{[]string{"anyOf", "oneOf"}[g.pick("union", 2)]: g.forms(depth - 1)}
	}
	return []map[string]any{
		{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
		{}, {"type": "array"}, {"not": map[string]any{"type": "string"}, "type": []any{"string", "boolean"}},
	}[kind-8]
}

// forms draws forms that are told apart by a tag, or by their type.
func (g gen) forms(depth int) []any {
	var out []any
	for i := range 1 + g.pick("forms", 3) {
		form := g.closed(depth)
		object(form["properties"])["tag"] = map[string]any{"const": fmt.Sprint("form", i)}
		required, _ := form["required"].([]any)
		form["required"] = append(required, "tag")
		out = append(out, form)
	}
	if g.bool("scalar") {
		out = append(out, map[string]any{"type": "integer"})
	}
	if g.bool("null") {
		out = append(out, map[string]any{"type": "null"})
	}
	return out
}

func (g gen) nullable(s map[string]any) map[string]any {
	if g.pick("nullable", 4) == 0 && s["type"] != nil {
		s["type"] = []any{s["type"], "null"}
		if list, ok := s["enum"].([]any); ok && g.bool("null in enum") {
			s["enum"] = append(list, nil)
		}
	}
	return s
}

// closed draws an object without combinations.
func (g gen) closed(depth int) map[string]any {
	props, required := map[string]any{}, []any{}
	for _, name := range []string{"a", "b", "c$", "d e"}[:g.pick("properties", 5)] {
		props[name] = g.schema(max(depth, 0))
		if g.bool("required") {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": props, "required": required, "additionalProperties": false}
}

func (g gen) object(depth int) map[string]any {
	s := g.closed(depth)
	if g.open && g.bool("allOf") {
		delete(s, "additionalProperties")
		more := map[string]any{"type": "object", "properties": map[string]any{"more": g.schema(0)}}
		return map[string]any{"allOf": []any{s, more}}
	}
	return s
}

// root draws the schema of arguments.
func (g gen) root() string {
	s := g.closed(3)
	s["$defs"] = map[string]any{
		"leaf":  map[string]any{"type": "string", "maxLength": 4},
		"maybe": map[string]any{"type": []any{"boolean", "null"}},
		"tree": map[string]any{"type": "object", "properties": map[string]any{
			"v": map[string]any{"type": "string"}, "kids": map[string]any{"type": "array", "items": map[string]any{"$ref": "#/$defs/tree"}},
		}, "required": []any{"v"}},
	}
	out, err := json.Marshal(s)
	if err != nil {
		g.Fatal(err)
	}
	return string(out)
}

// instance draws a value that fits a schema of the drawn kinds.
func (g gen) instance(root, s map[string]any, depth int) any {
	if ref, ok := s["$ref"].(string); ok {
		return g.instance(root, object(at(root, "$defs", strings.TrimPrefix(ref, "#/$defs/"))), depth)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if forms, ok := s[key].([]any); ok {
			return g.instance(root, object(forms[g.pick("form", len(forms))]), depth)
		}
	}
	if all, ok := s["allOf"].([]any); ok {
		out := map[string]any{}
		for _, part := range all {
			maps.Copy(out, object(g.instance(root, object(part), depth)))
		}
		return out
	}
	if v, ok := s["const"]; ok {
		return v
	}
	if list, ok := s["enum"].([]any); ok {
		return list[g.pick("value", len(list))]
	}
	types, ok := s["type"].([]any)
	if !ok {
		types = []any{s["type"]}
	}
	switch types[g.pick("type", len(types))] {
	case "string":
		return []string{"", "null", "q\"<", "ä"}[g.pick("string", 4)]
	case "integer":
		return g.pick("integer", 10)
	case "boolean":
		return g.bool("boolean")
	case "array":
		return g.items(root, s, depth)
	case "object":
		return g.members(root, s, depth)
	}
	return nil
}

func (g gen) items(root, s map[string]any, depth int) any {
	out := []any{}
	if depth > 0 {
		for range g.pick("items", 3) {
			out = append(out, g.instance(root, object(s["items"]), depth-1))
		}
	}
	return out
}

func (g gen) members(root, s map[string]any, depth int) any {
	out := map[string]any{}
	required, _ := s["required"].([]any)
	for name, sub := range object(s["properties"]) {
		if slices.Contains(required, any(name)) || g.bool("given") {
			out[name] = g.instance(root, object(sub), depth-1)
		}
	}
	return out
}

// What fits the strict schema fits the tool's own once it is read back, and what
// fits the tool's own has a form that fits the strict one.
//
// contract: B28, W22
func TestStrictIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		g := gen{T: rt}
		own := g.root()
		set := mustExport(t, export.OpenAIStrict, []export.Tool{tool("f", own)})
		exported := list(t, export.OpenAIStrict, set)[0]
		if exported["strict"] != true {
			rt.Fatalf("not strict: %v\n%s", set.Notes(), own)
		}
		closed := text(t, exported["parameters"])
		isStrict(rt, exported["parameters"])
		given := text(t, g.instance(object(exported["parameters"]), object(exported["parameters"]), 6))
		if !accepts(t, closed, given) {
			rt.Fatalf("the test's own instance is wrong: %s\n%s", given, closed)
		}
		_, back := set.Own("f", given)
		if !accepts(t, own, back) {
			rt.Fatalf("%s\nread back as %s\ndoes not fit %s\nexported as %s", given, back, own, closed)
		}
		if again := export.Arguments(json.RawMessage(own), back); again != back {
			rt.Fatalf("%s is read back again as %s", back, again)
		}
		ownValue := text(t, g.instance(object(value(t, []byte(own))), object(value(t, []byte(own))), 6))
		if _, kept := set.Own("f", ownValue); accepts(t, own, ownValue) && !accepts(t, own, kept) {
			rt.Fatalf("%s fits, and is read back as %s", ownValue, kept)
		}
	})
}

// isStrict proves the rules of a strict schema.
func isStrict(t *rapid.T, v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			isStrict(t, item)
		}
	case map[string]any:
		if props := object(v["properties"]); props != nil && v["type"] != nil {
			required, _ := v["required"].([]any)
			if v["additionalProperties"] != false || len(required) != len(props) {
				t.Fatalf("an object is open: %v", v)
			}
		}
		for _, key := range []string{"oneOf", "allOf", "not"} {
			if v[key] != nil {
				t.Fatalf("%s stands in %v", key, v)
			}
		}
		for _, sub := range v {
			isStrict(t, sub)
		}
	}
}

// What fits a tool's own schema fits each export: an export never says more.
//
// contract: W22, W23, W24, W25
func TestExportsTakeWhatTheToolTakes(t *testing.T) {
	t.Parallel()
	formats := []export.Format{export.OpenAI, export.OpenAIResponses, export.Anthropic, export.Gemini, export.GeminiParameters, export.Vercel, export.MCP}
	rapid.Check(t, func(rt *rapid.T) {
		g := gen{T: rt, open: true}
		own := g.root()
		root := object(value(t, []byte(own)))
		for _, f := range formats {
			set := mustExport(t, f, []export.Tool{tool("f", own)})
			exported := list(t, f, set)[0]
			if again := mustExport(t, f, []export.Tool{tool("f", own)}); string(again.JSON()) != string(set.JSON()) {
				rt.Fatalf("%s: two exports differ", f)
			}
			if exported["parameters"] != nil && f == export.GeminiParameters {
				isSubset(rt, exported["parameters"])
				continue
			}
			if schemaOf(exported) == nil {
				continue
			}
			given := text(t, g.instance(root, root, 4))
			if !accepts(t, own, given) {
				continue
			}
			name, wire := set.Wire("f", given)
			if !accepts(t, text(t, schemaOf(exported)), wire) {
				rt.Fatalf("%s: %s fits %s but not %v", f, given, own, schemaOf(exported))
			}
			if _, back := set.Own(name, wire); back != wire && back != given {
				rt.Fatalf("%s: %s comes back as %s", f, given, back)
			}
		}
	})
}

// isSubset proves that a schema holds nothing that Gemini's parameters refuse.
func isSubset(t *rapid.T, v any) {
	m := object(v)
	known := []string{
		"type", "properties", "required", "items", "enum", "format", "nullable", "description", "title", "default", "pattern",
		"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minimum", "maximum",
	}
	if forms, ok := m["anyOf"].([]any); ok {
		if len(m) != 1 {
			t.Fatalf("beside anyOf stands something: %v", m)
		}
		for _, form := range forms {
			isSubset(t, form)
		}
		return
	}
	for key := range m {
		if !slices.Contains(known, key) {
			t.Fatalf("%s stands in %v", key, m)
		}
	}
	if _, ok := m["type"].(string); !ok || m["type"] == "array" && m["items"] == nil {
		t.Fatalf("no type, or no items: %v", m)
	}
	for _, sub := range object(m["properties"]) {
		isSubset(t, sub)
	}
	if m["items"] != nil {
		isSubset(t, m["items"])
	}
}

// Names have one form each, which maps back, whatever other tools there are.
//
// contract: W27
func TestNamesAreBijective(t *testing.T) {
	t.Parallel()
	drawn := rapid.OneOf(
		rapid.String(), rapid.StringMatching(`[a-z._/ -]{1,80}`), rapid.StringMatching(`a_x[0-9a-f]{10}`),
		rapid.StringMatching(`[0-9.-][a-z]{0,3}`), rapid.SampledFrom([]string{"a.b", "a_b", "a b", "搜索", "tool", "_", "__proto__"}),
	).Filter(func(s string) bool { return s != "" })
	rapid.Check(t, func(rt *rapid.T) {
		own := rapid.SliceOfNDistinct(drawn, 1, 20, rapid.ID).Draw(rt, "names")
		f := rapid.SampledFrom(export.Formats()).Draw(rt, "format")
		names, err := export.NewNames(f, own)
		if err != nil {
			rt.Fatal(err)
		}
		seen := map[string]bool{}
		for _, name := range own {
			wire := names.Wire(name)
			back, ok := names.Own(wire)
			if seen[wire] || back != name || !ok {
				rt.Fatalf("%s: %q is %q, which is %q", f, name, wire, back)
			}
			seen[wire] = true
			alone, err := export.NewNames(f, []string{name})
			if err != nil || alone.Wire(name) != wire {
				rt.Fatalf("%s: %q is %q alone, %q among others", f, name, alone.Wire(name), wire)
			}
			fitsRule(rt, f, wire)
		}
		if err := duplicates(f, own); err == nil {
			rt.Fatal("a name stands twice, and nobody minds")
		}
	})
}

func duplicates(f export.Format, own []string) error {
	_, err := export.NewNames(f, append(slices.Clone(own), own[0]))
	return err
}

func fitsRule(t *rapid.T, f export.Format, wire string) {
	if f == export.Vercel {
		return
	}
	limit, extra := 64, "-"
	switch f {
	case export.MCP:
		limit, extra = 128, "-."
	case export.Gemini, export.GeminiParameters:
		extra = "-."
		if strings.ContainsAny(wire[:1], "0123456789-.") {
			t.Fatalf("%s: %q", f, wire)
		}
	}
	letters := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_" + extra
	if wire == "" || len(wire) > limit || strings.Trim(wire, letters) != "" {
		t.Fatalf("%s: %q", f, wire)
	}
}
