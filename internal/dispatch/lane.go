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

	mu       sync.Mutex
	queue    []*running
	inFlight map[registry.Instance]int
	calls    map[*running]struct{}
	retry    *time.Timer
}

func newLane(tool string) *lane {
	return &lane{tool: tool, inFlight: map[registry.Instance]int{}, calls: map[*running]struct{}{}}
}

// pick gives the least loaded instance that may take the call now; ok is false
// where all of those are full or have just refused it.
func (l *lane) pick(r *running, t *registry.Tool) (registry.Served, bool) {
	var best registry.Served
	found := false
	for _, s := range t.Instances {
		n := l.inFlight[s.Instance]
		if (s.Slots > 0 && n >= s.Slots) || r.refused[s.Instance] || (r.key != "" && !s.Owns(r.key)) {
			continue
		}
		if !found || n < l.inFlight[best.Instance] {
			best, found = s, true
		}
	}
	return best, found
}

func (l *lane) enqueue(r *running, front bool) {
	if front {
		l.queue = slices.Insert(l.queue, 0, r)
		return
	}
	l.queue = append(l.queue, r)
}

func (l *lane) dequeue(r *running) {
	if i := slices.Index(l.queue, r); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

// release gives a slot back.
func (l *lane) release(id registry.Instance) {
	if l.inFlight[id]--; l.inFlight[id] <= 0 {
		delete(l.inFlight, id)
	}
}

// runningOn gives the calls that hold a slot of an instance.
func (l *lane) runningOn(id registry.Instance) []*running {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*running
	for r := range l.calls {
		if r.state != queued && r.target.Instance == id {
			out = append(out, r)
		}
	}
	return out
}
