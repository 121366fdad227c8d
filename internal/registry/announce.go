package registry

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// readBatch is how many announcements are asked for at once.
	readBatch = 256
	// readTries is how often the stream may leave a request without an answer.
	readTries = 3
	// forgetLimit bounds the wait until a consumer is removed.
	forgetLimit = 2 * time.Second
	// maxDeclaration is how many bytes a declaration may have, with all that an
	// application added to it: a list has to fit into messages.
	maxDeclaration = 256 << 10
	// maxSkipped and maxSkippedText bound what an instance says that it skips.
	maxSkipped     = 32
	maxSkippedText = 1 << 10
)

// heard are the subjects that spoke while the stream was being read: what they
// said is newer than what the stream holds.
type heard struct {
	mu       sync.Mutex
	subjects map[string]bool // nil: the stream is not being read
}

func (h *heard) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subjects = map[string]bool{}
}

func (h *heard) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subjects = nil
}

func (h *heard) note(subject string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subjects != nil {
		h.subjects[subject] = true
	}
}

func (h *heard) newer(subject string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subjects[subject]
}

// catchUp reads the last announcement of every subject to the stream's end.
func (r *Registry) catchUp(ctx context.Context) error {
	r.live.begin()
	defer r.live.end()
	said, err := r.announced(ctx)
	if err != nil {
		return err
	}
	r.cat.load(said, time.Now())
	return nil
}

// announced gives what the stream holds, but for what was heard meanwhile.
func (r *Registry) announced(ctx context.Context) (said []sign, err error) {
	consumer, forget, err := r.open(ctx, assets.CatalogStream(r.cfg.Prefix), r.conn.Announcements())
	if err != nil {
		return nil, err
	}
	defer forget()
	// Its times are the server's; they are given by the clock of this process.
	ahead := time.Duration(0)
	if now := consumer.CachedInfo().TimeStamp; !now.IsZero() {
		ahead = time.Since(now)
	}
	err = r.read(ctx, consumer, func(m jetstream.Msg, meta *jetstream.MsgMetadata) {
		if !r.live.newer(m.Subject()) {
			said = append(said, r.signs(m.Subject(), m.Data(), meta.Timestamp.Add(ahead))...)
		}
	})
	return said, err
}

// open gives a consumer of the last message on each subject, to be forgotten.
func (r *Registry) open(ctx context.Context, name, filter string) (consumer jetstream.Consumer, forget func(), err error) {
	js, err := jetstream.New(r.conn.NATS())
	if err != nil {
		return nil, nil, frames.NewError(frames.CodeUnavailable, "JetStream: %w", bus.Words(err))
	}
	stream, err := assets.Stream(ctx, js, name)
	if err != nil {
		return nil, nil, err
	}
	consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		FilterSubject: filter, MemoryStorage: true, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, nil, unreadable(err)
	}
	return consumer, func() { // it expires by itself too
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), forgetLimit)
		defer stop()
		_ = stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)
	}, nil
}

func unreadable(err error) error {
	return frames.NewError(frames.CodeUnavailable, "cannot read the catalogue: %w", bus.Words(err))
}

// read takes what the stream holds up to its end, in its order.
func (r *Registry) read(ctx context.Context, consumer jetstream.Consumer, take func(jetstream.Msg, *jetstream.MsgMetadata)) error {
	pending, tries := consumer.CachedInfo().NumPending, 0
	for pending > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := r.readSome(consumer, func(m jetstream.Msg, meta *jetstream.MsgMetadata) {
			pending = meta.NumPending
			take(m, meta)
		})
		if err != nil {
			return err
		}
		if got > 0 {
			continue
		}
		// What was pending has aged out, or nobody answered.
		info, err := consumer.Info(ctx)
		if err != nil {
			return unreadable(err)
		}
		if pending = info.NumPending; pending > 0 {
			if tries++; tries == readTries {
				return frames.NewError(frames.CodeUnavailable, "cannot read the catalogue: its stream does not answer")
			}
		}
	}
	return nil
}

