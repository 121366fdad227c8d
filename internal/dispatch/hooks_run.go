package dispatch

import (
	"context"
	"errors"
	"slices"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// prepareHooked is prepare of a call that hooks see: a failure goes to those for
// errors, of which one may answer instead.
func (d *Dispatcher) prepareHooked(ctx context.Context, p *Prepared, prepare prepare) error {
	if d.runs(&p.Call) {
		return runsAlready(p.ID)
	}
	s, release, err := d.hooks.hold(&p.Call)
	if err != nil {
		return err
	}
	defer release()
	err = prepareUnder(ctx, s, p, prepare)
	if err == nil {
		return nil
	}
	refused := failed(err)
	if ctx.Err() == nil {
		stoppable, done := s.under(ctx)
		defer done()
		if res := d.recovered(stoppable, p, refused); res.Err == nil {
			p.hooked.answer, p.hooked.recovered = res, true
			return nil
		}
	}
	p.observe(refused, bus.TraceHeader(ctx))
	return refused.Err
}

// runs reports whether a call of that id has started.
func (d *Dispatcher) runs(c *Call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[callKey{c.Caller, c.ID}] != nil
}

// prepareUnder prepares a call until CANCEL ends that.
func prepareUnder(ctx context.Context, s *stopper, p *Prepared, prepare prepare) error {
	stoppable, done := s.under(ctx)
	defer done()
	err := prepare(stoppable, p)
	if p.Declaration == nil { // hooks behind have something to look at
		p.Declaration = &frames.Declaration{Name: p.Tool}
	}
	if err != nil && stoppable.Err() != nil {
		return unstarted(stoppedBy(p.Tool, context.Cause(stoppable)))
	}
	return err
}

// stoppedBy is the error of a call that was stopped for a cause.
func stoppedBy(tool string, cause error) *frames.Error {
	if errors.Is(cause, context.Canceled) {
		return frames.Cancelled(tool)
	}
	return frames.AsError(cause)
}

// Answered reports whether a hook answered in place of the tool.
func (p *Prepared) Answered() bool { return p.hooked != nil && p.hooked.answer != nil }

// gates lets the hooks before the tool decide, in order, until one ends the call.
// A gate that gives no decision denies.
func (d *Dispatcher) gates(ctx context.Context, p *Prepared) error {
	if p.hooked == nil {
		return nil
	}
	for i, g := range p.hooked.chain {
		if g.Before == nil {
			continue
		}
		c := p.seen()
		made, err := run(ctx, g, hook.PhaseBefore, func(ctx context.Context) (hook.Decision, error) { return g.Before(ctx, c) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && made.Action() == hook.ActionDeny {
			g.denied.Add(1)
			return frames.DeniedByHook(p.Tool, g.Name, made.Reason())
		}
		if err == nil {
			err = d.take(p, i, made)
		}
		if err != nil {
			g.fault(hook.PhaseBefore, c, err)
			return frames.HookFailed(p.Tool, g.Name, err)
		}
		if p.Answered() {
			return nil
		}
	}
	return nil
}

// take does what a gate decided; an error is the gate's fault.
func (d *Dispatcher) take(p *Prepared, i int, made hook.Decision) error {
	g := p.hooked.chain[i]
	switch made.Action() {
	case hook.ActionProceed:
		return nil
	case hook.ActionMutate:
		args, err := made.Arguments()
		if err == nil {
			args, err = d.fit(p.Declaration, args)
		}
		if err != nil {
			return prefixed("it gave other arguments, which cannot be: ", err)
		}
		p.Arguments, p.hooked.mutatedBy = args, append(p.hooked.mutatedBy, g.Name)
		return nil
	case hook.ActionSkip:
		res, err := made.Result()
		if err == nil {
			err = d.check(p.Declaration, res)
		}
		if err != nil {
			return prefixed("it gave a result, which cannot be: ", err)
		}
		p.hooked.answer, p.hooked.skipper = adopted(res, &frames.ToolResult{}, "skippedBy", g.Name), i
		return nil
	}
	return frames.NewError(frames.CodeInternal, "it decided nothing")
}

func prefixed(what string, err error) *frames.Error {
	return frames.AsError(err).With(func(e *frames.Error) { e.Message = what + e.Message })
}

// adopted gives a hook's result as that of the call, with what is known of the
// call from old, and one thing more in its metadata.
func adopted(made, old *frames.ToolResult, key string, value any) *frames.ToolResult {
	res := *made
	res.Duration, res.Queue, res.Attempts, res.Instance = old.Duration, old.Queue, old.Attempts, old.Instance
	res.Metadata = old.Metadata.Clone()
	res.Metadata.Set(key, frames.Value(value))
	return &res
}

// unhook takes out of a tool's result what only hooks may say.
func unhook(res *frames.ToolResult) {
	res.Metadata = nil
	if res.Err != nil && res.Err.Hook != "" {
		res.Err = res.Err.With(func(e *frames.Error) { e.Hook = "" })
	}
}

// answered begins a call that hooks see, and ends one that they have answered.
func (r *running) answered() bool {
	if r.hooked == nil {
		return false
	}
	r.observe(nil, r.trace)
	if r.hooked.answer == nil {
		return false
	}
	answer := *r.hooked.answer
	r.lane.mu.Lock()
	r.last = &answer
	r.lane.mu.Unlock()
	r.finish(nil)
	return true
}

// afterwards lets the hooks behind the tool see what came, and concludes.
func (r *running) afterwards(res *frames.ToolResult) {
	ctx, done := r.hooks.under(bus.WithTrace(context.Background(), r.trace))
	if r.d.stopping() {
		r.hooks.stop(r.interrupted())
	}
	if res.Err != nil && !r.hooked.recovered {
		res = r.d.recovered(ctx, r.Prepared, res)
	}
	if res.Err == nil {
		res = r.d.replaced(ctx, r.Prepared, res)
	}
	done()
	if by := r.hooked.mutatedBy; by != nil {
		res = adopted(res, res, "mutatedBy", by)
	}
	r.observe(res, r.trace)
	r.conclude(res)
}

// stopping reports whether the dispatcher takes no more calls.
func (d *Dispatcher) stopping() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// recovered gives the result of the first hook that recovers the call from its
// failure, else the failure.
func (d *Dispatcher) recovered(ctx context.Context, p *Prepared, res *frames.ToolResult) *frames.ToolResult {
	for _, g := range p.hooked.behind() {
		if g.OnError == nil || ctx.Err() != nil {
			continue
		}
		made := d.outcome(ctx, g, hook.PhaseError, g.OnError, p, res)
		if made != nil {
			return adopted(made, res, "recoveredBy", g.Name)
		}
	}
	return res
}

// replaced gives what the hooks behind the tool make of a result. A call that is
// cancelled meanwhile has no result: they might have kept it back.
func (d *Dispatcher) replaced(ctx context.Context, p *Prepared, res *frames.ToolResult) *frames.ToolResult {
	var by []string
	for _, g := range slices.Backward(p.hooked.behind()) {
		if g.After == nil || res.Err != nil {
			continue
		}
		made := d.outcome(ctx, g, hook.PhaseAfter, g.After, p, res)
		if ctx.Err() != nil {
			why := stoppedBy(p.Tool, context.Cause(ctx)).With(func(e *frames.Error) { e.Effect = effectOf(res) })
			return adopted(failed(why), res, "replacedBy", append(by, g.Name))
		}
		if made == nil {
			continue
		}
		if made.Err != nil {
			made.Err = made.Err.With(func(e *frames.Error) { e.Effect, e.Hook = effectOf(res), g.Name })
		}
		by = append(by, g.Name)
		res = adopted(made, res, "replacedBy", by)
	}
	return res
}

// effectOf says whether a tool has acted that gave a result.
func effectOf(res *frames.ToolResult) frames.Effect {
	if res.Attempts == 0 {
		return frames.EffectNone
	}
	return frames.EffectDone
}

type behindTool = func(context.Context, *hook.Call, *frames.ToolResult) (hook.Outcome, error)

// outcome runs a hook behind the tool and gives its result, held to the tool's
// output schema; nil where what came is kept.
func (d *Dispatcher) outcome(
	ctx context.Context, g *guarded, phase hook.Phase, f behindTool, p *Prepared, res *frames.ToolResult,
) *frames.ToolResult {
	c, shown := p.seen(), *res
	o, err := run(ctx, g, phase, func(ctx context.Context) (hook.Outcome, error) { return f(ctx, c, &shown) })
	var made *frames.ToolResult
	if err == nil {
		made, err = o.Result()
	}
	if err == nil && made != nil {
		err = d.check(p.Declaration, made)
	}
	if err == nil && made != nil && made.Err != nil && phase == hook.PhaseError {
		err = frames.NewError(frames.CodeInternal, "it recovered with a failure: %w", made.Err)
	}
	if err != nil && ctx.Err() == nil {
		g.fault(phase, c, err)
	}
	if err != nil {
		return nil
	}
	return made
}
