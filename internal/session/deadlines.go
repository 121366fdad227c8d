package session

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
)

// deadlineHeader carries the deadline of a session that waits, beside its state.
const deadlineHeader = "Wb-Deadline"

// deadlineFetch is how long one request for revisions stands.
const deadlineFetch = 20 * time.Second

// FollowDeadlines tells of each session's deadline, first as it stands and then
// each time that the session is written: 0 where it waits for nobody. It reads no
// states. It returns when ctx ends, or with an error after which it may be called
// again.
func FollowDeadlines(ctx context.Context, js jetstream.JetStream, prefix string, fn func(key Key, deadline int64)) error {
	stream, err := assets.Stream(ctx, js, assets.SessionsStream(prefix))
	if err != nil {
		return err
	}
	begin := assets.SessionSubject(prefix, "", "")
	begin = strings.TrimSuffix(begin, ".") // <begin><caller>.<sid>
	r := reader{stream: stream, filter: assets.SessionSubject(prefix, "*", "*"), newest: true, headers: true}
	if err := r.open(ctx); err != nil {
		return unreadable("deadlines", err)
	}
	defer r.close(ctx)
	for ctx.Err() == nil {
		err := r.follow(ctx, func(m jetstream.Msg) {
			caller, sid, _ := strings.Cut(strings.TrimPrefix(m.Subject(), begin), ".")
			deadline, _ := strconv.ParseInt(m.Headers().Get(deadlineHeader), 10, 64) // none: 0
			fn(Key{caller, sid}, deadline)
		})
		if err != nil && ctx.Err() == nil {
			return unreadable("deadlines", err)
		}
	}
	return nil
}

// follow gives the messages that come while one request stands.
func (r *reader) follow(ctx context.Context, fn func(jetstream.Msg)) error {
	ctx, cancel := context.WithTimeout(ctx, deadlineFetch)
	defer cancel()
	batch, err := r.consumer.Fetch(maxBatch, jetstream.FetchContext(ctx))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		if _, err := r.take(m, func(m jetstream.Msg, _ uint64) bool { fn(m); return true }); err != nil {
			return err
		}
	}
	if err := batch.Error(); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return nil
}
