package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/router"
)

// order sends an order of an operator and reads the answer.
func (w *world) order(verb, content string) []frames.Frame {
	w.t.Helper()
	all := w.send(w.me, "wb.admin.me."+verb, `{"type":"META","content":`+content+`}`).read()
	synctest.Wait()
	return all
}

func (w *world) states() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	for _, f := range w.list(`{"type":"DESCRIBE"}`) {
		if f.Type == frames.TypeDescription {
			got[f.Name] = strings.TrimSpace(got[f.Name] + " " + f.Metadata.Text("state"))
		}
	}
	return got
}

// serveSome serves tools one and two.
func serveSome(w *world) {
	s := set(w.t, frames.Declaration{Name: "one", Description: "The first.", Annotations: frames.Annotations{ReadOnly: true}}, gives(`1`))
	add(w.t, s, frames.Declaration{Name: "two"}, gives(`2`))
	w.serve("a", s)
}

// contract: W34, S22, G39, B54, W17
func TestDisableAndEnable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all := w.order("disable", `{"tool":"one"}`)
		text, _ := all[0].ContentJSON()
		if !strings.HasPrefix(string(text), `{`) || !strings.Contains(string(text), `"state":"disabled"`) || all[1].Reason() != frames.EndCompleted {
			t.Errorf("answered %s, %v", text, all)
		}
		err := w.call("one", `{}`).failure(frames.CodeDisabled)
		want(t, "error", []any{err.Message, err.Effect, err.Retryable}, []any{`Tool "one" is disabled`, frames.EffectNone, false})
		want(t, "listed", w.states(), map[string]string{"one": "disabled", "two": "ready"})
		missing := w.call("nosuch", `{}`).failure(frames.CodeNotFound)
		if !strings.Contains(missing.LLMMessage, "Available tools: two.") {
			t.Errorf("for a model: %s", missing.LLMMessage)
		}
		w.router.stop()
		w.route(router.Config{})
		w.call("one", `{}`).failure(frames.CodeDisabled)
		w.order("enable", `{"tool":"one"}`)
		_, res := w.call("one", `{}`).result()
		want(t, "called again", string(res.Result), "1")
	}, serveSome)
}

// What waits in the queue when its tool is disabled is not started; what runs ends.
//
// contract: W34
func TestDisableWhileCallsRun(t *testing.T) {
	var release chan struct{}
	inBubble(t, func(t *testing.T, w *world) {
		running := w.call("slow", `{}`, `"toolCallId":"c-1"`)
		synctest.Wait()
		waiting := w.call("slow", `{}`, `"toolCallId":"c-2"`)
		synctest.Wait()
		w.order("disable", `{"tool":"slow"}`)
		want(t, "effect", waiting.failure(frames.CodeDisabled).Effect, frames.EffectNone)
		close(release)
		_, res := running.result()
		want(t, "what ran", string(res.Result), `"done"`)
	}, func(w *world) {
		release = make(chan struct{})
		w.serve("a", set(w.t, frames.Declaration{Name: "slow", Concurrency: 1}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			<-release
			return &frames.ToolResult{Result: []byte(`"done"`)}, nil
		}))
	})
}

func TestRetire(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.order("retire", `{"tool":"one"}`)
		w.call("one", `{}`).failure(frames.CodeNotFound)
		want(t, "listed", w.states(), map[string]string{"two": "ready"})
		want(t, "by its name", frames.CodeOf(w.list(`{"type":"DESCRIBE","name":"one"}`)[0].Err()), frames.CodeNotFound)
		want(t, "asked for", names(w.list(`{"type":"DESCRIBE","content":{"states":["retired"]}}`)), []string{"one"})
		w.order("enable", `{"tool":"one"}`)
		_, res := w.call("one", `{}`).result()
		want(t, "enabled", string(res.Result), "1")
	}, serveSome)
}

// contract: W33, G39
func TestSwapToAnotherIdentity(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		want(t, "before", w.states(), map[string]string{"one": "ready conflict", "two": "ready"})
		all := w.order("swap", `{"tool":"one"}`)
		identity, _ := all[0].Content.Lookup("identity").Text()
		want(t, "has it now", identity, "you")
		_, res := w.call("one", `{}`).result()
		want(t, "called", string(res.Result), `"yours"`)
		w.order("swap", `{"tool":"one","identity":"local"}`)
		_, res = w.call("one", `{}`).result()
		want(t, "swapped back", string(res.Result), "1")
	}, serveSome, func(w *world) {
		conn := w.bus("you")
		s := set(w.t, frames.Declaration{Name: "one"}, gives(`"yours"`))
		ctx, stop := context.WithCancel(context.Background())
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- tool.Serve(ctx, conn, s, tool.Instance("b"),
				tool.OnReady(func() { close(ready) }), tool.Logger(slog.New(slog.DiscardHandler)))
		}()
		w.t.Cleanup(func() {
			stop()
			<-done
		})
		<-ready
	})
}

