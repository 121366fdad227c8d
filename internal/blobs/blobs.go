// Package blobs keeps large values of sessions in the mesh's object store: the
// stream WB_BLOBS, in which one message is one value, named by its content.
//
// A value lives as long as its session. It is written whole or not at all, and
// writing it again changes nothing, so nobody needs to know whether a write that
// was broken off stands.
package blobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/internal/results"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Ref stands for a value that is kept in the store.
type Ref struct {
	// Ref names the value within its session.
	Ref string `json:"ref"`
	// Size is that of the value, in bytes.
	Size int64 `json:"size"`
	// SHA256 is that of the value, in hex.
	SHA256    string `json:"sha256"`
	MediaType string `json:"mediaType"`
}

// Store keeps values. It is safe for concurrent use.
type Store struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	prefix string
}

// Open opens the store of a mesh. One that does not exist is UNAVAILABLE.
func Open(ctx context.Context, js jetstream.JetStream, prefix string) (*Store, error) {
	stream, err := assets.Stream(ctx, js, assets.BlobsStream(prefix))
	if err != nil {
		return nil, err
	}
	return &Store{js, stream, prefix}, nil
}

// attempt bounds one request: an election takes 4 to 9 s, so the next may find a leader.
const attempt = 5 * time.Second

// mediaTypeHeader carries a value's media type.
const mediaTypeHeader = "Content-Type"

// Put keeps a value of a session. One that is larger than a message may be is
// TOO_LARGE.
func (s *Store) Put(ctx context.Context, caller, sid, mediaType string, value []byte) (Ref, error) {
	sum := sha256.Sum256(value)
	ref := Ref{Ref: results.RefOf(string(value)), Size: int64(len(value)), SHA256: hex.EncodeToString(sum[:]), MediaType: mediaType}
	msg := nats.NewMsg(assets.BlobSubject(s.prefix, caller, sid, ref.Ref))
	msg.Data = value
	msg.Header.Set(mediaTypeHeader, mediaType)
	err := s.publish(ctx, msg)
	switch {
	case err == nil:
		return ref, nil
	case errors.Is(err, nats.ErrMaxPayload):
		return Ref{}, frames.NewError(frames.CodeTooLarge, "a value of %d bytes, the server's max_payload is %d",
			len(value), s.js.Conn().MaxPayload())
	}
	return Ref{}, frames.NewError(frames.CodeUnavailable, "a large value of session %s cannot be kept: %w", sid, bus.Words(err))
}

const (
	// patience is more than an election and a reconnect take: the results of calls
	// that ran are lost with a value that cannot be written.
	patience    = 30 * time.Second
	firstPause  = 250 * time.Millisecond
	pauseAtMost = 2 * time.Second
)

// publish writes a message, again while nobody answers.
func (s *Store) publish(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, pauseAtMost) {
		err := s.attempt(ctx, msg)
		_, refused := errors.AsType[*jetstream.APIError](err)
		if err == nil || refused || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		if pause.For(ctx, wait) != nil {
			return err
		}
	}
}

func (s *Store) attempt(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	_, err := s.js.PublishMsg(ctx, msg)
	return err
}

// Get gives a value of a session; NOT_FOUND where the session has none of that name.
func (s *Store) Get(ctx context.Context, caller, sid, ref string) ([]byte, error) {
	if !results.ValidRef(ref) || !frames.ValidName(caller) || !frames.ValidName(sid) {
		return nil, notFound(sid, ref)
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	msg, err := s.stream.GetLastMsgForSubject(ctx, assets.BlobSubject(s.prefix, caller, sid, ref))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, notFound(sid, ref)
	case err != nil:
		return nil, frames.NewError(frames.CodeUnavailable, "a large value of session %s cannot be read: %w", sid, bus.Words(err))
	case results.RefOf(string(msg.Data)) != ref:
		return nil, frames.NewError(frames.CodeInternal, "the value %s of session %s is not what was written", ref, sid)
	}
	return msg.Data, nil
}

func notFound(sid, ref string) error {
	return frames.NewError(frames.CodeNotFound, "session %s has no value %.64q", sid, ref)
}

// Delete removes all values of a session.
func (s *Store) Delete(ctx context.Context, caller, sid string) error {
	return s.purge(ctx, caller, sid)
}

func (s *Store) purge(ctx context.Context, caller, sid string, opts ...jetstream.StreamPurgeOpt) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	opts = append(opts, jetstream.WithPurgeSubject(assets.BlobSubject(s.prefix, caller, sid, "*")))
	if err := s.stream.Purge(ctx, opts...); err != nil {
		return frames.NewError(frames.CodeUnavailable, "the large values of session %s cannot be removed: %w", sid, bus.Words(err))
	}
	return nil
}

// Last gives the number of the value that was written last.
func (s *Store) Last(ctx context.Context) (uint64, error) {
	info, err := s.info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// Sweep removes the values of sessions that are gone, up to the upTo-th: who was about
// to write when a session was deleted left them. It gives how many sessions those
// were. A session's first values are older than the session itself, so upTo is a
// [Store.Last] of so long ago that nobody is about to begin a session with them.
func (s *Store) Sweep(ctx context.Context, upTo uint64, gone func(ctx context.Context, caller, sid string) (bool, error)) (int, error) {
	info, err := s.info(ctx)
	if err != nil {
		return 0, err
	}
	swept := 0
	for session := range s.sessions(info) {
		caller, sid, _ := strings.Cut(session, ".")
		is, err := gone(ctx, caller, sid)
		if err == nil && is {
			err = s.purge(ctx, caller, sid, jetstream.WithPurgeSequence(upTo+1))
			swept++
		}
		if err != nil {
			return swept, err
		}
	}
	return swept, nil
}

func (s *Store) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	const many = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, many)
	defer cancel()
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(assets.BlobSubject(s.prefix, "*", "*", "*")))
	if err != nil {
		return nil, frames.NewError(frames.CodeUnavailable, "the object store cannot be read: %w", bus.Words(err))
	}
	return info, nil
}

// sessions gives "<caller>.<sid>" of all that have values.
func (s *Store) sessions(info *jetstream.StreamInfo) map[string]struct{} {
	out := map[string]struct{}{}
	begin := assets.BlobSubject(s.prefix, "", "", "")
	begin = strings.TrimSuffix(begin, "..") // <begin><caller>.<sid>.<ref>
	for subject := range info.State.Subjects {
		rest := strings.TrimPrefix(subject, begin)
		if i := strings.LastIndexByte(rest, '.'); i > 0 {
			out[rest[:i]] = struct{}{}
		}
	}
	return out
}
