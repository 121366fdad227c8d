package registry

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// checkEach is how often silence is judged, and missed announcements are
	// looked for.
	checkEach = 5 * time.Second
	// readPause is how often somebody who looks for a tool may have the stream read.
	readPause = time.Second
	// schemaBytes bounds the texts of the schemas that are kept compiled, which
	// take up to 40 times as much: those of some 700 ordinary tools.
	schemaBytes = 1 << 20
	// maxPending is how many bytes of announcements may wait to be read.
	maxPending = 256 << 20
)

// Config sets up a Registry.
type Config struct {
	// Prefix is the mesh's prefix. Default: "wb".
	Prefix string
	// Schemas compiles and keeps schemas. Default: a cache of its own, of 1 MiB.
	Schemas *schema.Cache
	// Log is where refused announcements go. Default: slog.Default().
	Log *slog.Logger
}

// Registry follows the catalogue of one mesh. It is safe for concurrent use.
type Registry struct {
	conn *bus.Conn
	cfg  Config
	cat  *catalogue

	// stale: announcements were missed, the stream has to be read again.
	stale atomic.Bool
	// early: an instance has tools that the stream did not hold yet when it was
	// read; the end of the start reads it once more.
	early atomic.Bool
	// reads asks for that to be done now; what it sends is closed then.
	reads chan chan struct{}
	// settled is closed when all that the start can find is known.
	settled chan struct{}

	// rewatch ends the present request for settings, to begin anew.
	rewatch atomic.Pointer[context.CancelFunc]

	live    heard
	lookups lookups
}

// New makes a registry; [Registry.Run] fills it.
func New(conn *bus.Conn, cfg Config) *Registry {
	if cfg.Prefix == "" {
		cfg.Prefix = bus.DefaultPrefix
	}
	if cfg.Schemas == nil {
		cfg.Schemas = &schema.Cache{MaxBytes: schemaBytes}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Registry{
		conn: conn, cfg: cfg, cat: newCatalogue(), lookups: newLookups(),
		reads: make(chan chan struct{}), settled: make(chan struct{}),
	}
}

// OnChange calls f after a tool's snapshot changed. Before Run only; f must not block.
func (r *Registry) OnChange(f func(tool string)) { r.cat.onChange = append(r.cat.onChange, f) }

// OnGone calls f when an instance is gone: dead if nobody listens there any
// more, else because it was silent for too long. Before Run only; f must not block.
func (r *Registry) OnGone(f func(id Instance, dead bool)) { r.cat.onGone = append(r.cat.onGone, f) }

// Get gives a tool as it stands, or nil.
func (r *Registry) Get(name string) *Tool { return r.cat.get(name) }

// Has reports whether an instance is there; it may be draining.
func (r *Registry) Has(id Instance) bool { return r.cat.has(id) }

// Tools gives every tool, sorted by name.
func (r *Registry) Tools() []*Tool { return r.cat.all() }

// Refused gives the declarations that cannot be called: they break the protocol,
// or another identity has the name.
func (r *Registry) Refused() []*Tool { return r.cat.refusals() }

// Gone takes an instance out, since nobody listens there.
func (r *Registry) Gone(id Instance) { r.cat.remove(id, true) }

// Drained marks an instance as one that takes no new calls, as it said itself.
func (r *Registry) Drained(id Instance) {
	r.cat.hear(&sign{from: id, at: time.Now(), kind: ends})
}

// Settle waits until services that announce nothing had their time to answer the
// DESCRIBE of the start: before that, what is listed may lack them. A tool that is
// looked for by its name needs no Settle.
func (r *Registry) Settle(ctx context.Context) {
	select {
	case <-r.settled:
	case <-r.lookups.stopped:
	case <-ctx.Done():
	}
}

// Run follows the catalogue until ctx ends; ready is called once what is
// announced so far is known. The error is UNAVAILABLE without JetStream, and
// where the connection is closed.
func (r *Registry) Run(ctx context.Context, ready func()) error {
	defer r.lookups.end()
	status := r.conn.NATS().StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer r.conn.NATS().RemoveStatusListener(status)
	sub, err := r.conn.NATS().Subscribe(r.conn.Announcements(), func(m *nats.Msg) {
		r.live.note(m.Subject)
		r.announcement(m.Subject, m.Data)
	})
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot hear announcements: %w", bus.Words(err))
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	if err := sub.SetPendingLimits(-1, maxPending); err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot bound announcements: %w", bus.Words(err))
	}
	if err := r.conn.Flush(ctx); err != nil {
		return err
	}
	end, err := r.startSettings(ctx)
	defer end()
	if err != nil {
		return err
	}
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		r.describe(ctx, "")
	}()
	defer func() { <-asked }()
	ready()
	return r.follow(ctx, sub, status, asked)
}

