package router_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
	"github.com/weavebus/weavebus/pkg/tool"
)

// What a tool declares of itself stands in its DESCRIPTION as it was declared; what
// it does not declare is the least that can be said.
//
// contract: P5, P6, P7, B2, S1
func TestDeclaredTraitsAreListed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		traits := func(f *frames.Frame) string {
			text, err := f.ContentJSON()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, field := range []string{
				`"title":"Undo me"`, `"capabilities":["read","x"]`, `"transactional":true`, `"reversible":true`,
				`"replay":"safe"`, `"readOnly":true`, `"cost":3`,
			} {
				if strings.Contains(string(text), field) {
					got = append(got, field)
				}
			}
			return strings.Join(got, " ")
		}
		all := w.list(`{"type":"DESCRIBE"}`)
		want(t, "tools", names(all), []string{"plain", "rich", "silent"})
		want(t, "declared by an SDK", traits(&all[1]),
			`"title":"Undo me" "capabilities":["read","x"] "transactional":true "reversible":true "replay":"safe" "readOnly":true "cost":3`)
		want(t, "declared by hand", traits(&all[0]), `"capabilities":["read","x"] "transactional":true "reversible":true`)
		want(t, "not declared", traits(&all[2]), "")
	}, func(w *world) {
		rich := frames.Declaration{
			Name: "rich", Title: "Undo me", Capabilities: []string{"read", "x"}, Transactional: true, Reversible: true, Replay: frames.ReplaySafe,
			Annotations: frames.Annotations{ReadOnly: true}, ExtraAnnotations: frames.Fields{{Key: "cost", Value: frames.Value(3)}},
		}
		s := set(w.t, rich, gives(`1`))
		add(w.t, s, frames.Declaration{Name: "silent"}, gives(`1`))
		w.serve("a", s)
		w.plain("plain", `{"name":"plain","capabilities":["read","x"],"transactional":true,"reversible":true}`, func(*nats.Msg) {})
	})
}

// The dispatcher holds arguments to the schema before the tool hears of the call,
// and results before the caller does.
//
// contract: P26, B8, G42
func TestDispatcherValidatesForPlainTools(t *testing.T) {
	var asked []string
	inBubble(t, func(t *testing.T, w *world) {
		for _, args := range []string{`{}`, `{"n":"1"}`, `{"n":1,"m":2}`, `[]`, `7`} {
			w.call("plain", args).failure(frames.CodeValidationInput)
		}
		synctest.Wait()
		want(t, "calls that the tool saw", len(asked), 0)
		w.call("plain", `{"n":1}`).failure(frames.CodeValidationOutput)
		_, res := w.call("plain", `{"n":2}`).result()
		want(t, "result", string(res.Result), `{"m":2}`)
		want(t, "calls that the tool saw", len(asked), 2)
	}, func(w *world) {
		declaration := `{"name":"plain","encodings":["json"],"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false},` +
			`"outputSchema":{"type":"object","properties":{"m":{"const":2}},"required":["m"]}}`
		w.plain("plain", declaration, func(m *nats.Msg) {
			asked = append(asked, string(m.Data))
			n := "1"
			if strings.Contains(string(m.Data), `"n":2`) {
				n = "2"
			}
			_ = m.Respond([]byte(`{"type":"TOOL_RESULT","content":{"result":{"m":` + n + `}}}{"type":"END"}`))
		})
	})
}

// A call's trace context comes to the tool, and back with each frame of the answer.
//
// contract: P23
func TestTraceOfACall(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seen := make(chan string, 1)
	inBubble(t, func(t *testing.T, w *world) {
		inbox := w.me.NewInbox()
		answers, err := w.me.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		m := &nats.Msg{Subject: "wb.call.me.look", Reply: inbox, Data: []byte(`{"type":"TOOL_CALL"}`), Header: nats.Header{"traceparent": {parent}}}
		if err := w.me.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			m, err := answers.NextMsgWithContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want(t, "trace of "+string(m.Data), m.Header, nats.Header{"traceparent": {parent}})
		}
		want(t, "trace at the tool", <-seen, parent)
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "look"}, func(ctx context.Context, _ *tool.Call) (*frames.ToolResult, error) {
			seen <- bus.TraceHeader(ctx).Get("traceparent")
			tool.Output(ctx, "stdout", "here")
			return nil, nil
		}))
	})
}

