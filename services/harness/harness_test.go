package harness_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/services/harness"
)

var s1 = session.Key{Caller: "me", SID: "s1"}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// idle checks that no input and no wake-up is left.
func idle(t *testing.T, mesh *bustest.Mesh) {
	t.Helper()
	synctest.Wait()
	stream, err := assets.Stream(t.Context(), mesh.JetStream(t, "admin"), assets.InStream(mesh.Prefix()))
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != 0 {
		t.Errorf("%d inputs are left, %v", info.State.Msgs, err)
	}
	consumer, err := stream.Consumer(t.Context(), assets.HarnessDurable)
	if err != nil {
		t.Fatal(err)
	}
	if ci := consumer.CachedInfo(); ci.NumAckPending != 0 || ci.NumPending != 0 {
		t.Errorf("wake-ups: %d not acknowledged, %d not delivered", ci.NumAckPending, ci.NumPending)
	}
}

// contract: G9, G28, G58
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		l.listen(true)

		id := c.must(frames.Param("workspace", "demo", frames.WithID("p1")), frames.Param("task", "look"), frames.Param("model", "a/b"), frames.Start())
		if id != "p1" {
			t.Errorf("accepted %q, want the first frame's id", id)
		}
		equal(t, c.until("idle 0"), "START", "PROGRESS", "idle 0")
		text := c.must(frames.Text("hello"))
		if text == "" {
			t.Error("no id was made for a frame without one")
		}
		c.until("thinking 1")
		job := l.job()
		if job.Subject() != "wb.run.me.s1" {
			t.Errorf("job %s", job.Subject())
		}
		l.take(s1)
		l.answer(s1, "hi")
		l.update(s1, func(s *session.State) ([]session.Change, error) { return s.Release(l.owner, 1, nil) })
		if err := job.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.must(frames.End(""))
		equal(t, c.until("END completed"), "START", "PROGRESS", "idle 0", "user: hello", "thinking 1",
			"applied", "assistant: hi", "idle 1", "applied", "done 1", "END completed")
		if got := c.frames()[3].Metadata.Text("inputId"); got != text {
			t.Errorf("inputId %q, want %q", got, text)
		}
		idle(t, mesh)
	})
}

// contract: G15, G16, G21, G23, G24
func TestTextsOnTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		for i, f := range []frames.Frame{
			frames.Text("early"), frames.Start(), frames.Param("workspace", "demo"), frames.Start(),
			frames.Param("task", "look"), frames.Start(), frames.Start(), frames.Data(map[string]any{"type": "x"}), frames.Data(map[string]any{}),
		} {
			f.ID = fmt.Sprint("i", i+1)
			c.must(f)
		}
		equal(t, c.until("BAD_FRAME: DATA frame missing type i9"),
			"CONFLICT: Harness not initialized. Send START frame first. i1",
			"CONFLICT: Workspace not configured. Send PARAM(workspace, path) first. i2",
			"applied",
			"CONFLICT: Task not configured. Send PARAM(task, description) first. i4",
			"applied", "START", "PROGRESS", "idle 0",
			"CONFLICT: the session has started already i7",
			"BAD_FRAME: Unknown data type: x i8",
			"BAD_FRAME: DATA frame missing type i9")
		idle(t, mesh)
	})
}

// contract: G29
func TestRefusedInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		for _, x := range []struct {
			name string
			f    frames.Frame
			want string
		}{
			{"a type that no session takes", frames.Tick(), "BAD_FRAME: Unknown frame type: TICK"},
			{"an unknown type", frames.NewFrame("NONSENSE", nil), "BAD_FRAME: Unknown frame type: NONSENSE"},
			{"an id that breaks a header", frames.Text("x", frames.WithID("a\r\nb: c")), "BAD_FRAME: frame id"},
			{"a long id", frames.Text("x", frames.WithID(strings.Repeat("x", 129))), "BAD_FRAME: frame id of 129 bytes, the limit is 128"},
			{"too much", frames.Text(strings.Repeat("x", 5<<20)), "TOO_LARGE: input of"},
		} {
			if _, err := c.send(x.f); err == nil || !strings.HasPrefix(err.Error(), x.want) {
				t.Errorf("%s: %v, want %s", x.name, err, x.want)
			}
		}
		c.sid = "bad~"
		if _, err := c.send(frames.Text("x")); frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("a session id with ~: %v", err)
		}
		idle(t, mesh)
		if heads, err := c.ask(map[string]any{"op": "list"}); err != nil || len(heads) != 1 {
			t.Errorf("refused input made sessions: %v, %v", heads, err)
		}
	})
}

