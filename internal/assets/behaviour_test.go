package assets_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/bustest"
)

const errPerSubject = 10077 // maximum messages per subject exceeded

func refusedBySubject(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == errPerSubject
}

// The server keeps one job for a session until it is acknowledged.
func TestOneJobForASession(t *testing.T) {
	t.Parallel()
	js := bustest.Start(t).JetStream(t, "loop")
	ctx := t.Context()
	publish := func() error { _, err := js.Publish(ctx, "wb.run.me.s1", nil); return err }
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	if err := publish(); !refusedBySubject(err) {
		t.Errorf("second job while queued: %v", err)
	}
	c, err := assets.Consumer(ctx, js, "WB_RUN", assets.LoopDurable)
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := publish(); !refusedBySubject(err) {
		t.Errorf("second job while delivered: %v", err)
	}
	if err := job.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	if err := publish(); err != nil {
		t.Errorf("job after the acknowledgement: %v", err)
	}
}

// Unprocessed input of a session is bounded, and the bound is one session's.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	js := bustest.Start(t).JetStream(t, "harness")
	for range 1000 {
		if _, err := js.PublishAsync("wb.inbox.me.full", nil); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if _, err := js.Publish(t.Context(), "wb.inbox.me.full", nil); !refusedBySubject(err) {
		t.Errorf("input 1001: %v", err)
	}
	if _, err := js.Publish(t.Context(), "wb.inbox.me.other", nil); err != nil {
		t.Errorf("another session: %v", err)
	}
	stream, err := assets.Stream(t.Context(), js, "WB_IN")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("wb.inbox.me.full"), jetstream.WithPurgeSequence(501)); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "wb.inbox.me.full", nil); err != nil {
		t.Errorf("input after the purge: %v", err)
	}
}

// A session's key holds more revisions than a bucket made by nats.go may, and
// the fence holds after the history was trimmed.
func TestSessionHistory(t *testing.T) {
	t.Parallel()
	js := bustest.Start(t).JetStream(t, "harness")
	ctx := t.Context()
	kv, err := js.KeyValue(ctx, assets.SessionsBucket("wb"))
	if err != nil {
		t.Fatal(err)
	}
	var first, last uint64
	for i := range 100 {
		if last, err = kv.Update(ctx, "me.s1", []byte(strconv.Itoa(i)), last); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = last
		}
	}
	if history, err := kv.History(ctx, "me.s1"); err != nil || len(history) != 100 {
		t.Errorf("history has %d revisions, %v", len(history), err)
	}
	stream, err := assets.Stream(ctx, js, assets.SessionsStream("wb"))
	if err != nil {
		t.Fatal(err)
	}
	subject := assets.SessionSubject("wb", "me", "s1")
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeKeep(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(ctx, "me.s1", nil, first); err == nil {
		t.Error("a stale writer was let through after the trim")
	}
	if _, err := kv.Update(ctx, "me.s1", nil, last); err != nil {
		t.Errorf("the owner's update after the trim: %v", err)
	}
}
