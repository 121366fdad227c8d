package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Following is a dispatcher whose registry follows the catalogue.
type Following struct {
	*Dispatcher

	failed chan error
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// Follow makes a registry and a dispatcher, and returns when what is announced
// is known. The registry follows the catalogue until Stop, under work; ctx bounds
// the start only.
func Follow(ctx, work context.Context, conn *bus.Conn, cfg Config) (*Following, error) {
	cfg = cfg.withDefaults()
	reg := registry.New(conn, registry.Config{Prefix: conn.Prefix, Log: cfg.Log})
	running, stop := context.WithCancel(work)
	f := &Following{Dispatcher: New(conn, reg, cfg), failed: make(chan error, 1), stop: stop}
	known := make(chan struct{})
	f.done.Go(func() { f.failed <- reg.Run(running, func() { close(known) }) })
	select {
	case <-known:
		return f, nil
	case err := <-f.failed:
		f.Stop()
		if err == nil {
			err = context.Cause(work) // nothing else ends the registry
		}
		return nil, frames.AsError(err)
	case <-ctx.Done():
		f.Stop()
		return nil, frames.AsError(context.Cause(ctx))
	}
}

// Failed gives the error with which the registry ended before Stop: the catalogue
// is not followed any more.
func (f *Following) Failed() <-chan error { return f.failed }

// Stop ends the registry; it waits for that.
func (f *Following) Stop() {
	f.hooks.stop()
	f.stop()
	f.done.Wait()
}

// Drain waits until no call is running. When ctx ends it takes no more calls,
// cancels those that still run and waits for their results.
func (d *Dispatcher) Drain(ctx context.Context) {
	defer d.hooks.settle(ctx)
	idle := d.whenIdle()
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	for _, r := range d.close() {
		r.cancel(frames.Interrupted(r.Tool, "").WithReplay(r.Declaration.ReplaySafe()))
	}
	<-idle
}

// whenIdle gives a channel that is closed at the next moment in which nobody
// waits for a result.
func (d *Dispatcher) whenIdle() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := make(chan struct{})
	if d.untold == 0 {
		close(c)
		return c
	}
	d.idle = append(d.idle, c)
	return c
}

// close takes no more calls, and gives those that run.
func (d *Dispatcher) close() []*running {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return slices.Collect(maps.Values(d.calls))
}
