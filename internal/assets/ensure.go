package assets

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/pkg/frames"
)

// SchemaVersion is the version of the assets that this build makes and reads.
const SchemaVersion = 1

// schemaKey is the stream metadata key that holds the schema version.
const schemaKey = "weavebus.schema"

// Ensure creates what is missing of the mesh's streams, bucket and durable
// consumers, and brings the settings of the others up to date. It may be
// repeated, and run by several processes at once; data is never touched.
// A stream of a newer schema, or one of the same name that is not ours, is
// CONFLICT and is left as it is. The identity of js must be allowed to create streams.
func Ensure(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	for _, a := range table(cfg) {
		if err := ensureAsset(ctx, js, cfg, a); err != nil {
			return asError(err, a.stream.Name)
		}
	}
	return nil
}

func ensureAsset(ctx context.Context, js jetstream.JetStream, cfg Config, a asset) error {
	stream, err := ensureStream(ctx, js, cfg, a.stream)
	if err != nil || a.consumer == nil {
		return err
	}
	durable := *a.consumer
	durable.AckWait = cfg.ackWait(stream.CachedInfo().Config.Replicas)
	_, err = stream.CreateOrUpdateConsumer(ctx, durable)
	return err
}

func ensureStream(ctx context.Context, js jetstream.JetStream, cfg Config, want jetstream.StreamConfig) (jetstream.Stream, error) {
	want.Metadata = map[string]string{schemaKey: strconv.Itoa(SchemaVersion)}
	want.Replicas = max(cfg.Replicas, 1)
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return js.CreateOrUpdateStream(ctx, want)
	}
	if err != nil {
		return nil, err
	}
	if err := checkSchema(stream); err != nil {
		return nil, err
	}
	if cfg.Replicas == 0 {
		want.Replicas = stream.CachedInfo().Config.Replicas
	}
	return js.CreateOrUpdateStream(ctx, want)
}

// checkSchema refuses a stream that this build cannot read.
func checkSchema(stream jetstream.Stream) error {
	conf := stream.CachedInfo().Config
	version, err := strconv.Atoi(conf.Metadata[schemaKey])
	switch {
	case err != nil:
		return frames.NewError(frames.CodeConflict,
			"stream %s exists but was not made by weavebus init: remove it or choose another prefix", conf.Name)
	case version > SchemaVersion:
		return frames.NewError(frames.CodeConflict,
			"stream %s has schema %d, newer than %d, which this build knows: upgrade weavebus", conf.Name, version, SchemaVersion)
	}
	return nil
}
