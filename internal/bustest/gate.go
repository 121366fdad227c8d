package bustest

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// meshes is the gate of this process; see the package's doc for its reason.
var meshes = gate{holders: map[string]*holder{}}

// gate lets either one test in a bubble or any number of tests outside have
// meshes. It uses mutexes only: waiting for one keeps a bubble's clock still.
type gate struct {
	running sync.RWMutex // write: a bubble; read: outside

	mu      sync.Mutex
	holders map[string]*holder // by test name
}

type holder struct {
	bubble bool
	count  int
}

// enter waits until the test may start a mesh, and gives the function to call
// after the mesh's end.
func (g *gate) enter(t testing.TB, bubble bool) (leave func()) {
	t.Helper()
	name, joined := g.join(t, bubble)
	if !joined {
		g.lock(bubble)
		g.mu.Lock()
		g.holders[name] = &holder{bubble: bubble, count: 1}
		g.mu.Unlock()
	}
	return func() { g.leave(name) }
}

// join counts another mesh of a test, or of one of its parents, that is inside already.
func (g *gate) join(t testing.TB, bubble bool) (name string, joined bool) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := t.Name(); ; {
		if h := g.holders[name]; h != nil {
			if h.bubble != bubble {
				t.Fatalf("bustest: %s has a mesh outside of this test's bubble: a process cannot have both", name)
			}
			h.count++
			return name, true
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return t.Name(), false
		}
		name = name[:i]
	}
}

func (g *gate) lock(bubble bool) {
	if bubble {
		g.running.Lock()
		return
	}
	g.running.RLock()
}

func (g *gate) leave(name string) {
	g.mu.Lock()
	h := g.holders[name]
	h.count--
	last := h.count == 0
	if last {
		delete(g.holders, name)
	}
	g.mu.Unlock()
	switch {
	case last && h.bubble:
		synctest.Wait() // goroutines that the closed connections woke give their timers back
		emptyPools()
		g.running.Unlock()
	case last:
		g.running.RUnlock()
	}
}

// emptyPools drops the bubble's timers: a sync.Pool keeps its values for one
// collection and drops them in the second.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// inBubble tells by the clock: a bubble's starts at the year 2000.
func inBubble() bool { return time.Now().Year() < 2020 }
