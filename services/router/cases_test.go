package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// says calls a tool and wants the first issue to be so: "path: expected".
func (w *world) says(name, args, issue string) {
	w.t.Helper()
	_, res := w.call(name, args).result()
	got := "it fits"
	if res.Err != nil {
		got = string(res.Err.Code)
		if res.Err.Code == frames.CodeValidationInput && len(res.Err.Issues) > 0 {
			got = res.Err.Issues[0].Path + ": " + res.Err.Issues[0].Expected
		}
	}
	if got != issue {
		w.t.Errorf("%s %s: %q, want %q", name, args, got, issue)
	}
}

// Keys are a tool's own only letter by letter, whatever Go's decoder makes of them.
//
// case: arg-17-case-folded-keys
func TestKeysOfTypedToolsMatchExactly(t *testing.T) {
	type inner struct {
		ID string `json:"id"`
	}
	type in struct {
		Path string           `json:"path"`
		List []inner          `json:"list,omitempty"`
		ByID map[string]inner `json:"byId,omitempty"`
	}
	inBubble(t, func(t *testing.T, w *world) {
		for args, unknown := range map[string]string{
			`{"path":"a.txt","PATH":"b.txt","Path":"c.txt"}`: "PATH",
			`{"Path":"c.txt","path":"a.txt"}`:                "Path",
			`{"path":"a.txt","pa\u0054h":"b.txt"}`:           "paTh",
			`{"path":"a","list":[{"id":"1","ID":"2"}]}`:      "ID",
			`{"path":"a","byId":{"x":{"id":"1","Id":"2"}}}`:  "Id",
			`{"path":"a","BYID":{}}`:                         "BYID",
			`{"path":"a","paſh":"b"}`:                        "paſh",
		} {
			err := w.call("read", args).failure(frames.CodeValidationInput)
			if !strings.Contains(err.ForModel(), `"`+unknown+`"`) {
				t.Errorf("%s: %s", args, err.ForModel())
			}
		}
		_, res := w.call("read", `{"path":"a.txt","byId":{"ID":{"id":"1"},"id":{"id":"2"}}}`).result()
		want(t, "read", string(res.Result), `{"path":"a.txt","byId":{"ID":{"id":"1"},"id":{"id":"2"}}}`)
		_, res = w.call("open", `{"path":"a.txt","PATH":"b.txt","Path":"c.txt"}`).result()
		want(t, "a schema that leaves more keys open", string(res.Result), `"a.txt"`)
	}, func(w *world) {
		s := tool.NewSet("test")
		if err := tool.Add(s, "read", func(_ context.Context, i in) (in, error) { return i, nil }); err != nil {
			w.t.Fatal(err)
		}
		open := func(_ context.Context, i in) (string, error) { return i.Path, nil }
		if err := tool.Add(s, "open", open, tool.InputSchema(json.RawMessage(`{"type":"object"}`))); err != nil {
			w.t.Fatal(err)
		}
		w.serve("a", s)
	})
}

// What does not fit is told by its place and by numbers as they were written.
//
// case: arg-19-bound-message, arg-21-oneof-branch
func TestIssuesOnTheBus(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := w.call("bound", `{"n":9007199254740993}`).failure(frames.CodeValidationInput)
		want(t, "path", err.Issues[0].Path, "/n")
		for _, number := range []string{"9007199254740992", "9007199254740993"} {
			if !strings.Contains(err.ForModel(), number) || !strings.Contains(err.Message, number) {
				t.Errorf("%s is not in %q", number, err.ForModel())
			}
		}
		w.says("bound", `{"m":-9007199254740993}`, "/m: at least -9007199254740992")
		w.says("bound", `{"a/b~":[1.10,1.05]}`, "/a~1b~0/1: a multiple of 0.1")
		w.says("bound", `{"n":9007199254740992,"m":-9007199254740992,"a/b~":[0.3]}`, "it fits")

		err = w.call("union", `{"k":"a","x":"1"}`).failure(frames.CodeValidationInput)
		want(t, "path", err.Issues[0].Path, "/x")
		want(t, "expected", err.Issues[0].Expected, "integer")
		if strings.Contains(err.ForModel(), `"y"`) {
			t.Errorf("the other branch is mentioned: %s", err.ForModel())
		}
		w.says("union", `{"k":"b","y":1}`, "/y: string")
		w.says("union", `{"k":"c"}`, `/k: one of "a", "b"`)
		w.says("nested", `{"l":[{"k":"a","x":1},{"k":"b","y":1}]}`, "/l/1/y: string")
		w.says("nested", `{"l":[{"y":1,"z":"2"}]}`, `/l/0/y: string`)
	}, func(w *world) {
		echo(w, "bound", `{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740992},
			"m":{"minimum":-9007199254740992},"a/b~":{"items":{"multipleOf":0.1}}}}`)
		const forms = `{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"]},
			{"type":"object","properties":{"k":{"const":"b"},"y":{"type":"string"}},"required":["k","y"]}`
		echo(w, "union", `{"oneOf":[`+forms+`]}`)
		echo(w, "nested", `{"type":"object","properties":{"l":{"items":{"anyOf":[`+forms+`,
			{"properties":{"y":{"type":"string"},"z":{"type":"string"}},"required":["y","z"]}]}}}}`)
	})
}

