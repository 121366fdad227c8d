package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// use does what services do: request and reply, a KV update, a durable, a
// watcher, a list and a drain.
func use(t *testing.T) {
	t.Helper()
	m := bustest.Start(t)
	ctx := t.Context()
	echo(t, m)

	js := m.JetStream(t, "harness")
	kv, err := js.KeyValue(ctx, assets.SessionsBucket(m.Prefix()))
	if err != nil {
		t.Fatal(err)
	}
	rev, err := kv.Create(ctx, "me.s1", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(ctx, "me.s1", []byte("2"), rev); err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(ctx)
	if err != nil || fmt.Sprint(keys) != "[me.s1]" {
		t.Fatalf("keys = %v, %v", keys, err)
	}
	history, err := kv.History(ctx, "me.s1")
	if err != nil || len(history) != 2 {
		t.Fatalf("history = %v, %v", history, err)
	}
	wakeup(t, js)
}

func echo(t *testing.T, m *bustest.Mesh) {
	t.Helper()
	closed := make(chan struct{})
	tool := m.Connect(t, "local", nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	answer := func(msg *nats.Msg) { _ = msg.Respond(msg.Data) }
	if _, err := tool.QueueSubscribe("wb.tool.echo", "wb", answer); err != nil {
		t.Fatal(err)
	}
	if err := tool.FlushWithContext(deadline(t)); err != nil {
		t.Fatal(err)
	}
	msg, err := m.Connect(t, "router").RequestWithContext(t.Context(), "wb.tool.echo", []byte("hello"))
	if err != nil || string(msg.Data) != "hello" {
		t.Fatalf("answer = %v, %v", msg, err)
	}
	if err := tool.Drain(); err != nil {
		t.Fatal(err)
	}
	<-closed
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// wakeup leaves a delivery unacknowledged, so that it comes again.
func wakeup(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	ctx := t.Context()
	if _, err := js.Publish(ctx, "wb.inbox.me.s1", []byte("in")); err != nil {
		t.Fatal(err)
	}
	c, err := assets.Consumer(ctx, js, "WB_IN", assets.HarnessDurable)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(1)
	if err != nil {
		t.Fatal(err)
	}
	for msg := range batch.Messages() {
		if err := msg.DoubleAck(ctx); err != nil {
			t.Error(err)
		}
	}
	if batch.Error() != nil {
		t.Error(batch.Error())
	}
}

// Bubbles and plain tests with meshes share one process, although all of them
// use nats.go's pool of timers.
func TestInAndOutsideOfBubbles(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprintf("bubble%d", i), func(t *testing.T) { synctest.Test(t, use) })
		t.Run(fmt.Sprintf("plain%d", i), use)
	}
	for range 3 {
		synctest.Test(t, flushOften)
		flushOften(t)
	}
}

// flushOften leaves timers in the pool for each processor.
func flushOften(t *testing.T) {
	t.Helper()
	nc := bustest.Start(t, bustest.WithoutAssets()).Connect(t, "me")
	var g errgroup.Group
	for range 50 {
		g.Go(nc.Flush)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// A parallel test is told that its bubble would not be alone.
func TestParallelBubbleIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spy := &fatalSpy{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			bustest.Start(spy)
		}()
		<-done
		if !strings.Contains(spy.said, "must not be parallel") {
			t.Errorf("said %q", spy.said)
		}
	})
}

// fatalSpy keeps what Fatal says instead of failing the test.
type fatalSpy struct {
	testing.TB
	said string
}

func (s *fatalSpy) Fatal(args ...any) {
	s.said = fmt.Sprint(args...)
	runtime.Goexit()
}

// An ack wait passes in virtual time, and a second mesh may run in the bubble.
func TestAckWaitInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bustest.Start(t, bustest.WithPrefix("other"))
		m := bustest.Start(t, bustest.WithAckWait(3*time.Hour))
		js := m.JetStream(t, "harness")
		if _, err := js.Publish(t.Context(), "wb.inbox.me.s1", nil); err != nil {
			t.Fatal(err)
		}
		c, err := assets.Consumer(t.Context(), js, assets.InStream(m.Prefix()), assets.HarnessDurable)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 2 {
			if _, err := c.Next(jetstream.FetchMaxWait(4 * time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start).Round(time.Minute); waited != 3*time.Hour {
			t.Errorf("delivered again after %v, want 3h", waited)
		}
	})
}

func TestRestartKeepsState(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t)
	if _, err := m.JetStream(t, "harness").Publish(t.Context(), "wb.inbox.me.s1", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	m.Restart(t)
	stream, err := assets.Stream(t.Context(), m.JetStream(t, "harness"), "WB_IN")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(t.Context(), "wb.inbox.me.s1")
	if err != nil || string(msg.Data) != "kept" {
		t.Errorf("after the restart: %v, %v", msg, err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t, bustest.WithPrefix("lab"), bustest.WithListener(), bustest.WithoutAssets(),
		bustest.WithIdentity("alice", natsd.RoleClient))
	seed, err := nats.NkeyOptionFromSeed(m.Server().SeedFile("alice"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(m.Server().ClientURL(), seed, nats.CustomInboxPrefix("_INBOX.alice"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.RequestWithContext(t.Context(), "lab.list.alice", nil); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("err = %v, want no responders", err)
	}
	_, err = assets.Stream(t.Context(), m.JetStream(t, "admin"), assets.InStream(m.Prefix()))
	if code := frames.CodeOf(err); code != frames.CodeUnavailable {
		t.Errorf("code = %s, want UNAVAILABLE: %v", code, err)
	}
}
