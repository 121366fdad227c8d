package engine

import (
	"slices"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// callState is where a call of the open round stands.
type callState uint8

const (
	// callUnknown: an earlier process may have run it.
	callUnknown callState = iota
	callWaiting
	callRunning
	// callOutside: it was handed over to somebody outside.
	callOutside
	callSettled
)

// round is an assistant message's calls until all have their results.
type round struct {
	calls []openCall
	// limit is what the run went beyond with this round: it ends with it.
	limit *frames.Error
}

type openCall struct {
	Call
	state     callState
	replay    string // as committed, like outside and fresh
	outside   bool
	fresh     bool
	ticket    *Ticket
	limits    frames.OutputLimits
	message   provider.Message // of the settled call
	terminate string
}

// plan is what was decided about a call: a ticket, or a refusal.
type plan struct {
	call    Call
	ticket  *Ticket
	refused *frames.ToolResult
}

func refuse(err error) plan {
	return plan{refused: &frames.ToolResult{Err: frames.AsError(err)}}
}

// decide gives the plan of a call; against is what speaks against it already.
func decide(call Call, against *frames.Error, prepare Prepare) plan {
	p := plan{call: call}
	if against != nil {
		p.refused = &frames.ToolResult{Err: against}
		return p
	}
	t, err := prepare(call)
	if err != nil {
		p.refused = &frames.ToolResult{Err: frames.AsError(err)}
		return p
	}
	p.ticket = t
	return p
}

func (t *Ticket) intent() Intent {
	return Intent{Identity: t.Identity, Replay: t.Replay, Outside: t.Outside, Limits: t.Limits}
}

func (p *plan) intent() Intent {
	if p.ticket == nil {
		return Intent{Refused: p.refused}
	}
	return p.ticket.intent()
}

// open gives the calls of an answer as the round begins with them.
func (a *Answer) open(ids []string) []openCall {
	calls := make([]openCall, len(a.plans))
	for i, p := range a.plans {
		c := openCall{Call: p.call, state: callWaiting, ticket: p.ticket}
		if ids != nil {
			c.ID = ids[i]
		}
		if p.ticket != nil {
			c.limits = p.ticket.Limits
		}
		if p.refused != nil {
			c.settle(p.refused, provider.ToolMessage(c.ID, p.refused))
		}
		calls[i] = c
	}
	return calls
}

func (c *openCall) settle(r *frames.ToolResult, m provider.Message) {
	c.state, c.ticket, c.terminate, c.message = callSettled, nil, r.Terminate, m
}

// rerun takes the decision about a pending call; one that was refused gets its
// result by the same commit.
func (c *openCall) rerun(p plan) {
	if p.ticket != nil {
		c.state, c.ticket, c.limits = callWaiting, p.ticket, p.ticket.Limits
	}
}

func (c *openCall) unsettled() bool { return c.state != callSettled }

// parked reports whether nothing but calls that were handed over is open.
func (r *round) parked() bool {
	outside := r.count(callOutside)
	return outside > 0 && outside+r.count(callSettled) == len(r.calls)
}

func (r *round) clone() *round { return &round{calls: slices.Clone(r.calls), limit: r.limit} }

func (r *round) find(id string) int {
	return slices.IndexFunc(r.calls, func(c openCall) bool { return c.ID == id && id != "" })
}

func (r *round) count(s callState) int {
	n := 0
	for _, c := range r.calls {
		if c.state == s {
			n++
		}
	}
	return n
}

// start marks the calls that may start now as running and gives them.
func (r *round) start(stopped bool) []RunCall {
	var out []RunCall
	for i := range r.calls {
		c := &r.calls[i]
		if !c.unsettled() {
			continue
		}
		if stopped || c.barred(r.calls[:i]) {
			break
		}
		if c.state == callWaiting && !c.locked(r.calls[:i]) {
			c.state = callRunning
			out = append(out, RunCall{c.Call, c.ticket})
		}
		if c.ticket != nil && c.ticket.Sequential {
			break
		}
	}
	return out
}

// barred reports whether c is sequential and an earlier call has not ended.
func (c *openCall) barred(earlier []openCall) bool {
	return c.state == callUnknown || c.state == callWaiting && c.ticket.Sequential && anyOpen(earlier)
}

func anyOpen(calls []openCall) bool {
	return slices.ContainsFunc(calls, func(c openCall) bool { return c.unsettled() })
}

// locked reports whether an earlier call of the same lock has not ended.
func (c *openCall) locked(earlier []openCall) bool {
	return c.ticket.Lock != "" && slices.ContainsFunc(earlier, func(e openCall) bool {
		return e.unsettled() && e.ticket.Lock == c.ticket.Lock
	})
}

// messages gives the results in the model's order.
func (r *round) messages() []provider.Message {
	out := make([]provider.Message, len(r.calls))
	for i, c := range r.calls {
		out[i] = c.message
	}
	return out
}

// follow says what comes behind a round: the next request, or the end.
func follow(r *round, stop *End) (next bool, end *End) {
	switch {
	case anyOpen(r.calls):
		return false, nil
	case stop != nil:
		return false, stop
	case r.limit != nil:
		return false, &End{frames.EndLimit, r.limit}
	case r.terminates():
		return false, &End{Reason: frames.EndCompleted}
	}
	return true, nil
}

// terminates reports whether the round's results end the run: all of them say
// so, or one says "now".
func (r *round) terminates() bool {
	all := true
	for _, c := range r.calls {
		if c.terminate == frames.TerminateNow {
			return true
		}
		all = all && c.terminate == frames.TerminateRound
	}
	return all
}

// reopen takes the open round off the end of a conversation that was broken off,
// and makes the rest legal.
func reopen(s Start) ([]provider.Message, *round) {
	if !s.Open && len(s.Pending) == 0 {
		return repair(s.Messages), nil
	}
	i := len(s.Messages) - 1
	for i >= 0 && len(s.Messages[i].Calls) == 0 {
		i--
	}
	if i < 0 {
		return repair(s.Messages), nil
	}
	r := &round{}
	results := ordered(&s.Messages[i], s.Messages[i+1:])
	for k, c := range s.Messages[i].Calls {
		r.calls = append(r.calls, s.reopened(c, results[k]))
	}
	if !s.Open && r.count(callUnknown) == 0 {
		return repair(s.Messages), nil // the ids are of another round
	}
	return append(repair(s.Messages[:i]), s.Messages[i]), r
}

func (s *Start) reopened(c provider.Call, result provider.Message) openCall {
	call := openCall{Call: Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments}, state: callSettled, message: result}
	if known := s.Results[c.ID]; known != nil {
		call.terminate = known.Terminate
	}
	for _, p := range s.Pending {
		if p.CallID == c.ID {
			call.state, call.replay, call.outside, call.fresh = callUnknown, p.Replay, p.Outside, p.Fresh
			call.limits = p.Limits
		}
	}
	return call
}
