package dispatch

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// hooks are a dispatcher's hooks, in order; nil where it has none.
type hooks struct {
	all []*guarded

	most int // bytes of arguments

	mu sync.Mutex
	// gated are the calls that are not started yet, so that CANCEL ends their gates.
	gated map[callKey]*stopper
	bytes int // of the arguments of all that are not started yet
}

func newHooks(conn *bus.Conn, cfg Config) *hooks {
	if len(cfg.Hooks) == 0 {
		return nil
	}
	hs := &hooks{most: cfg.MaxBytes, gated: map[callKey]*stopper{}}
	for _, h := range cfg.Hooks {
		hs.all = append(hs.all, guard(h.On(conn), cfg.Log))
	}
	return hs
}

// hooked is what hooks have to do with one call; nil where none sees it. It does
// not change once the call is prepared.
type hooked struct {
	chain []*guarded
	// raw are the arguments as they came.
	raw json.RawMessage
	// mutatedBy names those that changed them.
	mutatedBy []string
	// answer is the result in place of the tool's; nil where the tool runs.
	answer *frames.ToolResult
	// skipper is which of the chain gave the answer; past its end where none did.
	skipper int
	// recovered: the answer is an error hook's.
	recovered bool
}

// of gives what hooks there are for a call.
func (hs *hooks) of(c *Call) *hooked {
	if hs == nil {
		return nil
	}
	var chain []*guarded
	for _, g := range hs.all {
		if g.Applies(c.Tool) {
			chain = append(chain, g)
		}
	}
	if chain == nil {
		return nil
	}
	return &hooked{chain: chain, raw: c.Arguments, skipper: len(chain)}
}

// behind gives the hooks that see the call's result.
func (h *hooked) behind() []*guarded { return h.chain[:h.skipper] }

// seen gives the call as a hook sees it, to that hook alone.
func (p *Prepared) seen() *hook.Call {
	c := &hook.Call{
		ID: p.ID, Tool: p.Tool, Caller: p.Caller, SessionID: p.SessionID, Workspace: p.Workspace, Depth: p.Depth,
		Arguments: p.Arguments, Raw: p.hooked.raw,
	}
	if p.Declaration != nil {
		c.Identity, c.Annotations = p.Declaration.Identity, p.Declaration.Annotations
	}
	return c
}

// observe tells that the call begins, or what came of it.
func (p *Prepared) observe(res *frames.ToolResult, trace nats.Header) {
	for _, g := range p.hooked.chain {
		if g.Observe != nil {
			g.tell(event{p.seen(), res, trace})
		}
	}
}

// stopper ends what hooks do for a call, while they do it.
type stopper struct {
	mu     sync.Mutex
	cancel context.CancelCauseFunc
}

// under gives a context that stop ends, until done is called.
func (s *stopper) under(ctx context.Context) (stoppable context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.set(cancel)
	return ctx, func() {
		s.set(nil)
		cancel(nil)
	}
}

func (s *stopper) set(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
}

// stop reports whether there was something to end.
func (s *stopper) stop(cause error) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel == nil {
		return false
	}
	s.cancel(cause)
	return true
}

// hold lets a call be cancelled while it is prepared, until release is called. A
// model's call has no id yet: it ends with its run.
func (hs *hooks) hold(c *Call) (s *stopper, release func(), err error) {
	s = &stopper{}
	key, size := callKey{c.Caller, c.ID}, len(c.Arguments)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch {
	case hs.gated[key] != nil:
		return nil, nil, runsAlready(c.ID)
	case hs.bytes+size > hs.most:
		return nil, nil, frames.Busy(c.Tool, time.Second).WithReason("busy")
	}
	if hs.bytes += size; c.ID != "" {
		hs.gated[key] = s
	}
	return s, func() {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		hs.bytes -= size
		delete(hs.gated, key)
	}, nil
}

// cancel ends the gates of a call; false where none run for that id.
func (hs *hooks) cancel(caller, id string) bool {
	if hs == nil {
		return false
	}
	hs.mu.Lock()
	s := hs.gated[callKey{caller, id}]
	hs.mu.Unlock()
	return s.stop(context.Canceled)
}

// settle waits until observers were told what there is to tell, or ctx ends.
func (hs *hooks) settle(ctx context.Context) {
	if hs == nil {
		return
	}
	for _, g := range hs.all {
		g.events.settle(ctx)
	}
}

// stop tells observers no more.
func (hs *hooks) stop() {
	if hs == nil {
		return
	}
	for _, g := range hs.all {
		g.events.stop()
	}
}

// HookStats counts what one hook did.
type HookStats struct {
	Name string
	// Denied counts calls that it refused by decision, Failed runs that gave no
	// outcome, Dropped events that were not told.
	Denied, Failed, Dropped uint64
}

// HookStats gives the counts of each hook, in the order of the list.
func (d *Dispatcher) HookStats() []HookStats {
	if d.hooks == nil {
		return nil
	}
	out := make([]HookStats, len(d.hooks.all))
	for i, g := range d.hooks.all {
		out[i] = HookStats{g.Name, g.denied.Load(), g.failed.Load(), g.dropped.Load()}
	}
	return out
}