// Each check comes before the next: a call that would fail at several ends at the
// first, and what comes behind it does not see the call. Error hooks see each failure.
//
// contract: S14, S17
func TestOrderOfTheChecks(t *testing.T) {
	var mu sync.Mutex
	var steps []string
	step := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, what)
	}
	policy := hook.Hook{
		Name: "policy",
		Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) {
			step("gate")
			switch {
			case strings.Contains(string(c.Raw), "deny"):
				return hook.Deny("no"), nil
			case strings.Contains(string(c.Raw), "spoil"):
				return hook.Mutate(map[string]int{"say": 7}), nil
			}
			return hook.Proceed(), nil
		},
		After: func(context.Context, *hook.Call, *frames.ToolResult) (hook.Outcome, error) {
			step("after")
			return hook.Keep(), nil
		},
		OnError: func(_ context.Context, _ *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
			step(string(res.Err.Code))
			return hook.Keep(), nil
		},
	}
	hooked(t, []hook.Hook{policy}, func(w *world) {
		declare := func(name string, confirm bool) frames.Declaration {
			return frames.Declaration{
				Name: name, Annotations: frames.Annotations{RequiresConfirmation: confirm},
				Schema:       []byte(`{"type":"object","properties":{"say":{"type":"string","maxLength":9}},"required":["say"],"additionalProperties":false}`),
				OutputSchema: []byte(`{"type":"object","properties":{"said":{"type":"string"}},"required":["said"]}`),
			}
		}
		run := func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
			step("run")
			if strings.Contains(string(c.Arguments), "odd") {
				return &frames.ToolResult{Result: []byte(`{"said":7}`)}, nil
			}
			return &frames.ToolResult{Result: []byte(`{"said":"it"}`)}, nil
		}
		s := set(w.t, declare("off", true), run)
		add(w.t, s, declare("risky", true), run)
		add(w.t, s, declare("say", false), run)
		w.serve("checked", s)
		w.order("disable", `{"tool":"off"}`)
		large := `{"say":"` + strings.Repeat("deny ", 1<<20) + `"}`
		for _, c := range []struct{ name, tool, args, want, reason string }{
			{"known before all", "nosuch", large, "NOT_FOUND", ""},
			{"enabled before the limits", "off", large, "DISABLED", ""},
			{"the limits before the schema", "risky", large, "TOO_LARGE", ""},
			{"the schema before the gates", "risky", `{"say":"deny it, please"}`, "VALIDATION_INPUT", ""},
			{"the gates before a person", "risky", `{"say":"deny"}`, "gate DENIED", "denied_by_hook"},
			{"the schema again before a person", "risky", `{"say":"spoil"}`, "gate DENIED", "hook_failed"},
			{"a person before the tool", "risky", `{"say":"hi"}`, "gate DENIED", "approval_required"},
			{"the result's schema before the hooks behind it", "say", `{"say":"odd"}`, "gate run VALIDATION_OUTPUT", ""},
			{"all", "say", `{"say":"hi"}`, "gate run after", ""},
		} {
			mu.Lock()
			steps = nil
			mu.Unlock()
			call := frames.Call(c.tool, []byte(c.args))
			_, res := w.send(w.me, "wb.call.me."+c.tool, pack(w.t, call)).result()
			synctest.Wait()
			want(w.t, c.name, strings.Join(steps, " "), c.want)
			if res.Err != nil {
				want(w.t, c.name, res.Err.Reason, c.reason)
			}
		}
	})
}