func TestLimitsOfATool(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all := w.order("limits", `{"tool":"slow","concurrency":1,"timeoutMs":2000}`)
		limits, _ := all[0].Content.Lookup("limits").JSON()
		want(t, "answered", string(limits), `{"concurrency":1,"timeoutMs":2000}`)
		start := time.Now()
		first := w.call("slow", `{}`)
		synctest.Wait()
		second := w.call("slow", `{}`)
		first.failure(frames.CodeTimeout)
		want(t, "the first ends", time.Since(start), 2*time.Second)
		second.failure(frames.CodeTimeout)
		if took := time.Since(start); took < 4*time.Second {
			t.Errorf("the second ended after %v", took)
		}
		tools, err := client.New(w.bus("me")).Tools(t.Context())
		want(t, "listed", []any{err, tools[0].Limits}, []any{nil, client.Limits{Concurrency: 1, Timeout: 2 * time.Second}})
		w.order("limits", `{"tool":"slow"}`)
		start = time.Now()
		w.call("slow", `{}`).failure(frames.CodeTimeout)
		want(t, "without", time.Since(start), 30*time.Second)
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "slow"}, untilStopped(w.ended)))
	})
}

// Short calls, which are sent ahead otherwise, do not run beside each other where an
// operator allows one.
func TestLimitHoldsForShortCalls(t *testing.T) {
	var now, beside atomic.Int32
	inBubble(t, func(t *testing.T, w *world) {
		w.order("limits", `{"tool":"short","concurrency":1}`)
		for range 10 {
			var open []*exchange
			for range 20 {
				open = append(open, w.call("short", `{}`))
			}
			for _, x := range open {
				x.result()
			}
		}
		want(t, "beside another", beside.Load(), int32(0))
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "short"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			if now.Add(1) > 1 {
				beside.Add(1)
			}
			defer now.Add(-1)
			<-time.After(time.Millisecond)
			return nil, nil
		}))
	})
}

// What cannot be done is refused with what is wrong, and what is near.
//
// contract: S21, B49, G44
func TestBadOrders(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			verb, content string
			code          frames.Code
			says          string
		}{
			{"disable", `{"tool":"onne"}`, frames.CodeNotFound, `Tool "onne" not found. Available tools: one, two.`},
			{"enable", `{"tool":"x"}`, frames.CodeNotFound, `Tool "x" not found`},
			{"swap", `{"tool":"x","identity":"you"}`, frames.CodeNotFound, `Tool "x" not found`},
			{"swap", `{"tool":"one"}`, frames.CodeValidationInput, `no other identity than "local"`},
			{"swap", `{"tool":"one","identity":"you"}`, frames.CodeValidationInput, "you does not serve tool one; it is served by local"},
			{"swap", `{"tool":"one","identity":"a.b"}`, frames.CodeValidationInput, "identity"},
			{"remove", `{"tool":"one"}`, frames.CodeValidationInput, `"remove" is no order; there is disable, enable, limits, retire, swap`},
			{"disable", `{}`, frames.CodeValidationInput, "tool: name the tool"},
			{"disable", `{"tool":7}`, frames.CodeValidationInput, "tool: want"},
			{"disable", `{"tool":"a b"}`, frames.CodeValidationInput, "tool: want"},
			{"limits", `{"tool":"one","concurrency":-1}`, frames.CodeValidationInput, "concurrency: want"},
			{"limits", `{"tool":"one","timeoutMs":"5"}`, frames.CodeValidationInput, "timeoutMs: want"},
			{"limits", `{"tool":"one","timeoutMs":3600001}`, frames.CodeValidationInput, "to 3600000"},
		} {
			all := w.order(tt.verb, tt.content)
			err := frames.AsError(all[0].Err())
			if len(all) != 2 || err.Code != tt.code || !strings.Contains(err.ForModel(), tt.says) || all[1].Reason() != frames.EndError {
				t.Errorf("%s %s: %v, %s", tt.verb, tt.content, err, err.ForModel())
			}
		}
		for _, data := range []string{"", "\xc1", `{"type":"TEXT"}`, `{"type":"DESCRIBE"}`, `{"type":`} {
			all := w.send(w.me, "wb.admin.me.disable", data).read()
			want(t, data, frames.CodeOf(all[0].Err()), frames.CodeBadFrame)
		}
		conn := w.bus("you") // declares it, and is not there
		f := frames.Description(&frames.Declaration{Name: "one"})
		if err := conn.Publish(t.Context(), "wb.announce.you.x.one", frames.Msgpack, &f); err != nil {
			t.Fatal(err)
		}
		w.flush(conn.NATS())
		want(t, "to nobody", frames.CodeOf(w.order("swap", `{"tool":"one","identity":"you"}`)[0].Err()), frames.CodeValidationInput)
		want(t, "nothing was changed", w.states(), map[string]string{"one": "ready conflict", "two": "ready"})
	}, serveSome)
}

