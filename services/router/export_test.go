package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider/export"
	"github.com/weavebus/weavebus/pkg/tool"
)

// exported asks in JSON and gives the DATA frames.
func (w *world) exported(content string) []frames.Frame {
	w.t.Helper()
	all := w.list(`{"type":"DESCRIBE","content":` + content + `}`)
	for i := range all {
		if all[i].Type == frames.TypeError {
			w.t.Fatalf("%s: %v", content, all[i].Err())
		}
	}
	last := len(all) - 1
	want(w.t, "the end", all[last].Type, frames.TypeEnd)
	return all[:last]
}

// What cannot be called is in no export.
//
// contract: W26, S35, B29
func TestExportOnTheBus(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		want(t, "listed", names(w.list(`{"type":"DESCRIBE"}`)), []string{"7up", "echo", "loads"})
		all := w.exported(`{"export":"vercel"}`)
		want(t, "frames", len(all), 1)
		tools, err := all[0].Content.Payload("result")
		want(t, "readable", err, nil)
		want(t, "vercel", string(tools), `{"7up":{"description":"Tool: 7up","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}},`+
			`"echo":{"description":"Tool: echo","inputSchema":{"type":"object","properties":{},"required":[]}}}`)

		all = w.exported(`{"export":"gemini","tools":["7*"]}`)
		tools, _ = all[0].Content.Payload("result")
		for wire, own := range all[0].Content.Lookup("names").Pairs() {
			name, _ := own.Text()
			want(t, "own name", name, "7up")
			if !strings.Contains(string(tools), `[{"functionDeclarations":[{"name":"`+wire+`"`) || !strings.HasPrefix(wire, "_7up_x") {
				t.Errorf("tools %s", tools)
			}
		}
		annotations, _ := all[0].Content.Lookup("annotations").JSON()
		want(t, "annotations", string(annotations), `{"7up":{"readOnly":true}}`)

		for _, content := range []string{`{"export":"mcp","tools":["none"]}`, `{"export":"openai-strict","tools":["none"]}`} {
			tools, _ = w.exported(content)[0].Content.Payload("result")
			want(t, content, string(tools), `[]`)
		}
		exported := func() string {
			tools, _ := w.exported(`{"export":"vercel","tools":["e*"]}`)[0].Content.Payload("result")
			return string(tools)
		}
		for _, order := range []string{"disable", "retire"} {
			w.order(order, `{"tool":"echo"}`)
			want(t, order, exported(), `{}`)
			w.order("enable", `{"tool":"echo"}`)
			if !strings.Contains(exported(), `"echo"`) {
				t.Errorf("enabled after %s: %s", order, exported())
			}
		}
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "echo"}, gives(`{}`)))
		w.serve("b", set(w.t, frames.Declaration{
			Name: "7up", Annotations: frames.Annotations{ReadOnly: true},
			Schema: []byte(`{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}`),
		}, gives(`{}`)))
		local := w.bus("local")
		f := frames.Description(&frames.Declaration{Name: "loads", Schema: []byte(`{"$ref":"file:///etc/passwd"}`)})
		if err := local.Publish(context.Background(), "wb.announce.local.c.loads", frames.Msgpack, &f); err != nil {
			w.t.Fatal(err)
		}
		w.flush(local.NATS())
	})
}

func TestExportThatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for content, code := range map[string]frames.Code{
			`{"export":"yaml"}`: frames.CodeValidationInput, `{"export":7}`: frames.CodeValidationInput,
			`{"export":"mcp","tools":["["]}`: frames.CodeValidationInput, `{"export":"mcp","tools":[7]}`: frames.CodeValidationInput,
			`{"export":"openai"}`: frames.CodeTooLarge, `{"export":"mcp","strict":"yes"}`: frames.CodeValidationInput,
		} {
			want(t, content, frames.CodeOf(w.list(`{"type":"DESCRIBE","content":` + content + `}`)[0].Err()), code)
		}
		want(t, "a name", frames.CodeOf(w.list(`{"type":"DESCRIBE","name":"nosuch","content":{"export":"mcp"}}`)[0].Err()), frames.CodeNotFound)
		tools, _ := w.exported(`{"export":"openai","tools":["tool-0?"]}`)[0].Content.Payload("result")
		want(t, "chosen", strings.Count(string(tools), `"name"`), 10)
	}, func(w *world) {
		s := tool.NewSet("many")
		for i := range 129 {
			add(w.t, s, frames.Declaration{Name: fmt.Sprintf("tool-%02d", i)}, gives(`{}`))
		}
		w.serve("a", s)
	})
}

// A long export comes in parts, which the client puts together.
func TestLongExport(t *testing.T) {
	const tools = 20
	inBubble(t, func(t *testing.T, w *world) {
		if parts := w.exported(`{"export":"anthropic"}`); len(parts) < 3 {
			t.Errorf("%d parts", len(parts))
		}
		for _, f := range []export.Format{export.Anthropic, export.Gemini, export.Vercel} {
			x, err := client.New(w.bus("me")).Export(t.Context(), f, client.ExportStrict(true))
			if err != nil || !json.Valid(x.Tools) {
				t.Fatalf("%s: %v", f, err)
			}
			want(t, string(f), strings.Count(string(x.Tools), "tool-"), tools)
			if f == export.Anthropic {
				want(t, "notes", len(x.Notes), tools)
			}
		}
	}, func(w *world) {
		s := tool.NewSet("many")
		for i := range tools {
			schema := fmt.Sprintf(`{"type":"object","additionalProperties":true,"description":%q}`, strings.Repeat("x", 60<<10))
			add(w.t, s, frames.Declaration{Name: fmt.Sprintf("tool-%02d", i), Description: "d", Schema: []byte(schema)}, gives(`{}`))
		}
		w.serve("a", s)
	})
}

// A call of what was exported comes to the tool in its own terms.
//
// contract: B28
// case: arg-14-null-for-optional, exp-06-anthropic-property-keys
func TestCallOfAnExportedTool(t *testing.T) {
	const schema = `{"type":"object","properties":{"filter[id]":{"type":"string"},"n":{"type":["integer","null"]},"limit":{"type":"integer"}},"required":["filter[id]"]}`
	inBubble(t, func(t *testing.T, w *world) {
		said := func(args, format string) string {
			_, res := w.call("echo", args, `"metadata":{"exported":"`+format+`"}`).result()
			if res.Err != nil {
				return string(res.Err.Code)
			}
			return string(res.Result)
		}
		want(t, "strict", said(`{"limit":null,"n":null,"filter[id]":"a"}`, "openai-strict"), `{"n":null,"filter[id]":"a"}`)
		want(t, "not strict", said(`{"limit":null,"n":null,"filter[id]":"a"}`, "openai"), string(frames.CodeValidationInput))
		tools, _ := w.exported(`{"export":"anthropic"}`)[0].Content.Payload("result")
		_, key, _ := strings.Cut(string(tools), `"required":["`)
		key, _, _ = strings.Cut(key, `"`)
		if key == "filter[id]" {
			t.Errorf("exported as %s", tools)
		}
		for _, format := range []string{"yaml", ""} {
			want(t, "of no format: "+format, said(`{"filter[id]":"a"}`, format), string(frames.CodeValidationInput))
		}
		want(t, "keys", said(`{"`+key+`":"a","limit":1}`, "anthropic"), `{"filter[id]":"a","limit":1}`)
	}, func(w *world) {
		echo := func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
			return &frames.ToolResult{Result: c.Arguments}, nil
		}
		w.serve("a", set(w.t, frames.Declaration{Name: "echo", Schema: []byte(schema)}, echo))
	})
}
