package dispatch

import (
	"slices"
	"sync"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
)

// lane is one tool's FIFO and the slots it uses on each instance. Calls for
// instances that are free are not held up by calls for one that is not.
type lane struct {
	tool string

	mu    sync.Mutex
	queue []*running
	loads map[registry.Instance]load
	calls map[*running]struct{}
	// forgive ends the rests; nil where no instance rests.
	forgive *time.Timer
	// took is how long calls run, smoothed; 0 where none has ended.
	took time.Duration
}

// load is what one instance does for a lane.
type load struct {
	slots int
	// rests: it refused a call a moment ago and is left alone.
	rests bool
}

func newLane(tool string) *lane {
	return &lane{tool: tool, loads: map[registry.Instance]load{}, calls: map[*running]struct{}{}}
}

// pick gives the least loaded instance that may take a call for the key now; ok
// is false where all of those are full or rest.
func (l *lane) pick(key string, t *registry.Tool) (best registry.Instance, ok bool) {
	least := 0
	for i := range t.Instances {
		s := &t.Instances[i]
		n := l.loads[s.Instance]
		if n.rests || (s.Slots > 0 && n.slots >= s.Slots) || !owns(s, key) {
			continue
		}
		if !ok || n.slots < least {
			best, least, ok = s.Instance, n.slots, true
		}
	}
	return best, ok
}

// waits reports whether a call for the key is in the queue.
func (l *lane) waits(key string) bool {
	return slices.ContainsFunc(l.queue, func(r *running) bool { return r.key == key })
}

func (l *lane) dequeue(r *running) {
	if i := slices.Index(l.queue, r); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

// take uses a slot of an instance.
func (l *lane) take(id registry.Instance) {
	n := l.loads[id]
	n.slots++
	l.loads[id] = n
}

// release gives a slot back; the instance has room for a call again.
func (l *lane) release(id registry.Instance) {
	n := l.loads[id]
	if n.slots--; n.slots <= 0 {
		delete(l.loads, id)
		return
	}
	l.loads[id] = load{slots: n.slots}
}

// rest leaves an instance alone until forgive is due, or a call on it ends.
func (l *lane) rest(id registry.Instance, forgive func()) {
	n := l.loads[id]
	n.rests = true
	l.loads[id] = n
	if l.forgive == nil {
		l.forgive = time.AfterFunc(busyPause, forgive)
	}
}

func (l *lane) wake() {
	l.forgive = nil
	for id, n := range l.loads {
		switch {
		case n.slots == 0:
			delete(l.loads, id)
		case n.rests:
			l.loads[id] = load{slots: n.slots}
		}
	}
}

// measure takes how long a call ran.
func (l *lane) measure(took time.Duration) {
	if l.took == 0 {
		l.took = took
		return
	}
	l.took += (took - l.took) / 8
}

// estimate is when the calls that wait now may be through.
func (l *lane) estimate(t *registry.Tool) time.Duration {
	slots := 0
	if t != nil {
		for _, s := range t.Instances {
			slots += max(s.Slots, 1)
		}
	}
	return l.took * time.Duration(len(l.queue)+1) / time.Duration(max(slots, 1))
}

// on gives the calls that run on an instance.
func (l *lane) on(id registry.Instance) []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*attempt
	for r := range l.calls {
		if r.try != nil && r.try.target == id {
			out = append(out, r.try)
		}
	}
	return out
}

// empty reports whether the lane holds nothing, under its mutex.
func (l *lane) empty() bool { return len(l.calls) == 0 && len(l.loads) == 0 && l.forgive == nil }
