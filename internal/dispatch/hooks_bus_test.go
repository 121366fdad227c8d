package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// serveHook runs a policy service in Go until the test's end.
func (w *world) serveHook(h hook.Hook) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	conn := w.connect("hook")
	go func() {
		ended <- hook.Serve(ctx, conn, h, hook.OnReady(func() { close(ready) }), hook.Logger(slog.New(slog.DiscardHandler)))
	}()
	select {
	case <-ready:
	case err := <-ended:
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

// foreign answers a hook's requests as a program without an SDK does.
func (w *world) foreign(name string, answer func(m *nats.Msg) string) {
	w.t.Helper()
	nc := w.mesh.Connect(w.t, "hook")
	if _, err := nc.QueueSubscribe("wb.hook."+name, "hook", func(m *nats.Msg) {
		if text := answer(m); text != "" {
			_ = m.Respond([]byte(text))
		}
	}); err != nil {
		w.t.Fatal(err)
	}
	if err := nc.FlushWithContext(within(w.t, time.Second)); err != nil {
		w.t.Fatal(err)
	}
}

func everyPhase(name string) hook.Hook { return hook.Remote(name, hook.Phases()...) }

// contract: W28, W32, S19, S15
func TestPolicyServiceInGo(t *testing.T) {
	var calls []*hook.Call
	policy := hook.Hook{Name: "policy", Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) {
		calls = append(calls, c)
		switch string(c.Raw) {
		case `{"n": 1}`:
			return hook.Proceed(), nil
		case `{"n": 2}`:
			return hook.Mutate(json.RawMessage(`{"n":22}`)), nil
		case `{"n": 3}`:
			return hook.Skip(&frames.ToolResult{Result: json.RawMessage(`{"n":33}`), Parts: []frames.Part{{Type: "text", Text: "hi"}}}), nil
		case `{"n": 4}`:
			return hook.Deny("not four"), nil
		case `{"n": 5}`:
			return hook.Decision{}, errors.New("disk full")
		case `{"n": 6}`:
			panic("oh")
		}
		return hook.Decision{}, nil
	}}
	inBubble(t, hookedBy(hook.Remote("policy", hook.PhaseBefore)), func(t *testing.T, w *world) {
		decl := copier
		decl.Annotations.Destructive = true
		w.serve("i", decl, back)
		w.serveHook(policy)
		for n, want := range map[int]string{1: `{"n": 1}`, 2: `{"n":22}`, 3: `{"n":33}`} {
			c := numbered(n)
			c.SessionID, c.Workspace, c.Depth = "s1", "docs", 2
			if res := w.d.Do(t.Context(), c); string(res.Result) != want {
				t.Errorf("%d: got %s %v, want %s", n, res.Result, res.Err, want)
			}
		}
		for n, want := range map[int]string{4: "not four", 5: "disk full", 6: "panicked", 7: "decided nothing"} {
			res := w.d.Do(t.Context(), numbered(n))
			wantCode(t, res, frames.CodeDenied)
			if !strings.Contains(res.Err.Message, want) || res.Err.Hook != "policy" {
				t.Errorf("%d: got %q, want %q in it", n, res.Err.Message, want)
			}
		}
		want := &hook.Call{
			ID: "1", Tool: "echo", Caller: "me", SessionID: "s1", Workspace: "docs", Depth: 2, Identity: "local",
			Annotations: frames.Annotations{Destructive: true}, Arguments: calls[0].Raw, Raw: calls[0].Raw,
		}
		if diff := cmp.Diff(want, calls[0]); diff != "" {
			t.Error(diff)
		}
	})
}

