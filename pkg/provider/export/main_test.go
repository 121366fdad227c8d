package export_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tool makes a tool of a schema.
func tool(name, text string) export.Tool {
	return export.Tool{Tool: provider.Tool{Name: name, Description: "d", Schema: json.RawMessage(text)}}
}

func tools(names ...string) []export.Tool {
	out := make([]export.Tool, len(names))
	for i, name := range names {
		out[i] = tool(name, "")
	}
	return out
}

func mustExport(t testing.TB, f export.Format, list []export.Tool, opts ...export.Option) *export.Set {
	t.Helper()
	set, err := export.Export(f, list, opts...)
	if err != nil {
		t.Fatalf("%s: %v", f, err)
	}
	if !json.Valid(set.JSON()) {
		t.Fatalf("%s: not JSON: %s", f, set.JSON())
	}
	return set
}

// one exports one tool and gives what stands in the list.
func one(t testing.TB, f export.Format, text string, opts ...export.Option) map[string]any {
	t.Helper()
	return list(t, f, mustExport(t, f, []export.Tool{tool("f", text)}, opts...))[0]
}

// list gives a set's tools, each without the wrapping of its format.
func list(t testing.TB, f export.Format, set *export.Set) []map[string]any {
	t.Helper()
	var out []map[string]any
	switch v := value(t, set.JSON()).(type) {
	case map[string]any:
		for name, x := range v {
			m := object(x)
			m["name"] = name
			out = append(out, m)
		}
	case []any:
		for _, x := range v {
			switch m := object(x); {
			case m["function"] != nil:
				out = append(out, object(m["function"]))
			case m["functionDeclarations"] != nil:
				for _, d := range m["functionDeclarations"].([]any) {
					out = append(out, object(d))
				}
			default:
				out = append(out, m)
			}
		}
	}
	if len(out) != set.Len() {
		t.Fatalf("%s: %d tools of %d: %s", f, len(out), set.Len(), set.JSON())
	}
	return out
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func value(t testing.TB, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// schemaOf gives the schema of an exported tool.
func schemaOf(m map[string]any) map[string]any {
	for _, key := range []string{"parameters", "input_schema", "inputSchema", "parametersJsonSchema"} {
		if s := object(m[key]); s != nil {
			return s
		}
	}
	return nil
}

// at walks into a generic value.
func at(v any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			v = object(v)[s]
		case int:
			items, _ := v.([]any)
			if s >= len(items) {
				return nil
			}
			v = items[s]
		}
	}
	return v
}

// same compares a generic value with JSON text.
func same(t testing.TB, what string, got any, want string) {
	t.Helper()
	if diff := cmp.Diff(value(t, []byte(want)), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func accepts(t testing.TB, schemaText, instance string) bool {
	t.Helper()
	s, err := schema.Compile([]byte(schemaText))
	if err != nil {
		t.Fatalf("%v: %s", err, schemaText)
	}
	return s.Validate([]byte(instance)) == nil
}

func text(t testing.TB, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
