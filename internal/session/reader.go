package session

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// reader reads messages of a stream in order through a consumer of its own.
type reader struct {
	stream jetstream.Stream
	filter string
	// next is the sequence to begin at; newest asks for the newest message of
	// each subject instead.
	next   uint64
	newest bool
	// headers leaves the data out.
	headers bool

	consumer jetstream.Consumer
	// read counts what the consumer delivered, pending what it still has.
	read, pending uint64
	// size is the mean size of a message of the last batch.
	size int
}

const (
	readerIdle = 30 * time.Second
	batchBytes = 4 << 20
	maxBatch   = 256
	firstBatch = 16
)

// each gives the messages to fn until it says false, or none is left.
func (r *reader) each(ctx context.Context, fn func(m jetstream.Msg, number uint64) bool) error {
	if err := r.open(ctx); err != nil {
		return unreadable(r.filter, err)
	}
	defer r.close(ctx)
	for r.pending > 0 {
		more, err := r.batch(ctx, fn)
		if err != nil {
			return unreadable(r.filter, err)
		}
		if !more {
			break
		}
	}
	return nil
}

func (r *reader) open(ctx context.Context) error {
	cfg := jetstream.ConsumerConfig{
		FilterSubject:     r.filter,
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       r.next,
		HeadersOnly:       r.headers,
		InactiveThreshold: readerIdle,
		MemoryStorage:     true,
		Replicas:          1,
	}
	if r.newest {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverLastPerSubjectPolicy, 0
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	var err error
	if r.consumer, err = r.stream.CreateConsumer(ctx, cfg); err != nil {
		return err
	}
	r.pending = r.consumer.CachedInfo().NumPending
	return nil
}

// close removes the consumer at once: a stream holds a limited number of them.
func (r *reader) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
	defer cancel()
	_ = r.stream.DeleteConsumer(ctx, r.consumer.CachedInfo().Name) // else it goes when it is idle
}

func (r *reader) batch(ctx context.Context, fn func(jetstream.Msg, uint64) bool) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	batch, err := r.consumer.Fetch(r.batchSize(), jetstream.FetchContext(ctx))
	if err != nil {
		return false, err
	}
	more, got, bytes := true, 0, 0
	for m := range batch.Messages() {
		got, bytes = got+1, bytes+len(m.Data())
		if more && err == nil {
			more, err = r.take(m, fn)
		}
	}
	if got == 0 {
		return false, orStalled(batch.Error())
	}
	r.size = max(bytes/got, 1)
	return more, err
}

// take gives a message to fn. A gap means that the connection dropped some.
func (r *reader) take(m jetstream.Msg, fn func(jetstream.Msg, uint64) bool) (more bool, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return false, err
	}
	if r.read++; meta.Sequence.Consumer != r.read {
		return false, errGap
	}
	r.pending = meta.NumPending
	return fn(m, meta.Sequence.Stream), nil
}

var errGap = errors.New("messages were lost on the way")

func (r *reader) batchSize() int {
	n := firstBatch
	if r.size > 0 {
		n = min(max(batchBytes/r.size, 1), maxBatch)
	}
	return int(min(uint64(n), r.pending))
}

func orStalled(err error) error {
	if err == nil {
		err = context.DeadlineExceeded
	}
	return err
}
