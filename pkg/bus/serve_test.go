package bus_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// A reply subject that is not the caller's inbox would make the service write
// where the caller may not.
func TestReplySubjectMustBeTheCallersInbox(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var handled atomic.Int32
		r.handle(t, r.me.Subjects.Call("*", "*"), func(_ context.Context, q *bus.Request) {
			handled.Add(1)
			_ = q.End(frames.EndCompleted)
		})
		body := encode(t, frames.Call("x", nil))
		for _, reply := range []string{"wb.in.me.s1", "_INBOX.you.1", "_INBOX.mean.1", "_INBOX.me", ""} {
			m := &nats.Msg{Subject: r.me.Subjects.Call("me", "x"), Reply: reply, Data: body}
			if err := r.me.NATS().PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.me.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := handled.Load(); n != 0 {
			t.Errorf("%d of them were handled", n)
		}
		if n := r.router.Stats().RefusedReplies; n != 5 {
			t.Errorf("%d were counted", n)
		}
	})
}

func TestUnreadableRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle(t, r.me.Subjects.Call("*", "*"), answer())
		r.handle(t, r.me.List("*"), answer())
		for _, c := range []struct {
			subject, data string
			answer        frames.Type
		}{
			{r.me.Subjects.Call("me", "x"), "\xc1", frames.TypeToolResult},
			{r.me.Subjects.Call("me", "x"), "", frames.TypeToolResult},
			{r.me.Subjects.Call("me", "x"), "\xdf\xff\xff\xff\xff\x00", frames.TypeToolResult},
			{r.me.Subjects.Call("me", "x"), `{"type":"NEW"}`, frames.TypeToolResult},
			{r.me.List("me"), `{"type":`, frames.TypeError},
			{r.me.List("me"), `{"type":"NEW"}`, frames.TypeError},
		} {
			got := make(chan frames.Message, 1)
			a, err := r.me.Ask(t.Context(), c.subject, []byte(c.data), func(m frames.Message, err error) {
				if err != nil {
					t.Error(err)
				}
				got <- m
			})
			if err != nil {
				t.Fatal(err)
			}
			m := <-got
			a.Stop()
			if len(m.Frames) != 2 || m.Frames[0].Type != c.answer || m.Frames[1].Type != frames.TypeEnd {
				t.Errorf("%q: got %v", c.data, m.Frames)
				continue
			}
			e := frames.ErrorFrom(m.Frames[0].Content)
			if c.answer == frames.TypeToolResult {
				e = frames.ErrorFrom(m.Frames[0].Content.Lookup("error"))
			}
			if e.Code != frames.CodeBadFrame {
				t.Errorf("%q: got %v", c.data, e)
			}
		}
		if n := r.router.Stats().BadFrames; n != 6 {
			t.Errorf("%d were counted", n)
		}
	})
}

// contract: P27, F8
func TestUnknownTypesBesideKnownOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle(t, r.me.Subjects.Call("*", "*"), func(_ context.Context, q *bus.Request) {
			if len(q.Frames) != 1 || q.Frames[0].Type != frames.TypeToolCall {
				t.Errorf("got %v", q.Frames)
			}
			_ = q.End(frames.EndCompleted)
		})
		odd, call := frames.NewFrame("NEW", nil), frames.Call("x", nil)
		if _, err := r.me.Request(t.Context(), r.me.Subjects.Call("me", "x"), &odd, &call); err != nil {
			t.Fatal(err)
		}
		if n := r.router.Stats().UnknownFrames; n != 1 {
			t.Errorf("%d were counted", n)
		}
	})
}

func TestHandlerThatPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle(t, r.me.List("*"), func(context.Context, *bus.Request) { panic("boom") })
		for range 2 {
			q := frames.Describe("")
			_, err := r.me.Request(t.Context(), r.me.List("me"), &q)
			wantCode(t, err, frames.CodeInternal)
		}
	})
}

func TestWorkersBoundTheHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var running, most atomic.Int32
		r.handle(t, r.me.Subjects.Call("*", "*"), func(_ context.Context, q *bus.Request) {
			most.Store(max(most.Load(), running.Add(1)))
			<-time.After(time.Second)
			running.Add(-1)
			_ = q.End(frames.EndCompleted)
		}, bus.WithWorkers(2))
		xs := make([]*bus.Exchange, 6)
		for i := range xs {
			xs[i] = r.open(t, frames.Msgpack)
		}
		start := time.Now()
		for _, x := range xs {
			if _, err := x.Next(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); most.Load() != 2 || took != 3*time.Second {
			t.Errorf("%d ran at once, in %v", most.Load(), took)
		}
	})
}

func TestDrainAnswersWhatCame(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.handle(t, r.me.Subjects.Call("*", "*"), func(_ context.Context, q *bus.Request) {
			<-time.After(time.Second)
			_ = q.End(frames.EndCompleted)
		}, bus.WithWorkers(1))
		x, y := r.open(t, frames.Msgpack), r.open(t, frames.Msgpack)
		synctest.Wait()
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, x := range []*bus.Exchange{x, y} {
			if _, err := x.Next(t.Context()); err != nil {
				t.Error(err)
			}
		}
		_, err := r.open(t, frames.Msgpack).Next(t.Context())
		wantCode(t, err, frames.CodeUnavailable)
	})
}

func TestDrainThatTakesTooLong(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		s := r.handle(t, r.me.Subjects.Call("*", "*"), func(context.Context, *bus.Request) { <-release }, bus.WithWorkers(1))
		r.open(t, frames.Msgpack)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantCode(t, s.Drain(ctx), frames.CodeTimeout)
		close(release)
	})
}

// contract: P23
func TestTraceHeadersGoAlong(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		r.handle(t, r.me.Subjects.Call("*", "*"), func(ctx context.Context, q *bus.Request) {
			if got := bus.TraceHeader(ctx).Get("traceparent"); got != parent {
				t.Errorf("got %q", got)
			}
			_ = q.Send(frames.Text("x"))
			_ = q.End(frames.EndCompleted)
		})
		nc := r.me.NATS()
		inbox := nc.NewInbox()
		answers, err := nc.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		ctx := bus.WithTrace(t.Context(), nats.Header{"traceparent": {parent}, "Other": {"x"}})
		m := &nats.Msg{Subject: r.me.Subjects.Call("me", "x"), Reply: inbox, Data: []byte(`{"type":"TOOL_CALL"}`), Header: bus.TraceHeader(ctx)}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			m, err := answers.NextMsgWithContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Header["traceparent"]; len(m.Header) != 1 || len(got) != 1 || got[0] != parent {
				t.Errorf("%s has the headers %v", m.Data, m.Header)
			}
		}
		if err := answers.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestConnectionMustHaveItsOwnInboxes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, err := bus.New(r.me.NATS(), "you")
		wantCode(t, err, frames.CodeConflict)
		for _, name := range []string{"", "a.b", "tool", "sys", "a b", ">"} {
			_, err := bus.New(r.me.NATS(), name)
			wantCode(t, err, frames.CodeValidationInput)
		}
	})
}
