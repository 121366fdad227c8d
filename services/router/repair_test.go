package router_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// outcome is what a call came to.
type outcome struct {
	code    frames.Code
	reason  string
	result  string
	repairs []string
}

func outcomeOf(x *exchange) (outcome, *frames.Error) {
	x.w.t.Helper()
	f, res := x.result()
	o := outcome{result: string(res.Result), repairs: texts(f.Metadata.Get("repairs"))}
	if res.Err != nil {
		o.code, o.reason = res.Err.Code, res.Err.Reason
	}
	var told []string
	if first := x.all[0]; first.Type == frames.TypeMeta {
		told = texts(first.Content.Lookup("repairs"))
	}
	if diff := cmp.Diff(o.repairs, told); diff != "" {
		x.w.t.Errorf("repairs of the result and of META: %s", diff)
	}
	return o, res.Err
}

func texts(v frames.Raw) (out []string) {
	for item := range v.Items() {
		s, _ := item.Text()
		out = append(out, s)
	}
	return out
}

// anyhow calls a tool with an argument text, whole and cut into pieces at each
// place, and wants the same of all.
func (w *world) anyhow(name, text string, more ...frames.Option) (outcome, *frames.Error) {
	w.t.Helper()
	first, err := outcomeOf(w.send(w.me, "wb.call.me."+name, pack(w.t, frames.Call(name, []byte(text), more...))))
	for _, size := range []int{1, 3, 7, max(len(text), 1)} {
		open := frames.OpenCall(name, "", more...)
		answer := w.send(w.me, "wb.call.me."+name, pack(w.t, open)).read()[0]
		sink, _ := answer.Content.Lookup("sink").Text()
		c := &openedCall{w: w, nc: w.me, id: answer.ToolCallID, sink: sink}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			c.piece(rest[:n])
			rest = rest[n:]
		}
		got, _ := outcomeOf(c.closed())
		if diff := cmp.Diff(first, got, cmp.AllowUnexported(outcome{})); diff != "" {
			w.t.Errorf("%.80q in pieces of %d (-whole +pieces):\n%s", text, size, diff)
		}
	}
	return first, err
}

// gets wants a tool to get arguments, after the repairs.
func (w *world) gets(name, text, want string, repairs ...string) {
	w.t.Helper()
	got, err := w.anyhow(name, text)
	if err != nil || got.result != want || cmp.Diff(repairs, got.repairs) != "" {
		w.t.Errorf("%.80q: the tool gets %s by %v, %v; want %s by %v", text, got.result, got.repairs, err, want, repairs)
	}
}

// refuses wants that a tool gets nothing.
func (w *world) refuses(name, text string, reason string, says ...string) {
	w.t.Helper()
	got, err := w.anyhow(name, text)
	if got.code != frames.CodeValidationInput || reason != "" && got.reason != reason || got.repairs != nil || err.Effect != frames.EffectNone {
		w.t.Errorf("%.80q: %+v, %v", text, got, err)
	}
	for _, word := range says {
		if err == nil || !strings.Contains(err.ForModel(), word) {
			w.t.Errorf("%.80q: the model reads %q, want %q in it", text, err.ForModel(), word)
		}
	}
}

// case: acc-21-utf8-split
// case: acc-22-escape-split
func TestPiecesCutAnywhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for want, pieces := range map[string][]string{
			`{"t":"ä😀"}`:                       unhex(t, "7b2274223a22c3", "a4f09f", "98", "80227d"),
			`{"t":"\u00e9 \ud83d\ude00 \n\\"}`: {"{\"t\":\"\\u00e", "9 \\ud83d", "\\ude00 \\", "n\\\\", "\"}"},
		} {
			c := w.open("echo", "c-1")
			for _, piece := range pieces {
				c.piece(piece)
			}
			_, res := c.closed().result()
			if res.Err != nil || string(res.Result) != want {
				t.Errorf("the tool gets %s, %v; want %s", res.Result, res.Err, want)
			}
		}
	}, anything)
}

