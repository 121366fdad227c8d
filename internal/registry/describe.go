package registry

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Timing of DESCRIBE, PROTOCOL section 2.
const (
	describeEach = 30 * time.Second
	describeWait = 250 * time.Millisecond
	missPause    = time.Second
)

const (
	// maxMisses is how many names are remembered that were not found.
	maxMisses = 1024
	// maxLookups is how many names are looked for at once: a flood of unknown
	// names is not to become a flood of questions to every service.
	maxLookups = 16
)

// describe asks every instance for its tools, or for one, and waits a moment
// for the answers: it finds services that announce nothing. For one tool it waits
// no longer than until somebody has it.
func (r *Registry) describe(ctx context.Context, name string) {
	q := frames.Describe(name)
	data, err := frames.Encode(frames.Msgpack, &q)
	if err != nil {
		return
	}
	found := make(chan struct{}, 1)
	ask, err := r.conn.Ask(ctx, r.conn.Describe(), data, func(m frames.Message, err error) {
		if err == nil && r.described(m, name) {
			select {
			case found <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return // asked again soon
	}
	defer ask.Stop()
	wait := time.NewTimer(describeWait)
	defer wait.Stop()
	select {
	case <-found:
	case <-wait.C:
	case <-ctx.Done():
	case <-r.lookups.stopped:
	}
}

// described takes an answer to DESCRIBE, and reports whether it holds the tool
// of that name. A service that announces itself is known by its announcements,
// which nobody else can make: where it has a tool that is not known, they are
// read again. Here count the services that announce nothing.
func (r *Registry) described(m frames.Message, name string) (found bool) {
	for i := range m.Frames {
		f := &m.Frames[i]
		if f.Type != frames.TypeDescription {
			continue
		}
		f.Content = withName(f)
		said := func(key string) string { s, _ := f.Content.Lookup(key).Text(); return s }
		tool := said("name")
		found = found || tool == name
		if id := (Instance{Identity: said("identity"), ID: said("instance")}); id.Announced() {
			if r.cat.lacks(id, tool) {
				r.stale.Store(true)
				r.early.Store(true)
			}
			continue
		}
		if s, ok := r.declaration(f, Instance{Identity: Plain, Tool: tool}, tool, time.Now()); ok {
			r.cat.hear(&s)
		}
	}
	return found
}

// withName gives a DESCRIPTION's content; a name that stands beside it only is read
// as if it stood in it.
func withName(f *frames.Frame) frames.Raw {
	if f.Name == "" || !f.Content.Lookup("name").Absent() {
		return f.Content
	}
	fields := f.Content.Fields()
	fields.Set("name", frames.Value(f.Name))
	return fields.Raw()
}

func (r *Registry) callable(name string) bool {
	t := r.Get(name)
	return t != nil && t.Callable()
}

// Find gives a tool, looking for it by DESCRIBE where nobody is known to serve
// the name: at most once a second for a name, once for all who ask at the same
// time, and for few names at once.
func (r *Registry) Find(ctx context.Context, name string) *Tool {
	set := r.Setting(name)
	if r.callable(name) || set.Off() || !frames.ValidName(name) {
		return r.Get(name)
	}
	// A lookup outlives a caller that gives up: others wait for the same answer.
	look := func() {
		ctx := context.WithoutCancel(ctx)
		r.describe(ctx, name)
		r.readMissed()
		if !r.callable(name) {
			r.Settle(ctx) // what was announced just before the start may be known only then
		}
	}
	if m := r.lookups.miss(name, look); m != nil {
		select {
		case <-m.done:
		case <-ctx.Done():
		}
	}
	return r.Get(name)
}

// readMissed has the stream read again now if that is due, at most once a second.
func (r *Registry) readMissed() {
	if !r.stale.Load() {
		return
	}
	done := make(chan struct{})
	select {
	case r.reads <- done:
	case <-r.lookups.stopped:
		return
	}
	select {
	case <-done:
	case <-r.lookups.stopped:
	}
}

// lookups are the names that were not found a moment ago.
type lookups struct {
	stopped chan struct{}

	mu      sync.Mutex
	over    bool
	misses  map[string]*miss
	slots   chan struct{}
	running sync.WaitGroup
}

// miss is a name that was not found; done is closed when it was looked for.
type miss struct {
	until time.Time
	done  chan struct{}
}

func newLookups() lookups {
	return lookups{stopped: make(chan struct{}), misses: map[string]*miss{}, slots: make(chan struct{}, maxLookups)}
}

// miss gives the lookup of a name, and begins one where it is due; nil where
// there are too many already.
func (l *lookups) miss(name string, look func()) *miss {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if m := l.misses[name]; m != nil && now.Before(m.until) {
		return m
	}
	if l.over || !l.room(now) {
		return nil
	}
	select {
	case l.slots <- struct{}{}:
	default:
		return nil
	}
	m := &miss{until: now.Add(missPause), done: make(chan struct{})}
	l.misses[name] = m
	l.running.Go(func() {
		defer func() { <-l.slots }()
		defer close(m.done)
		look()
	})
	return m
}

func (l *lookups) room(now time.Time) bool {
	if len(l.misses) < maxMisses {
		return true
	}
	maps.DeleteFunc(l.misses, func(_ string, m *miss) bool { return !now.Before(m.until) })
	return len(l.misses) < maxMisses
}

// end ends the lookups that run; there are no more.
func (l *lookups) end() {
	l.mu.Lock()
	if !l.over {
		l.over = true
		close(l.stopped)
	}
	l.mu.Unlock()
	l.running.Wait()
}
