package dispatch

import (
	"slices"
	"sync"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
)

// laneKey tells lanes apart: calls of each depth have slots of their own, so that
// a tool that runs a loop never waits for its own parent's slot.
type laneKey struct {
	tool  string
	depth int
}

// lane is the FIFO of one tool at one depth, and the slots it uses on each
// instance. Calls for instances that are free are not held up by calls for one
// that is not, nor calls for a lock that is free by those for one that is held.
type lane struct {
	laneKey

	mu       sync.Mutex
	queue    []*running
	open     int // calls without a result
	loads    map[registry.Instance]load
	attempts map[*attempt]struct{}
	locks    map[string]struct{}
	// forgive ends the rests; nil where no instance rests.
	forgive *time.Timer
	pace    pace
	// notAhead: until then no call is sent to an instance without a free slot.
	notAhead time.Time
}

// load is what one instance does for a lane.
type load struct {
	slots int
	// rests: it refused a call a moment ago and is left alone.
	rests bool
	// ahead is a call that waits there for a slot.
	ahead *attempt
}

func newLane(key laneKey) *lane {
	return &lane{
		laneKey: key, loads: map[registry.Instance]load{},
		attempts: map[*attempt]struct{}{}, locks: map[string]struct{}{},
	}
}

// pick gives the least loaded instance that may take a call for the key now; ok
// is false where all of those are full or rest. Where all are full and calls end
// soon, one may be sent ahead.
func (l *lane) pick(key string, t *registry.Tool) (best registry.Instance, ahead, ok bool) {
	least, full := 0, false
	for i := range t.Instances {
		s := &t.Instances[i]
		n := l.loads[s.Instance]
		if n.rests || !owns(s, key) {
			continue
		}
		if s.Slots > 0 && n.slots >= s.Slots {
			full = full || mayHoldAhead(s, n)
			continue
		}
		if !ok || n.slots < least {
			best, least, ok = s.Instance, n.slots, true
		}
	}
	if ok || !full || !l.pace.short || time.Now().Before(l.notAhead) {
		return best, false, ok
	}
	i := slices.IndexFunc(t.Instances, func(s registry.Served) bool {
		n := l.loads[s.Instance]
		return !n.rests && owns(&s, key) && mayHoldAhead(&s, n)
	})
	return t.Instances[i].Instance, true, true
}

// mayHoldAhead reports whether an instance that is full has no call that waits
// there. Who serves what has no instance is not known; where an operator holds the
// instance to fewer slots than it has, a call would not wait there.
func mayHoldAhead(s *registry.Served, n load) bool {
	return s.Instance.Announced() && !s.Held && n.slots == s.Slots && n.ahead == nil
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

// locked reports whether a call that runs holds the lock.
func (l *lane) locked(lock string) bool {
	_, held := l.locks[lock]
	return held
}

// take uses a slot of the attempt's instance.
func (l *lane) take(a *attempt) {
	n := l.loads[a.target]
	n.slots++
	if a.waits {
		n.ahead = a
	}
	l.loads[a.target] = n
	l.attempts[a] = struct{}{}
	if a.lock != "" {
		l.locks[a.lock] = struct{}{}
	}
}

// release gives the attempt's slot back; the instance has room for a call again,
// perhaps one that waits there already.
func (l *lane) release(a *attempt) {
	delete(l.attempts, a)
	delete(l.locks, a.lock)
	n := l.loads[a.target]
	n.rests = false
	if next := n.ahead; next != nil {
		n.ahead = nil
		if next != a {
			next.begins(time.Now())
		}
	}
	if n.slots--; n.slots <= 0 {
		delete(l.loads, a.target)
		return
	}
	l.loads[a.target] = n
}

// begins gives an attempt that was sent ahead its slot.
func (a *attempt) begins(now time.Time) {
	a.waits, a.startedAt = false, now
	a.waited += now.Sub(a.sentAt)
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
		if n.rests = false; n.slots == 0 {
			delete(l.loads, id)
			continue
		}
		l.loads[id] = n
	}
}

// estimate is when the calls that wait now may be through.
func (l *lane) estimate(t *registry.Tool, now time.Time) time.Duration {
	took := l.pace.mean
	for a := range l.attempts { // the first calls may not have ended yet
		took = max(took, now.Sub(a.startedAt))
	}
	slots := 0
	if t != nil {
		for _, s := range t.Instances {
			slots += max(s.Slots, 1)
		}
	}
	return took / time.Duration(max(slots, 1)) * time.Duration(len(l.queue)+1)
}

// on gives the attempts that run on an instance.
func (l *lane) on(id registry.Instance) []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*attempt
	for a := range l.attempts {
		if a.target == id {
			out = append(out, a)
		}
	}
	return out
}

// empty reports whether the lane holds nothing, under its mutex.
func (l *lane) empty() bool {
	return l.open == 0 && len(l.attempts) == 0 && len(l.loads) == 0 && l.forgive == nil
}