func unhex(t *testing.T, pieces ...string) []string {
	t.Helper()
	var out []string
	for _, p := range pieces {
		raw, err := hex.DecodeString(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(raw))
	}
	return out
}

// guarded serves a tool that must not run.
func guarded(name string) func(w *world) {
	return func(w *world) {
		d := frames.Declaration{Name: name, Schema: []byte(`{"type":"object"}`)}
		w.serve(name, set(w.t, d, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
			w.t.Errorf("%s ran with %s", name, c.Arguments)
			return nil, nil
		}))
	}
}

// What a model's length limit cut off never runs, however whole it looks, and
// whoever says so: the closing frame, one before it, or the whole call.
//
// contract: B15, P58
// case: WS-R01
// case: acc-23-truncated-length
func TestCutOffTextNeverRuns(t *testing.T) {
	texts := []string{`{"path":"a.txt","content":"lin`, `{"path":"a.txt","content":"lin"}`, ``}
	inBubble(t, func(t *testing.T, w *world) {
		check := func(x *exchange) {
			t.Helper()
			err := x.failure(frames.CodeValidationInput)
			if err.Reason != "arguments_truncated" || !strings.Contains(err.ForModel(), "cut off") || err.Effect != frames.EffectNone {
				t.Errorf("%+v", err)
			}
		}
		for _, text := range texts {
			for _, word := range []string{"length", "content-filter", "error", "max_tokens"} {
				c := w.open("write_file", "c-1")
				c.piece(text)
				check(c.closed(`"content":{"stopReason":"` + word + `"}`))

				c = w.open("write_file", "c-2", `"streamId":"s"`)
				c.piece(text)
				w.send(w.me, c.sink, `{"type":"META","streamId":"s","metadata":{"stopReason":"`+word+`"}}`).read()
				check(c.closed())

				check(w.send(w.me, "wb.call.me.write_file", pack(t, frames.Call("write_file", []byte(text), frames.WithMeta("stopReason", word)))))
			}
		}
		// A provider that reports tool_calls for a cut call: the text tells.
		w.refuses("write_file", texts[0], "arguments_incomplete", "cut off")
		for _, word := range []string{"stop", "tool-calls", "tool_calls"} {
			c := w.open("write_file", "c-3")
			c.piece(texts[0])
			err := c.closed(`"content":{"stopReason":"` + word + `"}`).failure(frames.CodeValidationInput)
			want(t, "reason", err.Reason, "arguments_incomplete")
		}
	}, guarded("write_file"))
}

// No text that ends too early is completed, whatever else could be repaired in it.
//
// case: WS-R02
func TestIncompleteTextNeverRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, text := range []string{
			`{"command":"rm -rf build`, `{"command":"rm -rf build"`, `{"command":"rm -rf build",`, "{\"command\":\"rm\n-rf build", "```json\n{\"command\":\"rm -rf build",
			"\ufeff{\"command\":\"rm -rf build", `"{\"command\":\"rm -rf build`, `"{\"command\":\"rm -rf build\""`, `{"a":[1,],"command":"rm`, "{\"command\":\"r\xc3",
		} {
			w.refuses("run_command", text, "arguments_incomplete", "cut off")
		}
	}, guarded("run_command"))
}

