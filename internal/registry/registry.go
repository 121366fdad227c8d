package registry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Timing of DESCRIBE, PROTOCOL section 2.
const (
	describeEach = 30 * time.Second
	describeWait = 250 * time.Millisecond
	expireEach   = 5 * time.Second
	missPause    = time.Second
	maxMisses    = 1024
)

// Config sets up a Registry.
type Config struct {
	// Prefix is the mesh's prefix. Default: "wb".
	Prefix string
	// Schemas compiles and keeps schemas. Default: a cache of its own.
	Schemas *schema.Cache
	// Log is where refused announcements go. Default: slog.Default().
	Log *slog.Logger
}

// Registry follows the catalogue of one mesh. It is safe for concurrent use.
type Registry struct {
	conn *bus.Conn
	cfg  Config
	cat  *catalogue

	mu     sync.Mutex
	misses map[string]*miss
	// heard are the subjects that spoke while the stream was being read: what
	// they said is newer than what the stream holds.
	heard map[string]bool
}

// miss is a name that was not found, and the search for it.
type miss struct {
	until time.Time
	done  chan struct{}
}

// New makes a registry; [Registry.Run] fills it.
func New(conn *bus.Conn, cfg Config) *Registry {
	if cfg.Prefix == "" {
		cfg.Prefix = bus.DefaultPrefix
	}
	if cfg.Schemas == nil {
		cfg.Schemas = &schema.Cache{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Registry{conn: conn, cfg: cfg, cat: newCatalogue(), misses: map[string]*miss{}}
}

// OnChange calls f after a tool's snapshot changed. Before Run only; f must not block.
func (r *Registry) OnChange(f func(tool string)) { r.cat.onChange = append(r.cat.onChange, f) }

// OnGone calls f when an instance is gone. Before Run only; f must not block.
func (r *Registry) OnGone(f func(Instance)) { r.cat.onGone = append(r.cat.onGone, f) }

// Get gives a tool as it stands, or nil.
func (r *Registry) Get(name string) *Tool { return r.cat.get(name) }

// Tools gives every tool, sorted by name.
func (r *Registry) Tools() []*Tool { return r.cat.all() }

// Conflicts gives the declarations refused since another identity has the name.
func (r *Registry) Conflicts() []*Tool { return r.cat.conflicts() }

// Gone takes an instance out, since nobody listens there.
func (r *Registry) Gone(id Instance) { r.cat.remove(id) }

// Drained marks an instance as one that takes no new calls, as it said itself.
func (r *Registry) Drained(id Instance) { r.cat.drain(id) }

// Run follows the catalogue until ctx ends; ready is called once what is
// announced so far is known. Without JetStream it fails with UNAVAILABLE.
func (r *Registry) Run(ctx context.Context, ready func()) error {
	r.heard = map[string]bool{}
	sub, err := r.conn.NATS().Subscribe(r.conn.Announcements(), func(m *nats.Msg) {
		r.mu.Lock()
		if r.heard != nil {
			r.heard[m.Subject] = true
		}
		r.mu.Unlock()
		r.announcement(m.Subject, m.Data, time.Now())
	})
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot hear announcements: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	if err := r.conn.Flush(ctx); err != nil {
		return err
	}
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	r.describe(ctx, "")
	ready()
	r.follow(ctx)
	return nil
}

func (r *Registry) follow(ctx context.Context) {
	expire, describe := time.NewTicker(expireEach), time.NewTicker(describeEach)
	defer expire.Stop()
	defer describe.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-expire.C:
			r.cat.expire()
		case <-describe.C:
			r.describe(ctx, "")
		}
	}
}

// catchUp reads the last announcement of every subject to the stream's end.
func (r *Registry) catchUp(ctx context.Context) error {
	defer func() {
		r.mu.Lock()
		r.heard = nil
		r.mu.Unlock()
	}()
	js, err := jetstream.New(r.conn.NATS())
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "JetStream: %w", err)
	}
	stream, err := assets.Stream(ctx, js, assets.CatalogStream(r.cfg.Prefix))
	if err != nil {
		return err
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		FilterSubject: r.conn.Announcements(), MemoryStorage: true, InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot read the catalogue: %w", err)
	}
	defer func() { _ = stream.DeleteConsumer(context.WithoutCancel(ctx), consumer.CachedInfo().Name) }() // it expires by itself too
	return r.readAll(ctx, consumer, consumer.CachedInfo().NumPending)
}