// startSettings follows what operators decided until end, and returns when all
// that is decided so far is known: no call is to slip through before.
func (r *Registry) startSettings(ctx context.Context) (end func(), err error) {
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	known := make(chan error, 1)
	following.Go(func() { r.followSettings(ctx, func(err error) { known <- err }) })
	end = func() {
		stop()
		following.Wait()
	}
	return end, <-known
}

// follow judges silence and looks for what was missed, until ctx ends or the
// connection is closed, which is an error. asked is closed when the DESCRIBE of
// the start is over.
func (r *Registry) follow(ctx context.Context, sub *nats.Subscription, status <-chan nats.Status, asked <-chan struct{}) error {
	check, describe := time.NewTicker(checkEach), time.NewTicker(describeEach)
	defer check.Stop()
	defer describe.Stop()
	w := watch{last: time.Now()}
	var read time.Time // the first who misses what was just announced need not wait
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			// What was announced a moment before the subscription may have come to
			// the stream after it was read; its instance has answered by now.
			asked = nil
			if r.early.Load() {
				r.stale.Store(true)
			}
			r.resume(ctx)
			close(r.settled)
		case done := <-r.reads:
			if now := time.Now(); now.Sub(read) >= readPause {
				read = now
				r.resume(ctx)
			}
			close(done)
		case s := <-status:
			if s == nats.CLOSED {
				return frames.NewError(frames.CodeUnavailable, "the connection was closed")
			}
			r.missed("the connection was lost")
			(*r.rewatch.Load())()
			r.resume(ctx)
			r.describe(ctx, "")
		case <-check.C:
			if why := w.missed(sub); why != "" {
				r.missed(why)
			}
			r.resume(ctx)
			if r.cat.wasFull() {
				r.cfg.Log.Warn("the catalogue is full: announcements were left out",
					"instances", maxInstances, "declarations", maxDeclarations, "bytes", maxBytes)
			}
		case <-describe.C:
			r.describe(ctx, "")
		}
	}
}

// watch finds out that announcements were missed.
type watch struct {
	last    time.Time
	dropped int
}

func (w *watch) missed(sub *nats.Subscription) string {
	now := time.Now()
	stood := now.Sub(w.last) > 2*checkEach
	dropped, _ := sub.Dropped() // fails only on a closed subscription
	lost := dropped > w.dropped
	w.last, w.dropped = now, dropped
	switch {
	case stood:
		return "the process stood still"
	case lost:
		return "messages were dropped"
	}
	return ""
}

// missed says that announcements may have been missed: nobody is silent because
// of that, and the stream has to be read again.
func (r *Registry) missed(why string) {
	r.cfg.Log.Info("reading the catalogue again", "why", why)
	r.cat.renew(time.Now())
	r.stale.Store(true)
}

// resume reads the stream again if that is due, and judges silence: that is heard
// live, whether the stream can be read or not. Without a connection it does neither.
func (r *Registry) resume(ctx context.Context) {
	if !r.conn.NATS().IsConnected() {
		return
	}
	if r.stale.Swap(false) {
		if err := r.catchUp(ctx); err != nil {
			if ctx.Err() == nil {
				r.cfg.Log.Warn("cannot read the catalogue again", "error", err)
			}
			r.stale.Store(true)
		}
	}
	if r.conn.NATS().IsConnected() {
		r.cat.expire(time.Now())
	}
}

// announcement takes one message that was heard live.
func (r *Registry) announcement(subject string, data []byte) {
	for _, s := range r.signs(subject, data, time.Now()) {
		if r.cat.hear(&s) {
			r.stale.Store(true)
		}
	}
}
