package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// A service that was sent one request may publish to every inbox: it must not
// find the reply subjects of others from its own.
func TestReplySubjectsCannotBeGuessed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var replies []string
		if _, err := r.router.NATS().QueueSubscribe(r.me.Subjects.Call("*", "*"), bus.QueueRouter, func(m *nats.Msg) {
			replies = append(replies, m.Reply)
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.router.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		const n = 200
		for range n {
			r.open(t, frames.Msgpack)
		}
		synctest.Wait()
		firsts := map[string]int{}
		for _, reply := range replies {
			token := reply[strings.LastIndex(reply, ".")+1:]
			firsts[token[len(token)-6:]]++
		}
		if len(replies) != n || len(firsts) != n {
			t.Errorf("%d replies end in %d ways", len(replies), len(firsts))
		}
	})
}

func TestCausesOfUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, err := r.open(t, frames.Msgpack).Next(t.Context())
		wantCode(t, err, frames.CodeUnavailable)
		if !errors.Is(err, nats.ErrNoResponders) || errors.Is(err, bus.ErrClosed) {
			t.Errorf("nobody listens: %v", err)
		}
		r.handle(t, r.me.Subjects.Call("*", "*"), func(context.Context, *bus.Request) {})
		x := r.open(t, frames.Msgpack)
		r.me.Close()
		_, err = x.Next(t.Context())
		wantCode(t, err, frames.CodeUnavailable)
		if !errors.Is(err, bus.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		q := frames.Call("x", nil)
		_, err = r.me.Open(t.Context(), r.me.Subjects.Call("me", "x"), frames.Msgpack, &q)
		wantCode(t, err, frames.CodeUnavailable)
	})
}

func TestFlushThatIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantCode(t, r.me.Flush(ctx), frames.CodeCancelled)
	})
}