// contract: W29, W30, A16, A17, B35
func TestPolicyServiceBehindTheTool(t *testing.T) {
	o := &told{}
	policy := hook.Hook{
		Name: "policy", Observe: o.observe,
		Before: func(context.Context, *hook.Call) (hook.Decision, error) {
			return hook.Mutate(map[string]int{"n": 8}), nil
		},
		After: func(_ context.Context, c *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
			if string(c.Raw) == string(c.Arguments) || res.Attempts != 1 || res.Instance != "i" {
				return hook.Keep(), fmt.Errorf("raw %s, arguments %s, %+v", c.Raw, c.Arguments, res)
			}
			return hook.Replace(map[string]int{"n": 10 * numberOf(t, res.Result)}), nil
		},
		OnError: func(_ context.Context, c *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
			if res.Err.Code == frames.CodeValidationInput { // which holds text that is no JSON
				return hook.Replace(map[string]string{"was": string(c.Raw)}), nil
			}
			return hook.Keep(), nil
		},
	}
	decl := frames.Declaration{Name: "echo", Schema: copier.Schema}
	inBubble(t, hookedBy(everyPhase("policy")), func(t *testing.T, w *world) {
		w.serve("i", decl, back)
		w.serveHook(policy)
		if res := w.d.Do(t.Context(), numbered(7)); res.Err != nil || numberOf(t, res.Result) != 80 {
			t.Errorf("got %s %v", res.Result, res.Err)
		}
		broken := call("2")
		broken.Arguments = json.RawMessage(`{"n":`)
		res := w.d.Do(t.Context(), broken)
		if want := `{"was":"{\"n\":"}`; string(res.Result) != want {
			t.Errorf("got %s %v, want %s", res.Result, res.Err, want)
		}
		other := call("3")
		other.Tool = "nosuch"
		wantCode(t, w.d.Do(t.Context(), other), frames.CodeNotFound)
		w.d.Drain(t.Context())
		want := []string{"1 begins", `1 {"n":80}`, "2 begins", `2 {"was":"{\"n\":"}`, "3 NOT_FOUND"}
		if got := o.events(); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if got := w.d.HookStats()[0]; got.Failed != 1 { // the result of call 2 has no n, which After cannot do with
			t.Errorf("counted %+v", got)
		}
	})
}

// What docs/protocol.md, section 9, says a policy service reads and writes.
func TestForeignPolicyService(t *testing.T) {
	inBubble(t, hookedBy(everyPhase("policy")), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		var asked []string
		w.foreign("policy", func(m *nats.Msg) string {
			lines := strings.Split(string(m.Data), "\n")
			var f struct {
				Name    string `json:"name"`
				Content struct {
					Arguments map[string]any `json:"arguments"`
				} `json:"content"`
				Metadata map[string]any `json:"metadata"`
			}
			if err := json.Unmarshal([]byte(lines[0]), &f); err != nil {
				t.Error(err)
			}
			asked = append(asked, fmt.Sprint(f.Metadata["phase"], f.Metadata["hook"], f.Metadata["caller"], f.Name, f.Content.Arguments["n"], len(lines)))
			switch f.Metadata["phase"] {
			case "before":
				return `{"type":"TOOL_CALL","content":{"arguments":{"n":8}}} {"type":"END"}`
			case "after":
				return `{"type":"TICK"}{"type":"TOOL_RESULT","content":{"result":{"n":9}}}{"type":"END"}`
			}
			return `{"type":"END"}`
		})
		if res := w.d.Do(t.Context(), numbered(7)); res.Err != nil || numberOf(t, res.Result) != 9 {
			t.Errorf("got %s %v", res.Result, res.Err)
		}
		w.d.Drain(t.Context())
		want := []string{"beforepolicymeecho7 1", "observepolicymeecho8 1", "afterpolicymeecho8 2", "observepolicymeecho8 2"}
		slices.Sort(asked[1:3]) // an observer is told beside the call
		slices.Sort(want[1:3])
		if !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
	})
}

