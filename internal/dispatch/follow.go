package dispatch

import (
	"context"
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
			err = context.Cause(ctx)
		}
		return nil, err
	case <-ctx.Done():
		f.Stop()
		return nil, frames.AsError(context.Cause(ctx))
	}
}

// Failed gives the error with which the registry ended before Stop.
func (f *Following) Failed() <-chan error { return f.failed }

// Stop ends the registry; it waits for that.
func (f *Following) Stop() {
	f.stop()
	f.done.Wait()
}

// Drain waits until no call is running. When ctx ends it cancels those that
// still run and waits for their results.
func (d *Dispatcher) Drain(ctx context.Context) {
	idle := d.whenIdle()
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	d.cancelAll(frames.NewError(frames.CodeInterrupted, "the dispatcher stopped before the call ended"))
	<-idle
}

// whenIdle gives a channel that is closed at the next moment without a call.
func (d *Dispatcher) whenIdle() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := make(chan struct{})
	if len(d.calls) == 0 {
		close(c)
		return c
	}
	d.idle = append(d.idle, c)
	return c
}

func (d *Dispatcher) cancelAll(cause error) {
	d.mu.Lock()
	all := make([]*running, 0, len(d.calls))
	for _, r := range d.calls {
		all = append(all, r)
	}
	d.mu.Unlock()
	for _, r := range all {
		r.cancel(cause)
	}
}

// forget takes a call that has its result out of the index.
func (d *Dispatcher) forget(r *running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, callKey{r.Caller, r.ID})
	if len(d.calls) > 0 {
		return
	}
	for _, c := range d.idle {
		close(c)
	}
	d.idle = nil
}