// A schema of an older draft is read as its author meant it.
//
// case: arg-24-old-drafts
func TestSchemasOfOldDraftsAreRegistered(t *testing.T) {
	schemas := []string{
		`{"type":"object","properties":{"n":{"type":"number","minimum":1,"exclusiveMinimum":true}}}`,
		`{"type":"object","properties":{"t":{"type":"array","items":[{"type":"string"},{"type":"integer"}]}}}`,
		`{"type":"object","properties":{"x":{"$ref":"#/definitions/A"}},"definitions":{"A":{"type":"string"}}}`,
		`{"type":"object","properties":{"n":{"maximum":5,"exclusiveMaximum":true},"t":{"items":[{}],"additionalItems":false}}}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://x.test/s","type":"object","properties":{"n":{"minimum":0,"exclusiveMinimum":true}}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema","type":"object","dependencies":{"a":["b"]}}`,
		`{"type":"object","dependencies":{"a":{"required":["b"]}}}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"object","properties":{"t":{"items":[{"type":"string"}]}}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/definitions/A"},"n":{"exclusiveMinimum":0}},"definitions":{"A":{"minimum":1,"exclusiveMinimum":true}}}`,
	}
	inBubble(t, func(t *testing.T, w *world) {
		if got := names(w.list(`{"type":"DESCRIBE"}`)); len(got) != len(schemas) {
			t.Errorf("listed %v", got)
		}
		for i, c := range []struct{ bad, good, at string }{
			{`{"n":1}`, `{"n":1.5}`, "/n: more than 1"},
			{`{"t":["a","b"]}`, `{"t":["a",1,null]}`, "/t/1: integer"},
			{`{"x":1}`, `{"x":"a"}`, "/x: string"},
			{`{"t":[1,2]}`, `{"t":[1],"n":4}`, "/t/1: nothing"},
			{`{"n":0}`, `{"n":1}`, "/n: more than 0"},
			{`{"a":1}`, `{"a":1,"b":1}`, `: property "b"`},
			{`{"a":1}`, `{"a":1,"b":1}`, `: property "b"`},
			{`{"t":[1]}`, `{"t":["a",1]}`, "/t/0: string"},
			{`{"a":1}`, `{"a":2,"n":1}`, "/a: more than 1"},
		} {
			w.says(fmt.Sprint("t", i), c.bad, c.at)
			w.says(fmt.Sprint("t", i), c.good, "it fits")
		}
	}, func(w *world) {
		for i, s := range schemas {
			echo(w, fmt.Sprint("t", i), s)
		}
	})
}

