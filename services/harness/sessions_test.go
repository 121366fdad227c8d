package harness_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// contract: G7, G58
func TestGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.must(frames.Param("workspace", "demo"), frames.Param("task", "look"), frames.Param("nodeId", "n1"), frames.Start(), frames.Text("one"))
		c.until("thinking 1")
		s := c.get()
		for key, want := range map[string]any{
			"workspace": "demo", "task": "look", "nodeId": "n1", "sessionId": "s1", "status": "thinking",
			"currentTurn": 1.0, "maxTurns": 100.0, "initialized": true, "n": 1.0, "epoch": 1.0,
		} {
			if s[key] != want {
				t.Errorf("%s = %v, want %v", key, s[key], want)
			}
		}
		if s["revision"] == nil || s["seen"] != nil {
			t.Errorf("state %v", s)
		}
	})
}

// contract: G8
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		c.start(frames.Text("one"))
		c.until("thinking 1")
		l.take(s1)
		l.update(s1, func(s *session.State) ([]session.Change, error) {
			return s.Assistant(l.owner, session.Answer{
				Message: provider.Message{
					Text: "reading", ProviderData: []byte(`{"secret":1}`),
					Calls: []provider.Call{{ModelID: "toolu_1", Name: "read", Arguments: `{"n":1.0}`}},
				},
				Calls: []session.PendingCall{{}},
			})
		})
		l.update(s1, func(s *session.State) ([]session.Change, error) {
			failed := frames.FailedResult(frames.NewError(frames.CodeTimeout, "late"))
			return s.Result(l.owner, session.Outcome{CallID: s.Pending[0].ID, Content: failed.Content})
		})
		all, err := c.ask(map[string]any{"op": "history", "sid": "s1"})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(all, "\n")
		for _, want := range []string{
			`"role":"system"`, `"content":"one","entry":1`, `"content":"reading","entry":3`,
			`"argumentsJson":"{\"n\":1.0}"`, `"content":"late","entry":4,"epoch":2,"isError":true`, `{"page":{"after":4,"more":false}}`,
		} {
			if !strings.Contains(strings.ReplaceAll(sortedKeys(got), " ", ""), want) {
				t.Errorf("no %s in\n%s", want, sortedKeys(got))
			}
		}
		for _, secret := range []string{"toolu_1", "secret"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s goes to clients:\n%s", secret, got)
			}
		}
		page, err := c.ask(map[string]any{"op": "history", "sid": "s1", "after": 1, "limit": 2})
		if err != nil || len(page) != 2 || !strings.Contains(page[1], `"after":3,"more":true`) {
			t.Errorf("page %q, %v", page, err)
		}
		if page, err := c.ask(map[string]any{"op": "history", "sid": "s1", "after": 4}); err != nil || len(page) != 1 {
			t.Errorf("behind the last entry: %q, %v", page, err)
		}
		_, err = c.ask(map[string]any{"op": "history", "sid": "s1", "after": 5})
		if e := frames.AsError(err); e == nil || e.Code != frames.CodeConflict || e.Reason != "gap" {
			t.Errorf("behind an entry that is none: %v", err)
		}
	})
}

// A late joiner reads the very frames that others heard.
func TestHistoryFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		early := dial(t, mesh, "s1")
		early.start()
		for i := range 5 {
			early.must(frames.Text(fmt.Sprint("text", i)))
		}
		early.must(frames.Abort())
		want := early.until("END cancelled")
		late := dial(t, mesh, "s1")
		late.join()
		equal(t, summary(late.frames()), want...)
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		for _, sid := range []string{"s3", "s1", "s2"} {
			c := dial(t, mesh, sid)
			c.start()
			c.until("idle 0")
		}
		c := dial(t, mesh, "s1")
		got, err := c.ask(map[string]any{"op": "list"})
		if err != nil || len(got) != 4 || !strings.Contains(got[3], `"more":false`) {
			t.Fatalf("list %q, %v", got, err)
		}
		for i, s := range got[:3] {
			if !strings.Contains(s, fmt.Sprintf(`"sessionId":"s%d"`, i+1)) || !strings.Contains(s, `"status":"idle"`) {
				t.Errorf("session %d: %s", i, s)
			}
		}
		page, err := c.ask(map[string]any{"op": "list", "after": "s1", "limit": 1})
		if err != nil || len(page) != 2 || !strings.Contains(page[0], `"s2"`) || !strings.Contains(page[1], `"after":"s2","more":true`) {
			t.Errorf("page %q, %v", page, err)
		}
	})
}

func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.start(frames.Text("one"))
		c.until("thinking 1")
		remove := map[string]any{"op": "delete", "sid": "s1"}
		if _, err := c.ask(remove); frames.CodeOf(err) != frames.CodeConflict {
			t.Errorf("a running session: %v, want CONFLICT", err)
		}
		remove["force"] = true
		if got, err := c.ask(remove); err != nil || got[0] != `{"deleted":"s1"}` {
			t.Errorf("%q, %v", got, err)
		}
		for _, op := range []string{"get", "history", "delete"} {
			if _, err := c.ask(map[string]any{"op": op, "sid": "s1"}); frames.CodeOf(err) != frames.CodeNotFound {
				t.Errorf("%s: %v, want NOT_FOUND", op, err)
			}
		}
		fresh := dial(t, mesh, "s1")
		fresh.start()
		equal(t, fresh.until("idle 0"), "START", "PROGRESS", "idle 0")
		idle(t, mesh)
	})
}

func TestBadQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		for _, q := range []map[string]any{{"op": "drop", "sid": "s1"}, {"sid": "s1"}, {"op": "get"}, {"op": "get", "sid": "a.b"}} {
			if _, err := c.ask(q); frames.CodeOf(err) != frames.CodeValidationInput {
				t.Errorf("%v: %v, want VALIDATION_INPUT", q, err)
			}
		}
		f := frames.Text("list")
		if _, err := c.conn.Request(t.Context(), c.conn.Sessions("me"), &f); frames.CodeOf(err) != frames.CodeBadFrame {
			t.Errorf("a TEXT: %v, want BAD_FRAME", err)
		}
	})
}

// A caller sees its own sessions only, whatever ids others have.
// case: WS-H13, WS-H14
func TestCallersAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t, bustest.WithIdentity("you", natsd.RoleClient))
		begin(t, mesh)
		mine := dial(t, mesh, "s1")
		mine.start(frames.Text("mine"))
		mine.until("thinking 1")
		you, err := bus.New(mesh.Connect(t, "you"), "you")
		if err != nil {
			t.Fatal(err)
		}
		defer you.Close()
		get := frames.Meta(map[string]any{"op": "get", "sid": "s1"})
		if _, err := you.Request(t.Context(), you.Sessions("you"), &get); frames.CodeOf(err) != frames.CodeNotFound {
			t.Errorf("you get s1: %v, want NOT_FOUND", err)
		}
		text := frames.Text("yours")
		if _, err := you.Request(t.Context(), you.In("you", "s1"), &text); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		list := frames.Meta(map[string]any{"op": "list"})
		got, err := you.Request(t.Context(), you.Sessions("you"), &list)
		if err != nil || len(got) != 2 {
			t.Errorf("your list: %v, %v", summary(got), err)
		}
		if s := mine.get(); s["currentTurn"] != 1.0 || s["queued"] != nil {
			t.Errorf("my session: %v", s)
		}
	})
}