// An answer comes in the encoding of its request, wb.out in that of START.
func TestEncodings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		text := `{"type":"PARAM","key":"workspace","value":"demo"}{"type":"PARAM","name":"task","value":"look"}{"type":"START"}{"type":"TEXT","content":{"text":"hällo"}}`
		m, err := c.conn.NATS().RequestWithContext(t.Context(), "wb.in.me.s1", []byte(text))
		if err != nil || !strings.Contains(string(m.Data), `"accepted"`) {
			t.Fatalf("answer %s, %v", m.Data, err)
		}
		c.until("user: hällo")
		if c.enc[frames.JSON] == 0 || c.enc[frames.Msgpack] != 0 {
			t.Errorf("messages by encoding: %v", c.enc)
		}
	})
}

// A message that was sent again is accepted, and applied once.
// case: WS-H03
func TestSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.start()
		for range 3 {
			c.must(frames.Text("one", frames.WithID("t1")))
		}
		time.Sleep(5 * time.Minute) // behind the stream's own window for repeats
		c.must(frames.Text("one", frames.WithID("t1")))
		c.must(frames.Text("two", frames.WithID("t2")))
		synctest.Wait()
		if s := c.get(); s["currentTurn"] != 1.0 || len(s["queued"].([]any)) != 1 {
			t.Errorf("state %v", s)
		}
	})
}

// case: WS-H10
func TestInputKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		begin(t, mesh)
		const sessions, values = 10, 30
		for i := range sessions {
			c := dial(t, mesh, fmt.Sprint("s", i))
			c.start()
			for v := range values {
				c.must(frames.Param("top_p", v))
			}
			c.must(frames.Text("end"))
			c.until("thinking 1")
		}
		store, err := session.Open(t.Context(), mesh.JetStream(t, "harness"), mesh.Prefix())
		if err != nil {
			t.Fatal(err)
		}
		for i := range sessions {
			checkOrder(t, store, session.Key{Caller: "me", SID: fmt.Sprint("s", i)}, values)
		}
		idle(t, mesh)
	})
}

// checkOrder: each input made one entry, in the order they were sent.
func checkOrder(t *testing.T, store *session.Store, key session.Key, values int) {
	t.Helper()
	entries, _, err := store.History(t.Context(), key, 0, 1000)
	if err != nil || len(entries) != values+2 {
		t.Fatalf("%s: %d entries, want %d, %v", key, len(entries), values+2, err)
	}
	for v := range values {
		if got := string(entries[v+1].State.Params["top_p"]); got != strconv.Itoa(v) {
			t.Fatalf("%s: entry %d has %s, want %d", key, v+2, got, v)
		}
	}
}

// A replica that dies between its commit and what follows leaves the wake-up:
// another publishes the head again and posts the job.
func TestRedeliveredWakeup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t, bustest.WithAckWait(time.Hour))
		js := mesh.JetStream(t, "harness")
		store, err := session.Open(t.Context(), js, mesh.Prefix())
		if err != nil {
			t.Fatal(err)
		}
		deadReplica(t, mesh, store)
		c, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		begin(t, mesh)
		synctest.Wait()
		if got := c.frames(); len(got) != 0 {
			t.Fatalf("published before the wake-up came again: %v", summary(got))
		}
		time.Sleep(time.Hour + time.Second)
		equal(t, c.until("thinking 1"), "START", "PROGRESS", "idle 0", "user: hello", "thinking 1")
		l.job()
		idle(t, mesh)
		if head, err := store.Head(t.Context(), s1); err != nil || head.N != 1 {
			t.Errorf("applied twice: n %d, %v", head.N, err)
		}
	})
}