func (r *Registry) readSome(consumer jetstream.Consumer, take func(jetstream.Msg, *jetstream.MsgMetadata)) (int, error) {
	batch, err := consumer.FetchNoWait(readBatch)
	if err != nil {
		return 0, unreadable(err)
	}
	got := 0
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			continue // it did not come from the stream
		}
		got++
		take(m, meta)
	}
	if err := batch.Error(); err != nil {
		return 0, unreadable(err)
	}
	return got, nil
}

// signs reads one message of wb.announce.<identity>.<id>[.<tool>]. The subject's
// tokens count, not what the frames say of themselves.
func (r *Registry) signs(subject string, data []byte, at time.Time) []sign {
	tokens := r.conn.Tokens(subject)
	m, err := frames.Decode(data)
	if err != nil || len(tokens) < 3 || len(tokens) > 4 {
		r.cfg.Log.Warn("refused an announcement", "subject", subject, "error", err)
		return nil
	}
	from := Instance{Identity: tokens[1], ID: tokens[2]}
	var said []sign
	for i := range m.Frames {
		f := &m.Frames[i]
		switch {
		case len(tokens) == 4 && f.Type == frames.TypeDescription:
			if s, ok := r.declaration(f, from, tokens[3], at); ok {
				said = append(said, s)
			}
		case len(tokens) == 3 && f.Type == frames.TypeMeta:
			said = append(said, sign{from: from, at: at, kind: lives, tools: named(f), skipped: skipped(f, from)})
		case len(tokens) == 3 && f.Type == frames.TypeEnd:
			said = append(said, sign{from: from, at: at, kind: ends})
		}
	}
	return said
}

// named gives the tools that a sign of life names.
func named(f *frames.Frame) []string {
	var names []string
	for name := range f.Content.Lookup("tools").Pairs() {
		names = append(names, name)
	}
	return names
}

// skipped gives what a sign of life says that the instance cannot take tools from,
// in the shape of a tool that is refused.
func skipped(f *frames.Frame, from Instance) []*Tool {
	var out []*Tool
	for item := range f.Content.Lookup("skipped").Items() {
		source, _ := item.Lookup("source").Text()
		reason, _ := item.Lookup("reason").Text()
		if len(out) == maxSkipped || source == "" || len(source)+len(reason) > maxSkippedText {
			continue
		}
		d := &frames.Declaration{Name: source, Description: reason, Identity: from.Identity, Instance: from.ID}
		_ = d.Check() // for its defaults; what is skipped need not have the name of a tool
		out = append(out, &Tool{Declaration: d, Refused: frames.NewError(frames.CodeValidationInput, "%s", reason).WithReason("skipped")})
	}
	return out
}

// declaration reads a DESCRIPTION of the tool; ok is false where there is not
// even a name to show it under.
func (r *Registry) declaration(f *frames.Frame, from Instance, tool string, at time.Time) (s sign, ok bool) {
	d, err := frames.DeclarationFrom(f.Content)
	switch n := len(f.Content); {
	case n > maxDeclaration:
		d = &frames.Declaration{}
		err = frames.NewError(frames.CodeTooLarge, "the declaration has %d bytes, the limit is %d", n, maxDeclaration)
	case err == nil && d.Name != tool:
		err = frames.NewError(frames.CodeValidationInput, "the declaration names tool %q, the subject %q", d.Name, tool)
	}
	s = sign{from: from, at: at, kind: declares, decl: d, err: frames.AsError(err)}
	if err != nil {
		r.cfg.Log.Warn("refused a tool declaration", "identity", from.Identity, "instance", from.ID, "tool", tool, "error", err)
		s.decl = shown(d, tool)
	}
	s.decl.Identity, s.decl.Instance = from.Identity, from.ID
	s.decl.SetDigest()
	if ms := f.Metadata.Int("since"); ms > 0 {
		s.since = time.UnixMilli(ms)
	}
	return s, frames.ValidName(tool)
}

// shown gives what may be listed of a declaration that was refused.
func shown(d *frames.Declaration, tool string) *frames.Declaration {
	s := &frames.Declaration{Name: tool, Service: d.Service}
	if len(d.Description) <= frames.MaxDescription {
		s.Description = d.Description
	}
	_ = s.Check() // for its defaults; the name is checked by who asks
	return s
}
