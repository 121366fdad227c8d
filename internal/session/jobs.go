package session

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Jobs is the work queue of sessions: the server keeps one job a session, also
// while a loop works on it.
type Jobs struct {
	js       jetstream.JetStream
	stream   jetstream.Stream
	subjects bus.Subjects
}

// OpenJobs opens the work queue of a mesh. A stream that does not exist is UNAVAILABLE.
func OpenJobs(ctx context.Context, js jetstream.JetStream, prefix string) (*Jobs, error) {
	stream, err := assets.Stream(ctx, js, assets.RunStream(prefix))
	if err != nil {
		return nil, err
	}
	return &Jobs{js, stream, bus.Subjects{Prefix: prefix}}, nil
}

// errStoreRefused is the code of a message over a stream's limits: here, of a
// second one on a subject that holds one.
const errStoreRefused = 10077

// Post posts the job of a session. stands says that there was one already, queued
// or in a loop's hands; it is left as it is.
func (j *Jobs) Post(ctx context.Context, key Key) (stands bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	msg := &nats.Msg{Subject: j.subjects.Run(key.Caller, key.SID)}
	msg.Data, err = frames.Encode(frames.Msgpack, jobFrame(key))
	if err != nil {
		return false, err
	}
	_, err = j.js.PublishMsg(ctx, msg)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == errStoreRefused {
		return true, nil
	}
	if err != nil {
		return false, frames.NewError(frames.CodeUnavailable, "cannot post the job of session %s: %w", key.SID, bus.Words(err))
	}
	return false, nil
}

func jobFrame(key Key) *frames.Frame {
	f := frames.Start(frames.WithMeta("caller", key.Caller), frames.WithMeta("sessionId", key.SID))
	return &f
}

// Standing gives the sequence of a session's job, 0 where there is none.
func (j *Jobs) Standing(ctx context.Context, key Key) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	msg, err := j.stream.GetLastMsgForSubject(ctx, j.subjects.Run(key.Caller, key.SID))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, frames.NewError(frames.CodeUnavailable, "cannot read the job of session %s: %w", key.SID, bus.Words(err))
	}
	return msg.Sequence, nil
}

// KeyOf gives the session of a subject that ends in <caller>.<sid>: of input, a
// job or wb.out.
func KeyOf(subjects bus.Subjects, subject string) (Key, bool) {
	tokens := subjects.Tokens(subject)
	if len(tokens) != 3 {
		return Key{}, false
	}
	key := Key{tokens[1], tokens[2]}
	return key, key.Valid()
}

// Valid reports whether both parts can stand in a subject.
func (k Key) Valid() bool { return frames.ValidName(k.Caller) && frames.ValidName(k.SID) }

// Wake is the META that tells a session's owner that the head has moved to n.
func Wake(key Key, n uint64) frames.Frame {
	return frames.Meta(frames.Fields{{Key: "wake", Value: frames.Value(n)}},
		frames.WithMeta("caller", key.Caller), frames.WithMeta("sessionId", key.SID))
}

// WakeOf reads a [Wake]; ok is false on other frames.
func WakeOf(f *frames.Frame) (key Key, n uint64, ok bool) {
	n, ok = f.Content.Lookup("wake").Uint64()
	key = Key{f.Metadata.Text("caller"), f.Metadata.Text("sessionId")}
	return key, n, ok && f.Type == frames.TypeMeta && key.Valid()
}
