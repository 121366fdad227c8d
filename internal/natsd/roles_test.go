package natsd_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/bustest"
)

// The least permissions are enough for what the roles do with JetStream; any
// refusal fails the test by the connection's error handler.
func TestRolesCanWork(t *testing.T) {
	tests := map[string]func(t *testing.T, m *bustest.Mesh){
		"loop takes jobs":                func(t *testing.T, m *bustest.Mesh) { takeJob(t, m) },
		"harness takes input":            func(t *testing.T, m *bustest.Mesh) { takeInput(t, m) },
		"loop writes sessions":           func(t *testing.T, m *bustest.Mesh) { writeSession(t, m, "loop") },
		"harness writes sessions":        func(t *testing.T, m *bustest.Mesh) { writeSession(t, m, "harness") },
		"router reads the catalogue":     func(t *testing.T, m *bustest.Mesh) { readCatalog(t, m, "router") },
		"loop reads the catalogue":       func(t *testing.T, m *bustest.Mesh) { readCatalog(t, m, "loop") },
		"dispatcher reads the catalogue": func(t *testing.T, m *bustest.Mesh) { readCatalog(t, m, "dispatcher") },
		"harness reads the catalogue":    func(t *testing.T, m *bustest.Mesh) { readCatalog(t, m, "harness") },
	}
	for name, work := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { work(t, bustest.Start(t)) })
		})
	}
}

func takeJob(t *testing.T, m *bustest.Mesh) {
	t.Helper()
	ctx, js := t.Context(), m.JetStream(t, "loop")
	ack, err := js.Publish(ctx, "wb.run.me.s1", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assets.Consumer(ctx, js, "WB_RUN", assets.LoopDurable)
	if err != nil {
		t.Fatal(err)
	}
	job := next(t, c)
	<-time.After(4 * time.Second) // virtual: most of the ack wait
	if err := job.InProgress(); err != nil {
		t.Fatal(err)
	}
	<-time.After(4 * time.Second)
	if err := job.NakWithDelay(time.Second); err != nil {
		t.Fatal(err)
	}
	job = next(t, c)
	if meta, err := job.Metadata(); err != nil || meta.NumDelivered != 2 || meta.Sequence.Stream != ack.Sequence {
		t.Errorf("redelivery: %+v, %v", meta, err)
	}
	if err := job.DoubleAck(ctx); err != nil {
		t.Error(err)
	}
}

func next(t *testing.T, c jetstream.Consumer) jetstream.Msg {
	t.Helper()
	msg, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// takeInput reads after the cursor in both ways: one by one and by an ordered consumer.
func takeInput(t *testing.T, m *bustest.Mesh) {
	t.Helper()
	ctx, js := t.Context(), m.JetStream(t, "harness")
	for range 2 {
		if _, err := js.Publish(ctx, "wb.inbox.me.s1", nil, jetstream.WithMsgID(t.Name()+"x")); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := assets.Stream(ctx, js, "WB_IN")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject("wb.inbox.me.s1")); err != nil {
		t.Error(err)
	}
	inbox, err := js.OrderedConsumer(ctx, "WB_IN", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"wb.inbox.me.s1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inbox.Next(); err != nil {
		t.Error(err)
	}
	wakeups, err := assets.Consumer(ctx, js, "WB_IN", assets.HarnessDurable)
	if err != nil {
		t.Fatal(err)
	}
	if err := next(t, wakeups).DoubleAck(ctx); err != nil {
		t.Error(err)
	}
	if info, err := wakeups.Info(ctx); err != nil || info.NumPending != 0 {
		t.Errorf("a repeated message id was stored twice: %+v, %v", info, err)
	}
}

func writeSession(t *testing.T, m *bustest.Mesh, identity string) {
	t.Helper()
	ctx, js := t.Context(), m.JetStream(t, identity)
	kv, err := js.KeyValue(ctx, assets.SessionsBucket("wb"))
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := kv.Watch(ctx, "me.*", jetstream.UpdatesOnly())
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
	for range 2 {
		<-watcher.Updates()
	}
	if err := watcher.Stop(); err != nil {
		t.Error(err)
	}
	if head, err := kv.Get(ctx, "me.s1"); err != nil || string(head.Value()) != "2" {
		t.Errorf("head = %v, %v", head, err)
	}
	history, err := js.OrderedConsumer(ctx, assets.SessionsStream("wb"),
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{assets.SessionSubject("wb", "me", "s1")}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := history.Next(); err != nil {
			t.Error(err)
		}
	}
}

func readCatalog(t *testing.T, m *bustest.Mesh, identity string) {
	t.Helper()
	ctx := t.Context()
	tool := m.Connect(t, "local")
	for _, subject := range []string{"wb.announce.local.i1.a", "wb.announce.local.i1.b", "wb.announce.local.i1.a"} {
		if err := tool.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := tool.FlushWithContext(deadline(t)); err != nil {
		t.Fatal(err)
	}
	js := m.JetStream(t, identity)
	catalog, err := js.OrderedConsumer(ctx, assets.CatalogStream("wb"), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"wb.announce.local.i1.b", "wb.announce.local.i1.a"} {
		if msg, err := catalog.Next(); err != nil || msg.Subject() != want {
			t.Errorf("catalogue: %v, %v; want %s", msg, err, want)
		}
	}
}