// deadReplica stores, takes and applies an input and does nothing more.
func deadReplica(t *testing.T, mesh *bustest.Mesh, store *session.Store) {
	t.Helper()
	js := mesh.JetStream(t, "harness")
	fs := []frames.Frame{frames.Param("workspace", "demo"), frames.Param("task", "look"), frames.Param("model", "a/b"), frames.Start(), frames.Text("hello")}
	data, err := frames.Encode(frames.Msgpack, pointers(fs)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = js.Publish(t.Context(), "wb.inbox.me.s1", data); err != nil {
		t.Fatal(err)
	}
	consumer, err := assets.Consumer(t.Context(), js, assets.InStream(mesh.Prefix()), assets.HarnessDurable)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = consumer.Next(); err != nil {
		t.Fatal(err)
	}
	_, err = store.Create(t.Context(), s1, func(s *session.State) ([]session.Change, error) {
		return s.Apply(session.Input{Message: frames.Message{Frames: fs}, Sequence: 1}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// contract: G5
// case: WS-H17
func TestRestartKeepsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		stop := begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.start(frames.Text("one"))
		before := c.until("thinking 1")
		stop()
		if _, err := c.send(frames.Text("two")); frames.CodeOf(err) != frames.CodeUnavailable {
			t.Errorf("input without a harness: %v, want UNAVAILABLE", err)
		}
		c.conn.Close()
		mesh.Restart(t)

		begin(t, mesh)
		again, l := dial(t, mesh, "s1"), newLoop(t, mesh)
		if s := again.get(); s["status"] != "thinking" || s["currentTurn"] != 1.0 || s["n"] != 1.0 {
			t.Errorf("state after the restart: %v", s)
		}
		again.must(frames.Text("two"))
		synctest.Wait()
		l.job()
		l.take(s1)
		l.answer(s1, "first")
		again.join()
		equal(t, again.until("user: two"), append(before, "applied", "applied", "assistant: first", "idle 1", "user: two", "thinking 2")...)
	})
}

// A harness is drained in the middle of a stream of inputs, another goes on.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		stop := begin(t, mesh)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.start()
		const values = 40
		for v := range values {
			if v == values/2 {
				go stop()
			}
			c.must(frames.Param("top_p", v))
		}
		c.must(frames.Text("end"))
		c.until("thinking 1")
		store, err := session.Open(t.Context(), mesh.JetStream(t, "harness"), mesh.Prefix())
		if err != nil {
			t.Fatal(err)
		}
		checkOrder(t, store, s1, values)
		stop()
	})
}

func TestForeignInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		c := dial(t, mesh, "s1")
		if _, err := mesh.JetStream(t, "harness").Publish(t.Context(), "wb.inbox.me.s1", []byte{0xc1}); err != nil {
			t.Fatal(err)
		}
		begin(t, mesh)
		c.start()
		got := c.until("START")
		if !strings.HasPrefix(got[0], "BAD_FRAME: ") || !slices.Contains(got, "START") {
			t.Errorf("frames %q", got)
		}
		idle(t, mesh)
	})
}

// What does not fit into a state is refused, and the session goes on.
// contract: G36
func TestInputOverTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.start(frames.Text("one"))
		c.must(frames.Text(strings.Repeat("x", session.MaxState), frames.WithID("big")))
		c.must(frames.Text("two", frames.WithID("small")))
		synctest.Wait()
		last := c.frames()
		if got := summaryOf(&last[5]); !strings.HasPrefix(got, "TOO_LARGE: the session's state would be") || !strings.HasSuffix(got, " big") {
			t.Errorf("frames %q", summary(last))
		}
		if told := string(last[5].Content); strings.Contains(told, "xxx") {
			t.Error("the error tells the input's content")
		}
		if s := c.get(); len(s["queued"].([]any)) != 1 {
			t.Errorf("state %v", s)
		}
		idle(t, mesh)
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]harness.Config{
		"Wakeups": {Wakeups: -1}, "Requests": {Requests: -1}, "Identity": {Identity: "a.b"},
	} {
		err := harness.New(cfg).Run(t.Context(), app.Env{}, func() {})
		if frames.CodeOf(err) != frames.CodeValidationInput || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestWithoutStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t, bustest.WithoutAssets())
		env := app.Env{Identity: "harness", Prefix: mesh.Prefix(), NATS: mesh.Connect(t, "harness"), Work: context.Background()}
		err := harness.New(harness.Config{}).Run(t.Context(), env, func() { t.Error("ready") })
		if frames.CodeOf(err) != frames.CodeUnavailable || !strings.Contains(err.Error(), "weavebus init") {
			t.Errorf("err = %v", err)
		}
	})
}

// A reply subject that is not the caller's inbox is not answered, nor acted on.
func TestForeignReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		f := frames.Text("x")
		data, err := frames.Encode(frames.Msgpack, &f)
		if err != nil {
			t.Fatal(err)
		}
		for _, reply := range []string{"_INBOX.you.x", "wb.in.me.s2", ""} {
			if err := c.conn.NATS().PublishMsg(&nats.Msg{Subject: "wb.in.me.s1", Reply: reply, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.conn.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := c.ask(map[string]any{"op": "get", "sid": "s1"}); frames.CodeOf(err) != frames.CodeNotFound {
			t.Errorf("acted on: %v", err)
		}
	})
}

// A stream that is gone fails the input that comes, and nothing else.
func TestStreamIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.start()
		c.until("idle 0")
		if err := mesh.JetStream(t, "admin").DeleteStream(t.Context(), assets.InStream(mesh.Prefix())); err != nil {
			t.Fatal(err)
		}
		if _, err := c.send(frames.Text("lost")); frames.CodeOf(err) != frames.CodeUnavailable {
			t.Errorf("input without a stream: %v, want UNAVAILABLE", err)
		}
		time.Sleep(time.Minute)
		if s := c.get(); s["status"] != "idle" {
			t.Errorf("state %v", s)
		}
	})
}
