package assets

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Stream opens a stream by its name. A missing one is UNAVAILABLE, one of a
// newer schema CONFLICT.
func Stream(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, refusedOr(js, asError(err, name), name)
	}
	if err := checkSchema(stream); err != nil {
		return nil, err
	}
	return stream, nil
}

// Consumer opens a durable consumer of a stream, with the errors of [Stream].
func Consumer(ctx context.Context, js jetstream.JetStream, stream, durable string) (jetstream.Consumer, error) {
	if _, err := Stream(ctx, js, stream); err != nil {
		return nil, err
	}
	consumer, err := js.Consumer(ctx, stream, durable)
	if err != nil {
		return nil, asError(err, stream+"/"+durable)
	}
	return consumer, nil
}

// Error codes of JetStream's API that nats.go does not name.
const (
	errInsufficientResources = 10023
	errStorageExceeded       = 10047
	errMemoryExceeded        = 10028
	errNoSuitablePeers       = 10005
	errReplicasNeedCluster   = 10074
	errNameInUse             = 10058
)

// refusedOr is DENIED where the request got no answer because the server refused
// it, which it says on the connection only.
func refusedOr(js jetstream.JetStream, err error, what string) error {
	if frames.CodeOf(err) != frames.CodeUnavailable || !errors.Is(js.Conn().LastError(), nats.ErrPermissionViolation) {
		return err
	}
	return frames.NewError(frames.CodeDenied, "identity %s may not use %s with this key: check that it is the key of %s",
		js.Conn().Opts.Name, what, js.Conn().Opts.Name)
}

// asError gives an error of JetStream the code that it leaves with.
func asError(err error, what string) error {
	if _, ours := errors.AsType[*frames.Error](err); ours {
		return err
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
		return frames.NewError(frames.CodeUnavailable, "%s does not exist: run weavebus init against this NATS: %w", what, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return frames.NewError(frames.CodeUnavailable, "%s: JetStream is off: start nats-server with -js: %w", what, err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionClosed):
		return frames.NewError(frames.CodeUnavailable, "%s: JetStream does not answer: %w", what, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return frames.NewError(frames.CodeUnavailable,
			"%s: JetStream does not answer in time (is this identity allowed to use it?): %w", what, err)
	}
	return apiError(err, what)
}

func apiError(err error, what string) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return frames.AsError(err)
	}
	switch api.ErrorCode {
	case errInsufficientResources, errStorageExceeded, errMemoryExceeded, errNoSuitablePeers:
		return frames.NewError(frames.CodeUnavailable, "%s: the NATS server has no room for it: %w", what, err)
	case errReplicasNeedCluster:
		return invalid("Replicas: %s: more than one needs a cluster: %w", what, err)
	case errNameInUse:
		return frames.NewError(frames.CodeConflict, "%s exists with settings that cannot be changed: %w", what, err)
	}
	return frames.NewError(frames.CodeInternal, "%s: %w", what, err)
}