// contract: P61, B15, B54
// case: arg-01-double-encoded-top
// case: arg-08-trailing-commas
// case: arg-12-code-fence
func TestRepairsAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.gets("lookup_order", `"{\"order_id\":\"27422\"}"`, `{"order_id":"27422"}`, "unwrapped_json_string")
		w.gets("lookup_order", `"\"{\\\"order_id\\\":\\\"27422\\\"}\""`, `{"order_id":"27422"}`, "unwrapped_json_string")
		w.gets("lookup_order", "```json\n\"{\\\"order_id\\\":\\\"1\\\"}\"\n```", `{"order_id":"1"}`, "code_fence", "unwrapped_json_string")
		w.gets("lookup_order", "\ufeff\"```tool_code\\n{\\\"order_id\\\":\\\"1\\\",}\\n```\"", `{"order_id":"1"}`, "byte_order_mark", "unwrapped_json_string", "code_fence", "trailing_comma")
		for _, text := range []string{`"27422"`, `"[\"27422\"]"`, `""`, `"null"`} {
			w.refuses("lookup_order", text, "")
		}
		w.gets("echo", `{"a":[1,2,],"b":{"c":1,},}`, `{"a":[1,2],"b":{"c":1}}`, "trailing_comma")
		w.gets("echo", "```json\n{\"a\":1}\n```", `{"a":1}`, "code_fence")
		w.gets("echo", "\ufeff{\"a\":\"x\ty\"}", `{"a":"x\ty"}`, "byte_order_mark", "control_character")
		_, res := w.call("lookup_order", `"{\"order_id\":\"1\"}"`).result() // in JSON, as the value that it is
		want(t, "in JSON", string(res.Result), `{"order_id":"1"}`)
	}, anything, func(w *world) {
		echo(w, "lookup_order", `{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}`)
	})
}

// A blank text is an object in pieces as it is whole.
//
// contract: B15
func TestBlankArguments(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, text := range []string{"", " ", "\n\t", "null"} {
			c := w.open("echo", "c-1")
			c.piece(text)
			got, err := outcomeOf(c.closed())
			if err != nil || got.result != `{}` || cmp.Diff([]string{"blank"}, got.repairs) != "" {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
			whole, _ := outcomeOf(w.send(w.me, "wb.call.me.echo", pack(t, frames.Call("echo", []byte(text)))))
			want(t, "whole", fmt.Sprint(whole), fmt.Sprint(got))
		}
		for _, data := range []string{`{"type":"TOOL_CALL"}`, `{"type":"TOOL_CALL","content":{}}`, `{"type":"TOOL_CALL","content":{"arguments":{}}}`} {
			got, err := outcomeOf(w.send(w.me, "wb.call.me.echo", data))
			if err != nil || got.result != `{}` || got.repairs != nil {
				t.Errorf("%s: %+v, %v", data, got, err)
			}
		}
	}, anything)
}

// case: arg-02-nested-stringified
func TestNestedStringsAreUnwrapped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.gets("edit", `{"edits":"[{\"old\":\"a\"}]","note":"{\"keep\":\"me\"}"}`, `{"edits":[{"old":"a"}],"note":"{\"keep\":\"me\"}"}`, "nested_json_string")
		w.gets("edit", `{"edits":["{\"old\":\"a\"}",{"old":"[1]"}]}`, `{"edits":[{"old":"a"},{"old":"[1]"}]}`, "nested_json_string")
		w.gets("edit", `{"edits":"[{\"old\":\"a\"}]",}`, `{"edits":[{"old":"a"}]}`, "trailing_comma", "nested_json_string")
		for _, text := range []string{`{"edits":"[{\"old\":7}]"}`, `{"edits":"[{\"old\":\"a\"}"}`, `{"edits":"a"}`, `{"edits":"{\"old\":\"a\"}"}`} {
			w.refuses("edit", text, "", "/edits")
		}
	}, func(w *world) {
		echo(w, "edit", `{"type":"object","properties":{"edits":{"type":"array","items":{"type":"object",
			"properties":{"old":{"type":"string"}},"required":["old"]}},"note":{"type":"string"}},"required":["edits"]}`)
	})
}

// case: arg-05-big-integers
// case: arg-06-decimal-precision
// case: arg-07-valid-json-untouched
func TestValidArgumentsAreUntouched(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, text := range []string{
			`{"id":9007199254740993,"n":9223372036854775807,"u":18446744073709551615,"d":2932809024865746956}`,
			`{"a":0.1,"b":1.10,"c":12345678901234567890.123456789}`,
			`{"cmd":"a, }, ] \",}","re":"[1,]"}`,
			`{ "fence" : "` + "```" + `json", "bom":"` + "\ufeff" + `", "text":"{\"a\":1}" }`,
		} {
			w.gets("echo", text, text)
		}
	}, anything)
}