// A schema that refers to what is not in it is refused, and nothing is opened for
// it; a key or a value that only looks like a reference is none.
//
// case: arg-25-external-ref
func TestSchemasThatLoadAreNotCalled(t *testing.T) {
	refused := []string{
		`{"type":"object","properties":{"x":{"$ref":"file:///etc/hostname"}}}`, `{"$ref":"http://127.0.0.1:1/x"}`, `{"properties":{"x":{"$ref":"other.json"}}}`,
		`{"$id":"http://x.test/a/","properties":{"x":{"$ref":"b"}}}`, `{"$schema":"file:///etc/hostname"}`, `{"properties":{"x":{"$dynamicRef":"file:///etc/hostname#a"}}}`,
		`{"allOf":[{"if":{"not":{"$ref":"FILE:///etc/hostname"}}}]}`, `{"properties":{"x":{"$ref":"//host/x"}}}`, `{"properties":{"x":{"$ref":"data:application/json,{}"}}}`,
	}
	inBubble(t, func(t *testing.T, w *world) {
		for i := range refused {
			err := w.call(fmt.Sprint("bad", i), `{"x":"a"}`).failure(frames.CodeUnavailable)
			if err.Reason != "bad_schema" || err.Retryable || err.Effect != frames.EffectNone {
				t.Errorf("%s: %+v", refused[i], err)
			}
		}
		w.gets("looks", `{"$ref":"x"}`, `{"$ref":"x","d":{"$ref":"http://x/y"}}`)
		w.says("looks", `{"$ref":1}`, "/$ref: string")
		w.says("own", `{"x":1}`, "/x: string")
	}, func(w *world) {
		echo(w, "looks", `{"type":"object","properties":{"$ref":{"type":"string"},"c":{"const":{"$ref":"file:///x"}},"d":{"default":{"$ref":"http://x/y"}}},"examples":[{"$ref":"file:///x"}]}`)
		echo(w, "own", `{"$id":"http://x.test/a","$defs":{"b":{"$id":"b","type":"string"}},"properties":{"x":{"$ref":"b"}}}`)
		for i, s := range refused {
			name := fmt.Sprint("bad", i)
			w.plain(name, `{"name":"`+name+`","schema":`+s+`}`, func(*nats.Msg) { w.t.Errorf("%s was called", name) })
		}
	})
}

// Text that is no UTF-8, and half of a surrogate pair, are refused wherever they
// come in, and in whatever encoding.
//
// case: arg-28-lone-surrogate-and-bad-utf8
func TestBadTextIsRefusedEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bad := append(unhex(t, "7b2261223a225c7564383030227d", "7b2261223a22ff227d"), `{"\ud800":1}`, `{"a":["\ude00\ud83d"]}`, "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xc0\xaf\"}", `{"a":"\ud83d\ud83d\ude00"}`)
		for _, text := range bad {
			w.refuses("guarded", text, "invalid_utf8")
			w.call("guarded", text).failure(frames.CodeBadFrame) // a JSON frame is unreadable as a whole
		}
		tree := pack(t, frames.NewFrame(frames.TypeToolCall, map[string]any{"arguments": map[string]any{"a": "\xc3\xa4"}}))
		for _, bytes := range []string{"\xc3\xff", "\xc0\xaf"} {
			w.send(w.me, "wb.call.me.guarded", strings.Replace(tree, "\xc3\xa4", bytes, 1)).failure(frames.CodeBadFrame)
		}
		w.gets("echo", `{"a":"\uD83D\uDE00","b":"`+"\ufffd"+`","c":"\u0000"}`, `{"a":"\uD83D\uDE00","b":"`+"\ufffd"+`","c":"\u0000"}`)
	}, anything, guarded("guarded"))
}

// What msgpack can say and JSON cannot: the call is answered, and the place told.
//
// case: arg-29-infinity-arg
func TestNumbersThatJSONHasNot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, v := range []any{math.Inf(1), math.Inf(-1), math.NaN(), float32(math.Inf(1))} {
			for path, args := range map[string]any{
				"/limit": map[string]any{"limit": v}, "/a/1/b": map[string]any{"a": []any{1, map[string]any{"b": v}}}, "/k~1": map[string]any{"k/": v},
			} {
				f := frames.NewFrame(frames.TypeToolCall, map[string]any{"arguments": args})
				err := w.send(w.me, "wb.call.me.guarded", pack(t, f)).failure(frames.CodeValidationInput)
				if len(err.Issues) != 1 || err.Issues[0].Path != path || err.Effect != frames.EffectNone {
					t.Errorf("%v: %+v", args, err)
				}
			}
		}
		f := frames.NewFrame(frames.TypeToolCall, map[string]any{"arguments": map[string]any{"f": math.MaxFloat64, "i": int64(math.MinInt64), "u": uint64(math.MaxUint64)}})
		_, res := w.send(w.me, "wb.call.me.echo", pack(t, f)).result()
		got, err := frames.Decode([]byte(`{"type":"META","content":` + string(res.Result) + `}`))
		if err != nil {
			t.Fatal(err)
		}
		u, _ := got.Frames[0].Content.Lookup("u").JSON()
		want(t, "the largest numbers that it has", string(u), "18446744073709551615")
	}, anything, guarded("guarded"))
}

