package cli

import (
	"strings"
	"sync"
	"time"
)

// slowDrain is how long a stage may take to end before it is named.
const slowDrain = time.Second

// ending tells a person how far the stop of services is.
type ending struct {
	c *console

	mu    sync.Mutex
	begun bool
	timer *time.Timer
}

// drain hears that services are asked to end.
func (e *ending) drain(services []string) {
	if e.c.JSON {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun {
		e.c.note("Stopping: what runs is finished first; a second Ctrl-C ends it at once.")
	}
	e.begun = true
	e.stop()
	e.timer = time.AfterFunc(slowDrain, func() { e.c.note("Waiting for %s …", strings.Join(services, ", ")) })
}

func (e *ending) stop() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

// done says that nothing runs any more.
func (e *ending) done(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop()
	if e.begun && err == nil {
		e.c.note("Stopped.")
	}
}
