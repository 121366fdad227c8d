package router_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

func (w *world) list(data string) []frames.Frame {
	w.t.Helper()
	return w.send(w.me, "wb.list.me", data).read()
}

func names(all []frames.Frame) []string {
	var out []string
	for _, f := range all {
		if f.Type == frames.TypeDescription {
			out = append(out, f.Name)
		}
	}
	return out
}

// contract: S24
func TestListOfEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all := w.list(`{"type":"DESCRIBE"}`)
		want(t, "tools", names(all), []string{"echo", "shout"})
		want(t, "instances", all[0].Metadata.Int("instances"), 2)
		keys, _ := all[0].Metadata.Get("keys").JSON()
		want(t, "keys", string(keys), `["one"]`)
		d, err := frames.DeclarationFrom(all[1].Content)
		want(t, "declaration", err, nil)
		want(t, "schema", string(d.Schema), `{"type":"object","x":9007199254740993}`)
	}, func(w *world) {
		for _, id := range []string{"a", "b"} {
			w.serve(id, set(w.t, frames.Declaration{Name: "echo", Keys: []string{"one"}}, gives(`{}`)))
		}
		w.plain("shout", `{"name":"shout","schema":{"type":"object","x":9007199254740993}}`, func(*nats.Msg) {})
	})
}

func TestListOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		want(t, "one", names(w.list(`{"type":"DESCRIBE","name":"echo"}`)), []string{"echo"})
		all := w.list(`{"type":"DESCRIBE","name":"ecko"}`)
		err := frames.AsError(all[0].Err())
		want(t, "code", err.Code, frames.CodeNotFound)
		if !strings.Contains(err.LLMMessage, "Available tools: echo.") {
			t.Errorf("for a model: %s", err.LLMMessage)
		}
		want(t, "no name", frames.CodeOf(w.list(`{"type":"DESCRIBE","name":"a.b"}`)[0].Err()), frames.CodeNotFound)
	}, func(w *world) { w.serve("a", set(w.t, frames.Declaration{Name: "echo"}, gives(`{}`))) })
}

// contract: P24
func TestListOfNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all := w.list(`{"type":"DESCRIBE"}`)
		want(t, "frames", len(all), 1)
		for _, data := range []string{"", "\xc1", `{"type":"TEXT"}`, `{"type":"NEW"}`, `{"type":`} {
			all := w.list(data)
			if len(all) != 2 || frames.CodeOf(all[0].Err()) != frames.CodeBadFrame {
				t.Errorf("%q was answered %v", data, all)
			}
		}
	})
}

// A long list comes in messages of bounded size.
func TestLongList(t *testing.T) {
	const tools = 60
	inBubble(t, func(t *testing.T, w *world) {
		x := w.send(w.me, "wb.list.me", pack(t, frames.Describe("")))
		got := names(x.read())
		want(t, "tools", len(got), tools)
		want(t, "each once", len(slices.Compact(got)), tools)
		if len(x.raw) < 10 {
			t.Errorf("%d messages", len(x.raw))
		}
		for _, m := range x.raw {
			if len(m) > 512<<10 {
				t.Errorf("a message of %d bytes", len(m))
			}
		}
	}, func(w *world) {
		s := tool.NewSet("many")
		for i := range tools {
			schema := fmt.Sprintf(`{"type":"object","description":%q}`, strings.Repeat("x", 60<<10))
			add(w.t, s, frames.Declaration{Name: fmt.Sprintf("tool-%02d", i), Schema: []byte(schema)}, gives(`{}`))
		}
		w.serve("a", s)
	})
}

// What cannot be called is in the list, with the reason; one that cannot even be
// read hides nothing.
//
// contract: S24, P8, B47
func TestRefusedToolsInAList(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		tools, err := client.New(w.bus("me")).Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, tool := range tools {
			code := "fine"
			if tool.Refused != nil {
				code = string(tool.Refused.Code)
			}
			got[tool.Name+" of "+tool.Identity] = code
		}
		want(t, "tools", got, map[string]string{
			"echo of local": "fine", "echo of you": "CONFLICT", "loads of local": "VALIDATION_INPUT", "long of local": "TOO_LARGE",
		})
		refused := w.call("loads", `{}`).failure(frames.CodeUnavailable)
		want(t, "reason", refused.Reason, "bad_schema")
		want(t, "retryable", refused.Retryable, false)
		refused = w.call("long", `{}`).failure(frames.CodeUnavailable)
		want(t, "reason", refused.Reason, "bad_declaration")
		want(t, "retryable", refused.Retryable, false)
		want(t, "place", refused.Issues[0].Path, "/description")
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "echo"}, gives(`{}`)))
		local, you := w.bus("local"), w.bus("you")
		for _, d := range []*frames.Declaration{
			{Name: "loads", Schema: []byte(`{"$ref":"file:///etc/passwd"}`)}, {Name: "long", Description: strings.Repeat("x", 5000)},
		} {
			f := frames.Description(d)
			if err := local.Publish(context.Background(), "wb.announce.local.b."+d.Name, frames.Msgpack, &f); err != nil {
				w.t.Fatal(err)
			}
		}
		f := frames.Description(&frames.Declaration{Name: "echo"})
		if err := you.Publish(context.Background(), "wb.announce.you.c.echo", frames.Msgpack, &f); err != nil {
			w.t.Fatal(err)
		}
		w.flush(local.NATS())
		w.flush(you.NATS())
	})
}