// A result that JSON cannot carry is told as the tool's fault, with the place; the
// call does not hang, and null stays null.
//
// case: res-01-nan
func TestResultsThatJSONHasNot(t *testing.T) {
	var answer string
	inBubble(t, func(t *testing.T, w *world) {
		for path, result := range map[string]any{
			"/mean": map[string]any{"mean": math.NaN(), "ok": 1}, "/max": map[string]any{"max": math.Inf(1)}, "/l/1": map[string]any{"l": []any{1, math.Inf(-1)}}, "": math.NaN(),
		} {
			answer = pack(t, frames.NewFrame(frames.TypeToolResult, map[string]any{"result": result}), frames.End(frames.EndCompleted))
			err := w.call("stats", `{}`).failure(frames.CodeValidationOutput)
			if len(err.Issues) != 1 || err.Issues[0].Path != path || err.Effect != frames.EffectDone {
				t.Errorf("%v: %+v", result, err)
			}
		}
		for text, path := range map[string]string{
			`{"mean":NaN}`: "/mean", `{"l":[1,-Infinity]}`: "/l/1", `{"a":1`: "/a", `{"a":1,"a":2}`: "/a", `{"a":"\ud800"}`: "/a", `{}{}`: "",
			`{"text":"` + strings.Repeat("x", 100<<10) + `","mean":NaN}`: "/mean",
		} {
			for _, v := range []any{text, []byte(text)} {
				answer = pack(t, frames.NewFrame(frames.TypeToolResult, map[string]any{"resultJson": v}), frames.End(frames.EndCompleted))
				err := w.call("stats", `{}`).failure(frames.CodeValidationOutput)
				if len(err.Issues) != 1 || err.Issues[0].Path != path || err.Effect != frames.EffectDone {
					t.Errorf("%.80q as %T: %+v", text, v, err)
				}
			}
		}
		answer = `{"type":"TOOL_RESULT","content":{"isError":true,"resultJson":"{\"exitCode\":NaN}","error":{"code":"EXECUTION","message":"exit 1"}}}{"type":"END"}`
		err := w.call("stats", `{}`).failure(frames.CodeExecution)
		want(t, "beside a failure", err.Message, "exit 1")
		answer = pack(t, frames.NewFrame(frames.TypeToolResult, map[string]any{"resultJson": []byte("{\"a\":\"\xff\"}")}), frames.End(frames.EndCompleted))
		w.call("stats", `{}`).failure(frames.CodeValidationOutput)
		for _, text := range []string{"", " "} {
			answer = pack(t, frames.NewFrame(frames.TypeToolResult, map[string]any{"resultJson": text}), frames.End(frames.EndCompleted))
			_, res := w.call("stats", `{}`).result()
			want(t, "blank", string(res.Result), `{}`)
		}
		numbers := "[" + strings.Repeat("1,", 100_000) + "1]"
		answer = pack(t, frames.NewFrame(frames.TypeToolResult, map[string]any{"resultJson": numbers}), frames.End(frames.EndCompleted))
		_, res := w.call("stats", `{}`).result()
		want(t, "many values", string(res.Result), numbers)
		for _, text := range []string{`null`, `""`, `{"mean":"NaN"}`, `18446744073709551615`, `{"d":1.10,"c":12345678901234567890.123456789}`} {
			answer = `{"type":"TOOL_RESULT","content":{"result":` + text + `}}{"type":"END"}`
			_, res := w.call("stats", `{}`).result()
			want(t, text, string(res.Result), text)
		}
	}, func(w *world) {
		w.plain("stats", `{"name":"stats"}`, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) })
	})
}