// contract: A35, W31
func TestGateOnTheBusFailsClosed(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"absent":        {"-", "nobody answers on wb.hook.policy"},
		"silent":        {"", "longer than 5s"},
		"no END":        {`{"type":"META","content":{"decision":"proceed"}}`, "longer than 5s"},
		"no decision":   {`{"type":"END"}`, "no decision"},
		"two":           {`{"type":"META","content":{"decision":"proceed"}}{"type":"TOOL_CALL","content":{"arguments":{"n":1}}}{"type":"END"}`, "2 decisions"},
		"more and more": {strings.Repeat(`{"type":"META","content":{"decision":"proceed"}}`, 3), "2 decisions"}, // it is not read on
		"other word":    {`{"type":"META","content":{"decision":"allow"}}{"type":"END"}`, `decision "allow"`},
		"other case":    {`{"type":"META","content":{"decision":"Proceed"}}{"type":"END"}`, `decision "Proceed"`},
		"no word":       {`{"type":"META","content":{"allow":true}}{"type":"END"}`, `decision ""`},
		"other frame":   {`{"type":"TEXT","content":{"text":"proceed"}}{"type":"END"}`, "TEXT decides nothing"},
		"unknown frame": {`{"type":"PROCEED"}{"type":"END"}`, "PROCEED decides nothing"},
		"garbage":       {`proceed`, "policy"},
		"empty":         {"\n", "empty message"},
		"error":         {`{"type":"ERROR","content":{"code":"UNAVAILABLE","message":"no database"}}{"type":"END"}`, "no database"},
		"error text":    {`{"type":"ERROR","content":{"message":"no database"}}{"type":"END"}`, "no database"},
		"gap":           {`{"type":"META","seq":2,"content":{"decision":"proceed"}}{"type":"END","seq":3}`, "missing"},
		"bad arguments": {`{"type":"TOOL_CALL","content":{"arguments":{"n":"x"}}}{"type":"END"}`, "cannot be"},
		"bad result":    {`{"type":"TOOL_RESULT","content":{"result":{"m":1}}}{"type":"END"}`, "cannot be"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hookedBy(hook.Remote("policy", hook.PhaseBefore)), func(t *testing.T, w *world) {
				f := w.serve("i", copier, back)
				if c.answer != "-" {
					w.foreign("policy", func(*nats.Msg) string { return c.answer })
				}
				res := w.d.Do(t.Context(), numbered(7))
				wantCode(t, res, frames.CodeDenied)
				if !strings.Contains(res.Err.Message, `hook "policy" failed`) || !strings.Contains(res.Err.Message, c.want) {
					t.Errorf("got %q, want %q in it", res.Err.Message, c.want)
				}
				if f.served() != 0 || res.Err.Hook != "policy" || res.Err.Effect != frames.EffectNone {
					t.Errorf("the tool ran %d times: %+v", f.served(), res.Err)
				}
			})
		})
	}
}

// contract: B31, A35
func TestHookOnTheBusBehindTheToolChangesNothingByFailing(t *testing.T) {
	for name, answer := range map[string]string{
		"absent": "-", "silent": "", "garbage": "no", "error": `{"type":"ERROR","content":{"message":"no"}}{"type":"END"}`,
		"call":   `{"type":"TOOL_CALL","content":{"arguments":{"n":1}}}{"type":"END"}`,
		"denies": `{"type":"META","content":{"decision":"deny"}}{"type":"END"}`,
		"misfit": `{"type":"TOOL_RESULT","content":{"result":{"m":1}}}{"type":"END"}`,
	} {
		t.Run(name, func(t *testing.T) {
			remote := hook.Remote("policy", hook.PhaseAfter, hook.PhaseObserve)
			inBubble(t, hookedBy(remote), func(t *testing.T, w *world) {
				f := w.serve("i", copier, back)
				if answer != "-" {
					w.foreign("policy", func(*nats.Msg) string { return answer })
				}
				res := w.d.Do(t.Context(), numbered(7))
				if res.Err != nil || numberOf(t, res.Result) != 7 || f.served() != 1 {
					t.Errorf("got %s %v, the tool ran %d times", res.Result, res.Err, f.served())
				}
				w.d.Drain(t.Context())
				if got := w.d.HookStats()[0].Failed; got == 0 {
					t.Error("nothing is counted")
				}
			})
		})
	}
}

