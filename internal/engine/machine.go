package engine

import (
	"github.com/weavebus/weavebus/internal/results"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Start is where a run begins or goes on from.
type Start struct {
	// Messages are the conversation so far.
	Messages []provider.Message
	// Open says that the round of the last assistant message with calls is not
	// closed yet, also where each of them has its result.
	Open bool
	// Pending are the calls of that round that have no result and that this run
	// must give one.
	Pending []Pending
	// Results are what else is known of results of that round, by the calls' ids.
	Results map[string]*frames.ToolResult
	// Polls reports whether a tool is meant to be called alike again and again;
	// nil: none is.
	Polls func(tool string) bool
	// Stream names the model request that made the pending calls.
	Stream string
	// Used is what the run used before.
	Used Used
}

// Pending is a call whose process ended before its result was kept.
type Pending struct {
	CallID string
	// Identity and Replay are as they were committed.
	Identity, Replay string
	Limits           frames.OutputLimits
	// Outside says that somebody outside of the mesh runs it; see [Ticket].
	Outside bool
	// Fresh says that nobody has prepared or started it: it runs as a new one.
	Fresh bool
}

// Used counts what a run used.
type Used struct {
	// Rounds are assistant messages with calls.
	Rounds int
	Calls  int
	Tokens int64
}

// Call is a call of an assistant message, as it is run.
type Call struct {
	// ID is the runtime's, unique for ever; empty until the answer was committed. A
	// call that is prepared with an ID was started before, by another process.
	ID string
	// Name is the model's own word for the tool.
	Name      string
	Arguments string
	// Repairs names what was done to the model's text already.
	Repairs []string
}

// Step is what a run does next: [Ask], [Run], [Wait], [Park] or [Over].
type Step interface{ step() }

// Ask asks the model, with the request of [Machine.Request].
type Ask struct{}

// Run starts calls, in this order; each gets its result by [Machine.Result].
type Run struct{ Calls []RunCall }

// RunCall is a call to start, with the ticket that was prepared for it.
type RunCall struct {
	Call
	Ticket *Ticket
}

// Wait waits for the result of a call that runs.
type Wait struct{}

// Park says that only somebody outside of the mesh can go on: each call without a
// result was handed over.
type Park struct{}

// Over says that the run has ended.
type Over struct{ End End }

func (Ask) step()  {}
func (Run) step()  {}
func (Wait) step() {}
func (Park) step() {}
func (Over) step() {}

// Machine decides what a run does. It does no input or output, keeps no clock
// and is not safe for concurrent use.
//
// What happens is told by Answer, Failed, Result, Recorded, Resume and Stop: each
// gives the commit that it means and changes nothing. When the commit is kept,
// Accept makes it so. Next then says what to do.
type Machine struct {
	params   Params
	polls    func(string) bool
	messages []provider.Message
	used     Used
	round    *round
	stop     *End
	over     *End
}

// NewMachine makes the machine of a run. Params without MaxIterations have
// [RunIterations].
func NewMachine(p Params, s Start) *Machine {
	m := &Machine{params: p.WithIterations(RunIterations), used: s.Used, polls: s.Polls}
	m.messages, m.round = reopen(s)
	if m.round != nil {
		m.round.limit = m.exceeded()
	}
	return m
}

// exceeded gives the limit that the open round went beyond.
func (m *Machine) exceeded() *frames.Error {
	switch {
	case m.used.Rounds > *m.params.MaxIterations:
		return limitError("maxIterations", "rounds", int64(*m.params.MaxIterations))
	case m.params.MaxTokens > 0 && m.used.Tokens >= m.params.MaxTokens:
		return limitError("maxTokens", "tokens", m.params.MaxTokens)
	case m.params.MaxCalls != nil && m.used.Calls > *m.params.MaxCalls:
		return limitError("maxCalls", "calls", int64(*m.params.MaxCalls))
	}
	return nil
}

// Used gives what the run used so far.
func (m *Machine) Used() Used { return m.used }

// Next gives what to do now. The calls that it says to run are running from then on.
func (m *Machine) Next() Step {
	switch {
	case m.over != nil:
		return Over{*m.over}
	case m.round == nil:
		return Ask{}
	}
	if calls := m.round.start(m.stop != nil); len(calls) > 0 {
		return Run{calls}
	}
	if m.round.parked() {
		return Park{}
	}
	return Wait{}
}

// Final reports whether the model is asked for the last time, with tools off:
// its rounds or its calls are used up.
func (m *Machine) Final() bool {
	return m.used.Rounds >= *m.params.MaxIterations || m.callsLeft() == 0
}

// callsLeft gives how many calls may still be made, -1 for any number.
func (m *Machine) callsLeft() int {
	if m.params.MaxCalls == nil {
		return -1
	}
	return max(*m.params.MaxCalls-m.used.Calls, 0)
}

// Request gives the request to the model that comes now, with the tools that
// may be offered.
func (m *Machine) Request(tools []provider.Tool) *provider.Request {
	req := &provider.Request{
		Model: m.params.Model, Messages: prompted(m.messages, m.params.SystemPrompt), Settings: m.params.Settings,
	}
	if m.Final() {
		req.Messages = instruct(req.Messages, m.params.FinalSystemPrompt)
		return req
	}
	req.Messages = instruct(req.Messages, m.repeats().notice())
	req.Tools, req.ToolChoice = tools, m.params.ToolChoice
	return req
}

// Prepare checks a call that may run and gives its ticket, or why it cannot run.
type Prepare func(Call) (*Ticket, error)

// Answer takes the model's answer. prepare is called for each call that nothing
// speaks against.
func (m *Machine) Answer(t *provider.Turn, prepare Prepare) *Commit {
	a := &Answer{Message: t.Message(), Stop: t.Stop}
	c := &Commit{Answer: a}
	if len(t.Calls) == 0 {
		end := answered(t.Stop)
		c.End = &end
		return c
	}
	a.limit = m.overrun(t)
	gate := m.gate(t, a.limit)
	for i, call := range t.Calls {
		a.Message.Calls[i].Name = WireName(call.Name)
		p := decide(Call{Name: call.Name, Arguments: call.Arguments, Repairs: call.Repairs}, gate(i, &call), prepare)
		a.plans = append(a.plans, p)
		a.Calls = append(a.Calls, p.intent())
	}
	c.Next, c.End = follow(&round{calls: a.open(nil), limit: a.limit}, nil)
	return c
}

// answered gives the end of a run whose model answered without calls.
func answered(s provider.Stop) End {
	switch s.Reason {
	case provider.StopLength:
		err := frames.NewError(frames.CodeLimit, "the model's answer was cut off at its length limit")
		return End{frames.EndLimit, err.WithReason("answer_truncated")}
	case provider.StopContentFilter:
		err := frames.NewError(frames.CodeExecution, "the provider's content filter cut the answer off")
		return End{frames.EndError, err.WithReason("content_filter")}
	case provider.StopError:
		err := frames.NewError(frames.CodeExecution, "the provider ended the answer with an error (%s)", clip(s.Raw))
		return End{frames.EndError, err.WithReason("model_error")}
	}
	return End{Reason: frames.EndCompleted}
}

// gate gives what speaks against a call of an answer, before it is prepared.
func (m *Machine) gate(t *provider.Turn, limit *frames.Error) func(i int, c *provider.ToolCall) *frames.Error {
	left, all := m.callsLeft(), m.Final() || m.tokensUsedUp(t) || isLoop(limit)
	return func(i int, c *provider.ToolCall) *frames.Error {
		switch {
		case limit != nil && (all || i >= left):
			return limit
		case c.Invalid != nil:
			return c.Invalid
		case !t.Stop.Reason.Complete():
			return cutOff(t.Stop.Reason)
		}
		return nil
	}
}

func cutOff(reason provider.StopReason) *frames.Error {
	return invalid("the output was cut off (%s), so no call of it ran: send them again, shorter or in smaller steps", reason).
		WithReason("arguments_truncated")
}

// overrun gives the limit that the answer's calls go beyond, or nil. The calls
// beyond it do not run, and the run ends with their round.
func (m *Machine) overrun(t *provider.Turn) *frames.Error {
	switch {
	case m.used.Rounds >= *m.params.MaxIterations:
		return limitError("maxIterations", "rounds", int64(*m.params.MaxIterations))
	case m.tokensUsedUp(t):
		return limitError("maxTokens", "tokens", m.params.MaxTokens)
	case m.params.MaxCalls != nil && len(t.Calls) > m.callsLeft():
		return limitError("maxCalls", "calls", int64(*m.params.MaxCalls))
	case m.repeats().all(t.Calls):
		return loopError(t.Calls[0].Name)
	}
	return nil
}

func (m *Machine) tokensUsedUp(t *provider.Turn) bool {
	return m.params.MaxTokens > 0 && m.used.Tokens+Tokens(t.Stop.Usage) >= m.params.MaxTokens
}

// Tokens gives what a model request counts for maxTokens.
func Tokens(u provider.Usage) int64 { return max(u.TotalTokens, u.InputTokens+u.OutputTokens) }

func limitError(param, what string, n int64) *frames.Error {
	return frames.NewError(frames.CodeLimit, "%s: the run's %d %s are used up and the model still calls tools", param, n, what)
}

// Failed takes the failure of the model request, and what it used all the same.
func (m *Machine) Failed(err error, used provider.Usage) *Commit {
	end := endOf(frames.AsError(err))
	return &Commit{Failed: &used, End: &end}
}

// Result takes the result of a call that runs; nil where no such call is
// running, since the first result of a call counts.
func (m *Machine) Result(id string, r *frames.ToolResult) *Commit {
	i := m.open(id)
	if i < 0 || m.round.calls[i].state != callRunning && m.round.calls[i].state != callOutside {
		return nil
	}
	return m.settle(map[int]*frames.ToolResult{i: r})
}

// Recorded takes the result that somebody outside gave a call and that is kept
// already; nil where no such call is open.
func (m *Machine) Recorded(id string, r *frames.ToolResult) *Commit {
	i := m.open(id)
	if i < 0 {
		return nil
	}
	c := m.settle(map[int]*frames.ToolResult{i: r})
	c.Results[0].Recorded = true
	return c
}

// HandedOver notes that a call that runs is in the hands of somebody outside. A run
// that stops waits for its result all the same.
func (m *Machine) HandedOver(id string) {
	if i := m.open(id); i >= 0 && m.stop == nil && m.round.calls[i].state == callRunning {
		m.round.calls[i].state = callOutside
	}
}

// open gives the index of a call of the open round without a result, -1 where
// there is none.
func (m *Machine) open(id string) int {
	if m.round == nil || m.over != nil {
		return -1
	}
	i := m.round.find(id)
	if i >= 0 && m.round.calls[i].unsettled() {
		return i
	}
	return -1
}

// settle gives the commit of results by the index of their calls.
func (m *Machine) settle(given map[int]*frames.ToolResult) *Commit {
	c := &Commit{}
	after := m.round.clone()
	for i := range after.calls {
		if r := given[i]; r != nil {
			call := &after.calls[i]
			m, kept := results.Shown(call.ID, r, call.limits)
			call.settle(kept, m)
			c.Results = append(c.Results, Result{CallID: call.ID, Tool: WireName(call.Name), Result: kept, Message: m})
		}
	}
	c.Next, c.End = follow(after, m.stop)
	return c
}

// Stop ends the run: no call starts any more, those that have not started get a
// failed result, and those that run are waited for. The driver should end them.
func (m *Machine) Stop(end End) *Commit {
	c := &Commit{stop: &end}
	switch {
	case m.over != nil || m.stop != nil:
		return &Commit{}
	case m.round == nil:
		c.End = &end
		return c
	}
	results := map[int]*frames.ToolResult{}
	for i, call := range m.round.calls {
		switch call.state {
		case callWaiting:
			results[i] = &frames.ToolResult{Err: unstarted(call.Name, &end)}
		case callUnknown, callOutside:
			results[i] = &frames.ToolResult{Err: StopError(call.Name, end)}
		}
	}
	c.Results = m.settle(results).Results
	if m.round.count(callRunning) == 0 {
		c.End = &end
	}
	return c
}

// StopError is the error of a call that the end of its run stops: it may have acted.
func StopError(tool string, end End) *frames.Error {
	if end.Err != nil {
		return end.Err.WithEffect(frames.EffectUnknown)
	}
	return frames.Cancelled(tool)
}

func unstarted(tool string, end *End) *frames.Error {
	if end.Err != nil {
		return end.Err
	}
	e := frames.NewError(frames.CodeCancelled, "Tool %s was cancelled before it started", clip(tool))
	e.Effect = frames.EffectNone
	return e
}

// Resume decides about the pending calls of a run that goes on: one that may run
// again does, as does one that never ran; one in the hands of somebody outside is
// left there; any other is INTERRUPTED. A round without pending calls is closed.
func (m *Machine) Resume(prepare Prepare) *Commit {
	c := &Commit{}
	if m.round == nil || m.over != nil {
		return c
	}
	results := map[int]*frames.ToolResult{}
	c.rerun = make([]plan, len(m.round.calls))
	for i, call := range m.round.calls {
		if call.state != callUnknown {
			continue
		}
		c.rerun[i] = again(call, prepare)
		results[i] = c.rerun[i].refused
		if t := c.rerun[i].ticket; call.fresh && t != nil {
			c.Prepared = append(c.Prepared, Prepared{call.ID, t.intent()})
		}
	}
	settled := m.settle(results)
	c.Results, c.Next, c.End = settled.Results, settled.Next, settled.End
	return c
}

// again decides about one call whose process ended: it runs again where the
// tool says that this does no harm, as it stood then and as it stands now.
func again(call openCall, prepare Prepare) plan {
	if call.fresh {
		fresh := call.Call
		fresh.ID = "" // not started before
		return decide(fresh, nil, prepare)
	}
	if call.outside {
		return decide(call.Call, nil, prepare)
	}
	if call.replay != frames.ReplaySafe {
		return refuse(frames.Interrupted(WireName(call.Name), ""))
	}
	p := decide(call.Call, nil, prepare)
	if p.ticket != nil && p.ticket.Replay != frames.ReplaySafe {
		return refuse(frames.Interrupted(WireName(call.Name), ""))
	}
	return p
}

// Accept makes a commit so that was kept; ids are those of the answer's calls.
func (m *Machine) Accept(c *Commit, ids []string) {
	if c.stop != nil {
		m.stop = c.stop
	}
	if c.Answer != nil {
		m.accept(c.Answer, ids)
	}
	for i, p := range c.rerun {
		m.round.calls[i].rerun(p)
	}
	for _, r := range c.Results {
		m.round.calls[m.round.find(r.CallID)].settle(r.Result, r.Message)
	}
	if m.round != nil && (c.Next || c.End != nil) {
		m.messages = append(m.messages, m.round.messages()...)
		m.round = nil
	}
	m.over = c.End
}

func (m *Machine) accept(a *Answer, ids []string) {
	m.used.Tokens += Tokens(a.Stop.Usage)
	message := a.Message
	message.Calls = append([]provider.Call(nil), message.Calls...)
	for i := range message.Calls {
		message.Calls[i].ID = ids[i]
	}
	m.messages = append(m.messages, message)
	if len(ids) == 0 {
		return
	}
	m.used.Rounds++
	m.used.Calls += len(ids)
	m.round = &round{calls: a.open(ids), limit: a.limit}
}

// tool gives the name of a call of the open round.
func (m *Machine) tool(id string) string {
	if m.round == nil {
		return ""
	}
	if i := m.round.find(id); i >= 0 {
		return WireName(m.round.calls[i].Name)
	}
	return ""
}
