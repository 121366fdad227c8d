package session

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/pause"
)

const (
	// pullWait is how long one request for messages stands.
	pullWait = 5 * time.Second
	// pullPause comes after a request that failed.
	pullPause = 250 * time.Millisecond
)

// Slots bound how many messages of a consumer are in hand at once.
type Slots chan struct{}

// NewSlots makes n slots, all of them free.
func NewSlots(n int) Slots { return make(Slots, n) }

// Free gives back the slot of a message that is not in hand any more.
func (s Slots) Free() { <-s }

// all waits for a free slot and takes all that are free; 0 when ctx ended.
func (s Slots) all(ctx context.Context) int {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; ; n++ {
		select {
		case s <- struct{}{}:
		default:
			return n
		}
	}
}

// Pull takes messages as they come, as many as there are free slots, until ctx
// ends. take gets each with a slot of its own, to be freed; failed is told of
// requests that failed, which are made again.
func (s Slots) Pull(ctx context.Context, from jetstream.Consumer, take func(jetstream.Msg), failed func(error)) {
	for {
		n := s.all(ctx)
		if n == 0 {
			return
		}
		left, err := pullSome(ctx, from, n, take)
		for range left {
			s.Free()
		}
		if err != nil && ctx.Err() == nil {
			failed(err)
			_ = pause.For(ctx, pullPause) // the next turn sees an end
		}
	}
}

// pullSome takes up to n messages and gives how many of them did not come.
func pullSome(ctx context.Context, from jetstream.Consumer, n int, take func(jetstream.Msg)) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	batch, err := from.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return n, err
	}
	for m := range batch.Messages() {
		n--
		take(m)
	}
	err = batch.Error()
	for _, over := range []error{context.DeadlineExceeded, context.Canceled, nats.ErrTimeout} {
		if errors.Is(err, over) {
			err = nil
		}
	}
	return n, err
}