// Several processes that serve a hook share the requests.
func TestPolicyServicesShareRequests(t *testing.T) {
	inBubble(t, hookedBy(hook.Remote("policy", hook.PhaseBefore)), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		n := make(chan struct{}, 100)
		for range 2 {
			w.serveHook(gate("policy", func(*hook.Call) hook.Decision { n <- struct{}{}; return hook.Proceed() }))
		}
		for i := range 10 {
			c := numbered(i)
			if res := w.d.Do(t.Context(), c); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
		if len(n) != 10 {
			t.Errorf("asked %d times for 10 calls", len(n))
		}
	})
}

// A service that is no gate denies where it is asked as one, and keeps the rest.
func TestPolicyServiceWithoutTheFunction(t *testing.T) {
	inBubble(t, hookedBy(everyPhase("policy")), func(t *testing.T, w *world) {
		w.serve("i", copier, back)
		w.serveHook(hook.Hook{Name: "policy", Observe: (&told{}).observe})
		res := w.d.Do(t.Context(), numbered(7))
		wantCode(t, res, frames.CodeDenied)
		if !strings.Contains(res.Err.Message, "no gate") {
			t.Errorf("got %q", res.Err.Message)
		}
	})
}

// The reply of a hook's request lies in the dispatcher's inbox; a policy service
// answers nowhere else.
func TestHookAnswersInboxesOnly(t *testing.T) {
	inBubble(t, hookedBy(hook.Remote("policy", hook.PhaseBefore)), func(t *testing.T, w *world) {
		asked := 0
		w.serveHook(gate("policy", func(*hook.Call) hook.Decision { asked++; return hook.Proceed() }))
		f := frames.Call("echo", nil)
		f.Metadata.Set("phase", frames.Value("before"))
		data, err := frames.Encode(frames.Msgpack, &f)
		if err != nil {
			t.Fatal(err)
		}
		for _, reply := range []string{"", "wb.tool.echo", "wb.inst.local.i.echo"} {
			if err := w.conn.NATS().PublishMsg(&nats.Msg{Subject: w.conn.Hook("policy"), Reply: reply, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		f.Metadata.Set("phase", frames.Value("during"))
		_, err = w.conn.Request(within(t, time.Second), w.conn.Hook("policy"), &f)
		if frames.CodeOf(err) != frames.CodeBadFrame || !strings.Contains(err.Error(), "during") {
			t.Errorf("got %v", err)
		}
		start := frames.Start()
		if _, err = w.conn.Request(within(t, time.Second), w.conn.Hook("policy"), &start); frames.CodeOf(err) != frames.CodeBadFrame {
			t.Errorf("got %v", err)
		}
		f.Metadata.Set("phase", frames.Value("after"))
		if _, err = w.conn.Request(within(t, time.Second), w.conn.Hook("policy"), &f); frames.CodeOf(err) != frames.CodeBadFrame {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if asked != 0 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func TestServeNeedsTheRole(t *testing.T) {
	inBubble(t, hookedBy(), func(t *testing.T, w *world) {
		quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
		err := hook.Serve(t.Context(), w.connect("local", quiet), gate("policy", nil))
		if frames.CodeOf(err) != frames.CodeDenied || !strings.Contains(err.Error(), "role hook") {
			t.Errorf("got %v", err)
		}
		if err := hook.Serve(t.Context(), w.connect("hook"), hook.Hook{Name: "a.b"}); frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("got %v", err)
		}
	})
}

// A call that no hook sees costs what it did.
func TestHooksOfOthersCostNothing(t *testing.T) {
	deny := gate("policy", func(*hook.Call) hook.Decision { return hook.Deny("no") })
	deny.Tools = []string{"other", "run_*"}
	for name, cfg := range map[string]dispatch.Config{"none": hookedBy(), "of others": hookedBy(deny)} {
		inBubble(t, cfg, func(t *testing.T, w *world) {
			if n := testing.AllocsPerRun(100, func() {
				if w.d.Hooked(numberedSeven) {
					t.Error("a hook sees it")
				}
			}); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		})
	}
}

var numberedSeven = numbered(7)