func (r *Registry) readAll(ctx context.Context, consumer jetstream.Consumer, pending uint64) error {
	for pending > 0 && ctx.Err() == nil {
		batch, err := consumer.Fetch(int(min(pending, 256)), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return frames.NewError(frames.CodeUnavailable, "cannot read the catalogue: %w", err)
		}
		got := 0
		for m := range batch.Messages() {
			got++
			meta, err := m.Metadata()
			if err != nil {
				continue
			}
			pending = meta.NumPending
			r.mu.Lock()
			newer := r.heard[m.Subject()]
			r.mu.Unlock()
			if !newer {
				r.announcement(m.Subject(), m.Data(), meta.Timestamp)
			}
		}
		if got == 0 {
			return nil // what was pending has aged out
		}
	}
	return ctx.Err()
}

// announcement takes one message of wb.announce.<identity>.<id>[.<tool>]. The
// subject's tokens count, not what the frame says of itself.
func (r *Registry) announcement(subject string, data []byte, at time.Time) {
	tokens := r.conn.Tokens(subject)
	m, err := frames.Decode(data)
	if err != nil || len(tokens) < 3 {
		r.cfg.Log.Warn("refused an announcement", "subject", subject, "error", err)
		return
	}
	id := Instance{tokens[1], tokens[2]}
	for i := range m.Frames {
		switch f := &m.Frames[i]; f.Type {
		case frames.TypeDescription:
			r.declaration(f, id, at, true)
		case frames.TypeMeta:
			r.cat.alive(id, at)
		case frames.TypeEnd:
			r.cat.drain(id)
		}
	}
}

func (r *Registry) declaration(f *frames.Frame, id Instance, at time.Time, announced bool) {
	d, err := frames.DeclarationFrom(f.Content)
	if err != nil {
		r.cfg.Log.Warn("refused a tool declaration", "identity", id.Identity, "error", err)
		return
	}
	d.Identity, d.Instance = id.Identity, id.ID
	d.SetDigest()
	r.cat.declare(d, at, announced)
}

// describe asks every instance for its tools, or for one, and waits a moment
// for the answers: it finds services that announce nothing.
func (r *Registry) describe(ctx context.Context, name string) {
	q := frames.Describe(name)
	data, err := frames.Encode(frames.Msgpack, &q)
	if err != nil {
		return
	}
	ask, err := r.conn.Ask(ctx, r.conn.Describe(), data, r.described)
	if err != nil {
		return
	}
	wait := time.NewTimer(describeWait)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	ask.Stop()
}

func (r *Registry) described(m frames.Message, err error) {
	if err != nil {
		return
	}
	for i := range m.Frames {
		f := &m.Frames[i]
		if f.Type != frames.TypeDescription {
			continue
		}
		// A service that announces itself is known by its announcements; one
		// that does not has no instance to send to.
		if inst, _ := f.Content.Lookup("instance").Text(); inst == "" {
			identity, _ := f.Content.Lookup("identity").Text()
			r.declaration(f, Instance{Identity: identity}, time.Now(), false)
		}
	}
}

// Find gives a tool, asking for it by DESCRIBE where the name is not known: at
// most once a second for a name, and once for all who ask at the same time.
func (r *Registry) Find(ctx context.Context, name string) *Tool {
	if t := r.Get(name); t != nil || !frames.ValidName(name) {
		return t
	}
	m, first := r.miss(name)
	if first {
		go func() { // outlives a caller that gives up: others wait for the same answer
			defer close(m.done)
			r.describe(context.WithoutCancel(ctx), name)
		}()
	}
	select {
	case <-m.done:
	case <-ctx.Done():
	}
	return r.Get(name)
}

func (r *Registry) miss(name string) (m *miss, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if m = r.misses[name]; m != nil && now.Before(m.until) {
		return m, false
	}
	if len(r.misses) >= maxMisses {
		r.misses = map[string]*miss{}
	}
	m = &miss{until: now.Add(missPause), done: make(chan struct{})}
	r.misses[name] = m
	return m, true
}

// Arguments gives the schema of a tool's arguments, compiled.
func (r *Registry) Arguments(d *frames.Declaration) (*schema.Schema, error) {
	s, err := r.cfg.Schemas.Compile(d.Schema)
	if err == nil {
		err = s.ForArguments()
	}
	if err != nil {
		return nil, err
	}
	return s.Named(d.Name), nil
}

// Output gives the schema of a tool's results, compiled.
func (r *Registry) Output(d *frames.Declaration) (*schema.Schema, error) {
	s, err := r.cfg.Schemas.Compile(d.OutputSchema)
	if err != nil {
		return nil, err
	}
	return s.Named(d.Name), nil
}

// Check says why a tool cannot be called: its declaration is refused as a
// conflict, or its schema does not compile; nil where it can. Schemas are compiled
// here, not when they are announced.
func (r *Registry) Check(t *Tool) *frames.Error {
	if t.Refused != nil {
		return t.Refused
	}
	_, err := r.Arguments(t.Declaration)
	if err == nil && t.OutputSchema != nil {
		_, err = r.Output(t.Declaration)
	}
	return frames.AsError(err)
}