// An order is answered into the operator's own inbox or not at all, and not
// carried out either.
func TestOrderWithAForeignReply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if err := w.me.PublishRequest("wb.admin.me.disable", "wb.call.me.two", []byte(`{"type":"META","content":{"tool":"one"}}`)); err != nil {
			t.Fatal(err)
		}
		w.flush(w.me)
		synctest.Wait()
		want(t, "states", w.states(), map[string]string{"one": "ready", "two": "ready"})
	}, serveSome)
}

// One announcement by the same identity takes no tool down, nor does one that says
// that it is alive where nobody listens.
func TestAnnouncementsWithoutAService(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		conn := w.bus("local")
		for i, announce := range [][]string{{"wb.announce.local.x.one"}, {"wb.announce.local.y.one", "wb.announce.local.y"}} {
			for _, subject := range announce {
				f := frames.Description(&frames.Declaration{Name: "one", Version: fmt.Sprint(i, "9")}, frames.WithMeta("since", int64(1)<<60))
				if !strings.HasSuffix(subject, ".one") {
					f = frames.Meta(map[string]any{"alive": true, "tools": map[string]any{"one": map[string]any{"slots": 1}}})
				}
				if err := conn.Publish(t.Context(), subject, frames.Msgpack, &f); err != nil {
					t.Fatal(err)
				}
			}
			w.flush(conn.NATS())
			synctest.Wait()
			_, res := w.call("one", `{}`).result()
			if res.Err != nil {
				t.Errorf("after %v: %v", announce, res.Err)
			}
		}
	}, serveSome)
}

// A list can be narrowed; a filter that cannot be is refused.
func TestFilteredLists(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.order("disable", `{"tool":"two"}`)
		for content, listed := range map[string][]string{
			`{}`:                             {"one", "two"},
			`{"states":[]}`:                  {"one", "two"},
			`{"states":["ready"]}`:           {"one"},
			`{"states":["disabled","down"]}`: {"two"},
			`{"tools":["t*"]}`:               {"two"},
			`{"tools":["nosuch"]}`:           nil,
			`{"tools":["o?e"],"states":["disabled"]}`: nil,
		} {
			want(t, content, names(w.list(`{"type":"DESCRIBE","content":`+content+`}`)), listed)
		}
		for _, content := range []string{`{"states":["good"]}`, `{"states":"ready"}`, `{"tools":[7]}`, `{"tools":["[a"]}`} {
			want(t, content, frames.CodeOf(w.list(`{"type":"DESCRIBE","content":` + content + `}`)[0].Err()), frames.CodeValidationInput)
		}
		want(t, "of one that is not ready", names(w.list(`{"type":"DESCRIBE","name":"two","content":{"states":["ready"]}}`)), nil)
	}, serveSome)
}

// contract: W36, S23, W34, W35
func TestPromptText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bustest.WithAckWait(time.Second))
		w.route(router.Config{})
		c := client.New(w.bus("me"))
		text := func() string {
			t.Helper()
			tools, err := c.Tools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return client.PromptText(tools)
		}
		want(t, "without tools", text(), "No tools are currently available.")
		serveSome(w)
		synctest.Wait()
		want(t, "with tools", text(), "- one: The first.\n- two: Tool: two")
		_, err := c.Disable(t.Context(), "one")
		want(t, "error", err, nil)
		want(t, "one disabled", text(), "- two: Tool: two")
		_, err = c.Retire(t.Context(), "two")
		want(t, "error", err, nil)
		want(t, "all off", text(), "No tools are currently available.")
		s, err := c.Enable(t.Context(), "two")
		want(t, "error", err, nil)
		want(t, "state", []string{s.State, s.By}, []string{client.StateReady, "me"})
		_, err = c.Swap(t.Context(), "nosuch", "")
		want(t, "unknown", frames.CodeOf(err), frames.CodeNotFound)
	})
}
