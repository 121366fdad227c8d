package assets_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup gives an administrator's JetStream on a server without assets.
func setup(t *testing.T) jetstream.JetStream {
	t.Helper()
	return bustest.Start(t, bustest.WithoutAssets()).JetStream(t, "admin")
}

func ensure(t *testing.T, js jetstream.JetStream, cfg assets.Config) {
	t.Helper()
	if err := assets.Ensure(t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
}

// settings are those of a stream that the design fixes.
type settings struct {
	Subjects      string
	Retention     jetstream.RetentionPolicy
	Storage       jetstream.StorageType
	Discard       jetstream.DiscardPolicy
	PerSubject    int64
	NewPerSubject bool
	MaxBytes      int64
	MaxAge        time.Duration
	AllowDirect   bool
	Rollup        bool
	DenyDelete    bool
	DenyPurge     bool
	NoAck         bool
	Replicas      int
	Schema        string
}

func settingsOf(t *testing.T, js jetstream.JetStream, name string) settings {
	t.Helper()
	stream, err := assets.Stream(t.Context(), js, name)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	return settings{
		strings.Join(c.Subjects, " "), c.Retention, c.Storage, c.Discard, c.MaxMsgsPerSubject, c.DiscardNewPerSubject,
		c.MaxBytes, c.MaxAge, c.AllowDirect, c.AllowRollup, c.DenyDelete, c.DenyPurge, c.NoAck, c.Replicas,
		c.Metadata["weavebus.schema"],
	}
}

func TestEnsureMakesTheTable(t *testing.T) {
	t.Parallel()
	js := setup(t)
	for range 2 { // the second time changes nothing
		ensure(t, js, assets.Config{Prefix: "lab"})
	}
	want := map[string]settings{
		"KV_LAB_SESSIONS": {
			Subjects: "$KV.LAB_SESSIONS.>", Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
			PerSubject: 1_000_000, MaxBytes: -1, Rollup: true, DenyDelete: true, Replicas: 1, Schema: "1",
		},
		"LAB_IN": {
			Subjects: "lab.inbox.*.*", Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
			PerSubject: 1_000, NewPerSubject: true, MaxBytes: 256 << 20, Replicas: 1, Schema: "1",
		},
		"LAB_RUN": {
			Subjects: "lab.run.*.*", Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
			Discard: jetstream.DiscardNew, PerSubject: 1, NewPerSubject: true, MaxBytes: -1, Replicas: 1, Schema: "1",
		},
		"LAB_CATALOG": {
			Subjects: "lab.announce.>", Storage: jetstream.MemoryStorage, Discard: jetstream.DiscardOld,
			PerSubject: 1, MaxBytes: 128 << 20, MaxAge: 10 * time.Minute, NoAck: true, Replicas: 1, Schema: "1",
		},
		"LAB_BLOBS": {
			Subjects: "lab.blob.*.*.*", Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
			PerSubject: 1, MaxBytes: -1, DenyDelete: true, Replicas: 1, Schema: "1",
		},
		"KV_LAB_TOOLS": {
			Subjects: "$KV.LAB_TOOLS.>", Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
			PerSubject: 1, MaxBytes: -1, Rollup: true, DenyDelete: true, Replicas: 1, Schema: "1",
		},
	}
	got := map[string]settings{}
	for info := range js.ListStreams(t.Context()).Info() {
		got[info.Config.Name] = settingsOf(t, js, info.Config.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
}

func TestDurables(t *testing.T) {
	t.Parallel()
	js := setup(t)
	ensure(t, js, assets.Config{})
	check := func(stream, durable string, ackWait time.Duration, pending int) {
		t.Helper()
		c, err := assets.Consumer(t.Context(), js, stream, durable)
		if err != nil {
			t.Fatal(err)
		}
		got := c.CachedInfo().Config
		if got.AckPolicy != jetstream.AckExplicitPolicy || got.MaxDeliver != -1 || got.AckWait != ackWait || got.MaxAckPending != pending {
			t.Errorf("%s: %+v", durable, got)
		}
	}
	check("WB_IN", assets.HarnessDurable, 5*time.Second, 2000)
	check("WB_RUN", assets.LoopDurable, 5*time.Second, 1000)
	ensure(t, js, assets.Config{AckWait: time.Minute})
	check("WB_RUN", assets.LoopDurable, time.Minute, 1000)
}

// Several init processes at once are no conflict.
func TestEnsureConcurrently(t *testing.T) {
	t.Parallel()
	js := setup(t)
	var g errgroup.Group
	for range 8 {
		g.Go(func() error { return assets.Ensure(t.Context(), js, assets.Config{}) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestEnsureKeepsData(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t, bustest.WithoutAssets())
	js := m.JetStream(t, "admin")
	ensure(t, js, assets.Config{})
	kv, err := m.JetStream(t, "harness").KeyValue(t.Context(), assets.SessionsBucket("wb"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "me.s1", "kept"); err != nil {
		t.Fatal(err)
	}
	ensure(t, js, assets.Config{InboxMaxBytes: 1 << 20})
	if got := settingsOf(t, js, "WB_IN").MaxBytes; got != 1<<20 {
		t.Errorf("MaxBytes = %d, want the new setting", got)
	}
	if got, err := kv.Get(t.Context(), "me.s1"); err != nil || string(got.Value()) != "kept" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRefusedStreams(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		metadata map[string]string
		says     string
	}{
		"newer schema": {map[string]string{"weavebus.schema": "2"}, "newer"},
		"not ours":     {nil, "not made by weavebus"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := setup(t)
			foreign := jetstream.StreamConfig{Name: "WB_RUN", Subjects: []string{"foreign"}, Metadata: tt.metadata}
			if _, err := js.CreateStream(t.Context(), foreign); err != nil {
				t.Fatal(err)
			}
			wantError(t, assets.Ensure(t.Context(), js, assets.Config{}), frames.CodeConflict, tt.says)
			_, err := assets.Stream(t.Context(), js, "WB_RUN")
			wantError(t, err, frames.CodeConflict, tt.says)
			stream, err := js.Stream(t.Context(), "WB_RUN")
			if err != nil || stream.CachedInfo().Config.Subjects[0] != "foreign" {
				t.Errorf("the stream was changed: %v", err)
			}
		})
	}
}

func wantError(t *testing.T, err error, code frames.Code, says string) {
	t.Helper()
	if frames.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("err = %v, want %s that says %q", err, code, says)
	}
}

func TestMissingAssets(t *testing.T) {
	t.Parallel()
	js := setup(t)
	_, err := assets.Stream(t.Context(), js, assets.SessionsStream("wb"))
	wantError(t, err, frames.CodeUnavailable, "weavebus init")
	_, err = assets.Consumer(t.Context(), js, "WB_RUN", "loop")
	wantError(t, err, frames.CodeUnavailable, "weavebus init")
}

func TestConfigNamesTheField(t *testing.T) {
	t.Parallel()
	tests := map[string]assets.Config{
		"prefix":        {Prefix: "Wb.x"},
		"Replicas: 2":   {Replicas: 2},
		"AckWait":       {AckWait: -1},
		"InboxMaxBytes": {InboxMaxBytes: -1},
	}
	for field, cfg := range tests {
		wantError(t, assets.Ensure(t.Context(), nil, cfg), frames.CodeValidationInput, field)
	}
}

func TestReplicasNeedACluster(t *testing.T) {
	t.Parallel()
	err := assets.Ensure(t.Context(), setup(t), assets.Config{Replicas: 3})
	wantError(t, err, frames.CodeValidationInput, "Replicas")
}

// An identity that may not make streams gets no answer at all from NATS.
func TestNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := bustest.Start(t)
		refused := make(chan error, 16)
		nc := m.Connect(t, "me", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, assets.Ensure(t.Context(), js, assets.Config{}), frames.CodeUnavailable, "allowed")
		if err := <-refused; !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("err = %v, want a permissions violation", err)
		}
	})
}

func TestEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, assets.Ensure(ctx, setup(t), assets.Config{}), frames.CodeCancelled, "canceled")
}
