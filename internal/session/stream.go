package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/blobs"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// streamLog is the [Log] of a mesh: the stream of its sessions' bucket. It reads
// and writes the stream rather than the bucket, whose client library repeats
// writes, hides the number of a deleted key and knows one of two error codes of
// a lost compare-and-set.
type streamLog struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	prefix string
}

var _ Log = (*streamLog)(nil)

// Open opens the store of a mesh. A bucket, or an object store, that does not exist
// is UNAVAILABLE.
func Open(ctx context.Context, js jetstream.JetStream, prefix string) (*Store, error) {
	stream, err := assets.Stream(ctx, js, assets.SessionsStream(prefix))
	if err != nil {
		return nil, err
	}
	large, err := blobs.Open(ctx, js, prefix)
	if err != nil {
		return nil, err
	}
	return &Store{log: &streamLog{js, stream, prefix}, blobs: large}, nil
}

// attempt bounds one request: an election takes 4 to 9 s, so the next may find a leader.
const attempt = 5 * time.Second

// Error codes of a lost compare-and-set on a subject.
const (
	errWrongLastSequence         = 10071
	errWrongLastSequenceConstant = 10164
)

func (l *streamLog) subject(key Key) string {
	return assets.SessionSubject(l.prefix, key.Caller, key.SID)
}

func (l *streamLog) Append(ctx context.Context, key Key, r Revision) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	msg := &nats.Msg{Subject: l.subject(key), Data: r.Data, Header: nats.Header{}}
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(r.Number, 10))
	if r.Deadline != 0 {
		msg.Header.Set(deadlineHeader, strconv.FormatInt(r.Deadline, 10))
	}
	ack, err := l.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
	if err == nil {
		return ack.Sequence, nil
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return 0, frames.NewError(frames.CodeTooLarge, "entry of %d bytes, the server's max_payload is %d", len(r.Data), l.js.Conn().MaxPayload())
	}
	api, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case !refused:
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	case api.ErrorCode == errWrongLastSequence, api.ErrorCode == errWrongLastSequenceConstant:
		return 0, ErrStale
	}
	return 0, frames.NewError(frames.CodeUnavailable, "session %s cannot be written: %w", key.SID, bus.Words(err))
}

func (l *streamLog) Last(ctx context.Context, key Key) (Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	msg, err := l.stream.GetLastMsgForSubject(ctx, l.subject(key))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Revision{}, nil
	case err != nil:
		return Revision{}, unreadable(key.SID, err)
	}
	return Revision{Number: msg.Sequence, Data: msg.Data}, nil
}

func unreadable(what string, err error) error {
	return frames.NewError(frames.CodeUnavailable, "session %s cannot be read: %w", what, bus.Words(err))
}

func (l *streamLog) Read(ctx context.Context, key Key, from uint64, fn func(Revision) bool) error {
	last, err := l.Last(ctx, key)
	if err != nil || last.Number < max(from, 1) {
		return err
	}
	r := reader{stream: l.stream, filter: l.subject(key), next: max(from, 1)}
	return r.each(ctx, func(m jetstream.Msg, number uint64) bool {
		return number <= last.Number && fn(Revision{Number: number, Data: m.Data()}) && number < last.Number
	})
}

func (l *streamLog) Newest(ctx context.Context, caller string, fn func(Key, Revision) bool) error {
	r := reader{stream: l.stream, filter: l.subject(Key{caller, "*"}), newest: true}
	begin := l.subject(Key{caller, ""})
	return r.each(ctx, func(m jetstream.Msg, number uint64) bool {
		return fn(Key{caller, strings.TrimPrefix(m.Subject(), begin)}, Revision{Number: number, Data: m.Data()})
	})
}

func (l *streamLog) Purge(ctx context.Context, key Key) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	if err := l.stream.Purge(ctx, jetstream.WithPurgeSubject(l.subject(key))); err != nil {
		return frames.NewError(frames.CodeUnavailable, "session %s cannot be removed: %w", key.SID, bus.Words(err))
	}
	return nil
}