// case: arg-16-duplicate-keys
// case: arg-30-json-nan-text
func TestAmbiguousTextIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.refuses("guarded", `{"path":"ok.txt","path":"../../etc/passwd"}`, "duplicate_key", `duplicate key "path"`)
		w.refuses("guarded", `{"path":"ok.txt","p\u0061th":"../../etc/passwd"}`, "duplicate_key", `duplicate key "path"`)
		w.refuses("guarded", `{"a":{"b":1,"b":2},}`, "duplicate_key")
		w.refuses("guarded", `"{\"path\":1,\"path\":2}"`, "")
		for _, text := range []string{`{"a":NaN}`, `{"a":Infinity}`, `{"a":-Infinity}`, `{"a":undefined}`, `{"a":NaN,}`} {
			w.refuses("guarded", text, "invalid_json", "at byte ")
		}
		w.refuses("guarded", `{"a":1}{"a":2}`, "invalid_json")
		w.refuses("guarded", `{"a":"\ud800"}`, "invalid_utf8")
		w.refuses("guarded", "{\"a\":\"\xff\"}", "invalid_utf8")
		w.refuses("guarded", `{"a":1E1000000}`, "over_limit")
	}, guarded("guarded"))
}

// A strict export makes optional members nullable: who calls by it says so, and
// null is absent. Else null is null.
//
// case: arg-14-null-for-optional
func TestNullOfAStrictExport(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		strict := frames.WithMeta("exported", "openai-strict")
		for text, want := range map[string]string{
			`{"q":"x","limit":null}`:                      `{"q":"x","limit":5}`,
			`{"q":"x","limit":null,"may":null}`:           `{"q":"x","may":null,"limit":5}`,
			`{"q":"x","limit":3,"may":"y"}`:               `{"q":"x","limit":3,"may":"y"}`,
			"```json\n{\"q\":\"x\",\"limit\":null,}\n```": `{"q":"x","limit":5}`, // first one object, then the tool's own terms
		} {
			got, err := w.anyhow("find", text, strict)
			if err != nil || got.result != want {
				t.Errorf("%s: %+v, %v", text, got, err)
			}
		}
		if got, _ := w.anyhow("find", `{"q":null,"limit":null}`, strict); got.code != frames.CodeValidationInput {
			t.Errorf("null for a required member: %+v", got)
		}
		w.refuses("find", `{"q":"x","limit":null}`, "", "/limit")
	}, func(w *world) {
		echo(w, "find", `{"type":"object","properties":{"q":{"type":"string"},"limit":{"type":"integer","default":5},"may":{"type":["string","null"]}},"required":["q"]}`)
	})
}

// case: arg-15-defaults-nested
func TestDefaultsAreFilled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.gets("deploy", `{}`, `{"n":5}`)
		w.gets("deploy", `{"o":{}}`, `{"o":{"env":"dev"},"n":5}`)
		w.gets("deploy", `{"o":{"env":"prod"},"n":1.0}`, `{"o":{"env":"prod"},"n":1.0}`)
		w.refuses("deploy", `{"n":null}`, "", "/n")
		w.gets("must", `{}`, `{"n":5}`)
		w.gets("must", `{"o":"{}"}`, `{"o":{"env":"dev"},"n":5}`, "nested_json_string")
		w.refuses("must", `{"n":null}`, "", "/n")
	}, func(w *world) {
		echo(w, "deploy", `{"type":"object","properties":{"n":{"type":"integer","default":5},
			"o":{"type":"object","properties":{"env":{"type":"string","default":"dev"}}}}}`)
		echo(w, "must", `{"type":"object","properties":{"n":{"type":"integer","default":5},"bad":{"type":"integer","default":"five"},
			"o":{"type":"object","properties":{"env":{"type":"string","default":"dev"}},"required":["env"]}},"required":["n"]}`)
	})
}
