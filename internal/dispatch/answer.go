package dispatch

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// answer takes what the tool's instance sends; it runs on the connection's
// delivery goroutine.
func (a *attempt) answer(m frames.Message, err error) {
	if err != nil {
		a.broken(err)
		return
	}
	for i := range m.Frames {
		f := &m.Frames[i]
		inOrder, wanted := a.hear(f.Seq)
		if !inOrder {
			a.giveUp(a.noResult("one of its answers is missing"))
			return
		}
		if f.Type == frames.TypeEnd {
			a.ended()
			return // what stands behind END is nobody's
		}
		a.take(f, wanted)
	}
}

// noResult is the error of a call whose exchange was not in order; why is for
// developers.
func (r *running) noResult(why string) *frames.Error {
	return frames.NoResult(r.Tool).WithReplay(r.Declaration.ReplaySafe()).With(func(e *frames.Error) {
		e.Message += ": " + why
	})
}

func (r *running) interrupted() *frames.Error {
	return frames.Interrupted(r.Tool, "").WithReplay(r.Declaration.ReplaySafe())
}

// hear counts an answer; one without a number is not checked. wanted says that
// the call waits for this attempt.
func (a *attempt) hear(seq uint64) (inOrder, wanted bool) {
	a.lane.mu.Lock()
	defer a.lane.mu.Unlock()
	a.heard = time.Now()
	wanted = a.phase == runs || a.phase == cancelling
	if seq == 0 {
		return true, wanted
	}
	a.seq++
	return seq == a.seq, wanted
}

func (a *attempt) take(f *frames.Frame, wanted bool) {
	switch f.Type {
	case frames.TypeToolResult:
		a.keep(f)
	case frames.TypeError: // never right for a call, but it says what happened
		a.keep(&frames.Frame{Content: frames.Fields{{Key: "isError", Value: frames.Value(true)}, {Key: "error", Value: f.Content}}.Raw()})
	case frames.TypeText, frames.TypeProgress, frames.TypeTick: // what else a tool says could be taken for its caller's own
		if wanted {
			a.tell(f)
		}
	}
}

// tell gives the caller a frame, unless it has its result already.
func (r *running) tell(f *frames.Frame) {
	if r.OnFrame == nil {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	if !r.told {
		r.OnFrame(f)
	}
}

// keep holds the first result until END. One that names another call, or another
// tool, is not this call's.
func (a *attempt) keep(f *frames.Frame) {
	foreign := f.ToolCallID != "" && f.ToolCallID != a.ID || f.Name != "" && f.Name != a.Tool
	var res *frames.ToolResult
	if !foreign {
		var err error
		if res, err = f.Result(); err != nil {
			res = failed(err)
		}
		unhook(res)
	}
	a.lane.mu.Lock()
	defer a.lane.mu.Unlock()
	switch {
	case foreign:
		a.foreign = true
	case a.result == nil:
		a.result, a.unsaid = res, saysNothing(f, res.Err)
	default:
		a.d.stats.late.Add(1)
	}
}

// ended is the end of the tool's exchange.
func (a *attempt) ended() {
	a.lane.mu.Lock()
	res, stopped, foreign := a.result, a.stopped, a.foreign
	if a.phase == abandoned && res != nil {
		a.d.stats.late.Add(1)
	}
	a.lane.mu.Unlock()
	switch {
	case res == nil && stopped != nil:
		a.end(failed(started(stopped)))
	case res == nil && foreign:
		a.end(failed(a.noResult("the one that came names another call")))
	case res == nil:
		a.end(failed(a.noResult("its exchange held none")))
	case a.refuses(res):
		a.elsewhere(res.Err)
	case res.Err != nil && res.Err.Code == frames.CodeCancelled && stopped != nil:
		res.Err = stopped.WithEffect(res.Err.Effect)
		a.end(res)
	case res.Err == nil && (a.decl.OutputSchema != nil || len(res.Result) > checkedAside):
		go func() { a.end(a.checked(res)) }() // takes time that the connection's other answers do not have
	default:
		a.end(a.checked(res))
	}
}

// refuses reports whether an instance refused a call before its start, so that
// another may take it. To an attempt beyond the first that is also the attempt
// before, which was told to stop and still runs there.
func (a *attempt) refuses(res *frames.ToolResult) bool {
	if res.Err == nil || res.Err.Effect != frames.EffectNone {
		return false
	}
	return res.Err.Code == frames.CodeBusy || res.Err.Code == frames.CodeConflict && a.index > 0
}

// unstarted is why a call was stopped that no tool has seen.
func unstarted(why *frames.Error) *frames.Error {
	return why.WithEffect(frames.EffectNone)
}

// started is why a call was stopped that a tool has seen: it may have acted.
func started(why *frames.Error) *frames.Error {
	if why.Effect == frames.EffectNone {
		return why.WithEffect(frames.EffectUnknown)
	}
	return why
}

// checked holds a result to the inline limit and to the tool's output schema;
// values beside an error are not held to the schema.
func (a *attempt) checked(res *frames.ToolResult) *frames.ToolResult {
	a.tidy(res)
	if err := a.d.check(a.decl, res); err != nil {
		return failed(err)
	}
	return res
}

// checkedAside is how long a result may be, in bytes, that is checked before the
// connection's next answer is read.
const checkedAside = 64 << 10

// check holds a result to the inline limit, to what JSON is, and to the tool's
// output schema.
func (d *Dispatcher) check(decl *frames.Declaration, res *frames.ToolResult) error {
	if n, most := sizeOf(res), d.conn.InlineLimit(); n > most {
		err := frames.TooLarge("result of tool "+decl.Name, int64(n), int64(most))
		return err.With(func(e *frames.Error) { e.Effect = frames.EffectDone })
	}
	if failure := res.Err; failure != nil {
		return beside(decl, res)
	}
	s, err := d.reg.Output(decl)
	switch {
	case err != nil:
		return err
	case s != nil:
		return s.ValidateOutput(res.Result)
	}
	return schema.CheckOutput(decl.Name, res.Result)
}

// beside leaves out what stands beside an error and is no JSON.
func beside(decl *frames.Declaration, res *frames.ToolResult) error {
	if res.Result != nil && schema.CheckOutput(decl.Name, res.Result) != nil {
		res.Result = nil
	}
	return nil
}

// sizeOf gives how many bytes of a result are the tool's.
func sizeOf(r *frames.ToolResult) int {
	n := len(r.Result) + len(r.Details) + len(r.Usage)
	for i := range r.Parts {
		n += len(r.Parts[i].Text) + len(r.Parts[i].Data) + len(r.Parts[i].URI)
	}
	for i := range r.Extra {
		n += len(r.Extra[i].Value)
	}
	return n
}

// broken is an answer that cannot be read, or no answer at all.
func (a *attempt) broken(err error) {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		a.elsewhere(frames.Unavailable(a.Tool))
		a.d.reg.Gone(a.target)
	case errors.Is(err, bus.ErrClosed): // the tool may run on, nobody will hear of it
		a.end(failed(a.interrupted()))
	case frames.CodeOf(err) == frames.CodeBadFrame:
		a.end(failed(a.noResult("an answer cannot be read: " + frames.AsError(err).Message)))
	default:
		a.end(failed(err))
	}
}
