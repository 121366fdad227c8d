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

// ticking serves calls that tick each 5 s until the test's end, and counts how
// often a caller was found gone.
func (r *rig) ticking(t *testing.T) *atomic.Int32 {
	var gone atomic.Int32
	r.handle(t, r.me.Subjects.Call("*", "*"), func(_ context.Context, q *bus.Request) {
		for range 4 {
			<-time.After(5 * time.Second) // virtual time
			if err := q.Tick(func() { gone.Add(1) }); err != nil {
				t.Error(err)
			}
		}
		_ = q.End(frames.EndCompleted)
		if err := q.Tick(func() { gone.Add(1) }); err != nil {
			t.Error(err)
		}
	}, bus.WithWorkers(4))
	return &gone
}

func TestTickKeepsAReaderWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		gone := r.ticking(t)
		var ticks int
		for f, err := range r.open(t, frames.JSON).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Type == frames.TypeTick {
				ticks++
			}
		}
		synctest.Wait()
		if ticks != 4 || gone.Load() != 0 {
			t.Errorf("%d ticks, gone %d times", ticks, gone.Load())
		}
	})
}

func TestTickFindsACallerThatIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		gone := r.ticking(t)
		q := frames.Call("x", nil)
		data, err := frames.Encode(frames.Msgpack, &q)
		if err != nil {
			t.Fatal(err)
		}
		nc := r.mesh.Connect(t, "me")
		if err := nc.PublishMsg(&nats.Msg{Subject: r.me.Subjects.Call("me", "x"), Reply: "_INBOX.me.gone", Data: data}); err != nil {
			t.Fatal(err)
		}
		<-time.After(6 * time.Second) // virtual time
		synctest.Wait()
		if gone.Load() != 1 {
			t.Errorf("gone %d times", gone.Load())
		}
		<-time.After(time.Minute) // virtual time
	})
}
