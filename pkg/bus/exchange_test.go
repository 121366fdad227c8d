package bus_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: P23, P24
func TestExchangeOfManyAnswers(t *testing.T) {
	for _, enc := range []frames.Encoding{frames.Msgpack, frames.JSON} {
		inBubble(t, func(t *testing.T, r *rig) {
			r.handle(t, r.me.Subjects.Call("*", "*"), func(_ context.Context, q *bus.Request) {
				if q.Caller() != "me" || q.Encoding != enc {
					t.Errorf("caller %q, encoding %v", q.Caller(), q.Encoding)
				}
				for _, s := range []string{"a", "b"} {
					_ = q.Send(frames.Text(s))
				}
				_ = q.End(frames.EndCompleted, frames.Text("c"))
				wantCode(t, q.Send(frames.Text("d")), frames.CodeConflict)
			})
			x := r.open(t, enc)
			var got strings.Builder
			var seq uint64
			for f, err := range x.All(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if seq++; f.Seq != seq {
					t.Errorf("seq %d, want %d", f.Seq, seq)
				}
				got.WriteString(f.Text() + f.Reason())
			}
			if got.String() != "abc"+frames.EndCompleted {
				t.Errorf("got %s", got.String())
			}
			if _, err := x.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("behind END: %v", err)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		start := time.Now()
		_, err := r.open(t, frames.Msgpack).Next(t.Context())
		wantCode(t, err, frames.CodeUnavailable)
		if took := time.Since(start); took < 15*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("three tries took %v", took)
		}
	})
}

// Interest may take a moment to cross a cluster.
func TestListenerThatComesInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		x := r.open(t, frames.Msgpack)
		synctest.Wait() // the first try has failed
		r.handle(t, r.me.Subjects.Call("*", "*"), answer())
		if _, err := x.Next(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnswersThatBreakOff(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle(t, r.me.Subjects.Call("*", "*"), func(_ context.Context, q *bus.Request) { _ = q.Send(frames.Text("a")) })
		x := r.open(t, frames.Msgpack)
		if _, err := x.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := x.Next(t.Context())
		wantCode(t, err, frames.CodeNoResult)
		if took := time.Since(start); took != bus.SilenceLimit {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestTickRefreshesTheSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle(t, r.me.Subjects.Call("*", "*"), func(ctx context.Context, q *bus.Request) {
			for range 10 {
				<-time.After(5 * time.Second)
				_ = q.Send(frames.Tick())
			}
			_ = q.End(frames.EndCompleted)
		}, bus.WithWorkers(1))
		n := 0
		for _, err := range r.open(t, frames.Msgpack).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 11 {
			t.Errorf("%d frames", n)
		}
	})
}

// rawAnswers replies with messages made by hand.
func rawAnswers(t *testing.T, r *rig, messages ...[]byte) {
	t.Helper()
	nc := r.router.NATS()
	_, err := nc.QueueSubscribe(r.me.Subjects.Call("*", "*"), bus.QueueRouter, func(m *nats.Msg) {
		for _, data := range messages {
			_ = nc.Publish(m.Reply, data)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.router.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, fs ...frames.Frame) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := range fs {
		data, err := frames.Encode(frames.Msgpack, &fs[i])
		if err != nil {
			t.Fatal(err)
		}
		b.Write(data)
	}
	return b.Bytes()
}

func TestAnswersWithAGap(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		one, three := frames.Text("1"), frames.End(frames.EndCompleted)
		one.Seq, three.Seq = 1, 3
		rawAnswers(t, r, encode(t, one), encode(t, three))
		_, err := r.me.Request(t.Context(), r.me.Subjects.Call("me", "x"), &one)
		wantCode(t, err, frames.CodeNoResult)
	})
}

// An answer without seq is not checked: the simplest tool numbers nothing.
func TestAnswersWithoutSeq(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rawAnswers(t, r, encode(t, frames.Text("1")), encode(t, frames.Text("2"), frames.End(frames.EndCompleted)))
		q := frames.Call("x", nil)
		got, err := r.me.Request(t.Context(), r.me.Subjects.Call("me", "x"), &q)
		if err != nil || len(got) != 2 {
			t.Errorf("got %d frames, %v", len(got), err)
		}
	})
}

func TestUnreadableAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		rawAnswers(t, r, []byte{0xc1})
		_, err := r.open(t, frames.Msgpack).Next(t.Context())
		wantCode(t, err, frames.CodeBadFrame)
	})
}

func TestAnswersFasterThanTheyAreRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		many := encode(t, make([]frames.Frame, 0)...)
		for range 1 << 10 {
			many = append(many, encode(t, frames.Tick())...)
		}
		flood := make([][]byte, 20)
		for i := range flood {
			flood[i] = many
		}
		rawAnswers(t, r, flood...)
		x := r.open(t, frames.Msgpack)
		synctest.Wait()
		var last error
		for _, err := range x.All(t.Context()) {
			last = err
		}
		wantCode(t, last, frames.CodeNoResult)
	})
}

func TestMessageOverTheServersLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		f := frames.Text(strings.Repeat("x", 9<<20))
		_, err := r.me.Open(t.Context(), r.me.Subjects.Call("me", "x"), frames.Msgpack, &f)
		wantCode(t, err, frames.CodeTooLarge)
		wantCode(t, r.me.Publish(t.Context(), r.me.Subjects.Call("me", "x"), frames.Msgpack, &f), frames.CodeTooLarge)
	})
}

func TestReaderThatGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle(t, r.me.Subjects.Call("*", "*"), func(context.Context, *bus.Request) {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.open(t, frames.Msgpack).Next(ctx)
		wantCode(t, err, frames.CodeTimeout)
	})
}

func TestClosedConnectionEndsItsExchanges(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle(t, r.me.Subjects.Call("*", "*"), func(context.Context, *bus.Request) {})
		x := r.open(t, frames.Msgpack)
		r.me.Close()
		_, err := x.Next(t.Context())
		wantCode(t, err, frames.CodeUnavailable)
	})
}
