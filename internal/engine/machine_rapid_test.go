package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// play drives a machine with what rapid draws, and keeps a book of its own.
type play struct {
	t      *rapid.T
	m      *engine.Machine
	params engine.Params
	rounds int
	calls  int // -1 for any number

	// log and outcomes are what a journal would have kept.
	log      []provider.Message
	outcomes map[string]*frames.ToolResult
	used     engine.Used

	asked, withCalls int
	running          []played
	results          map[string]int // results committed, by call id
	opened           []string       // call ids in the model's order
	round            []string       // those of the open round
	kinds            map[string]kind
	started          map[string]bool
	stopped          bool
	n                int
}

type played struct {
	id     string
	kind   kind
	handed bool
}

// kind is how a call is to be run; the model writes it as the tool's name.
type kind string

const (
	parallel   kind = "parallel"
	sequential kind = "sequential"
	locked     kind = "locked"
	safe       kind = "safe"
	outside    kind = "outside"
	unknown    kind = "unknown"
	broken     kind = "broken"
)

func prepare(c engine.Call) (*engine.Ticket, error) {
	t := &engine.Ticket{Identity: "local", Replay: frames.ReplayUnsafe}
	switch kind(c.Name) {
	case unknown:
		return nil, frames.NewError(frames.CodeNotFound, "Tool %q not found", c.Name)
	case sequential:
		t.Sequential = true
	case locked:
		t.Lock = "path=a"
	case safe:
		t.Replay = frames.ReplaySafe
	case outside:
		t.Outside = true
	}
	return t, nil
}

func bound(t *rapid.T, label string, most int) *int {
	n := rapid.IntRange(-1, most).Draw(t, label)
	if n < 0 {
		return nil
	}
	return &n
}

// contract: P76, P77, B17, B19, B38
// case: WS-L03, WS-L06, WS-L07, loop-07-unknown-result-id, loop-08-duplicate-result
func TestMachineKeepsItsRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &play{t: t, results: map[string]int{}, kinds: map[string]kind{}, started: map[string]bool{}, rounds: engine.RunIterations, calls: -1}
		p.outcomes = map[string]*frames.ToolResult{}
		params := engine.Params{MaxIterations: bound(t, "maxIterations", 3), MaxCalls: bound(t, "maxCalls", 6)}
		if params.MaxIterations != nil {
			p.rounds = *params.MaxIterations
		}
		if params.MaxCalls != nil {
			p.calls = *params.MaxCalls
		}
		p.params, p.log = params, []provider.Message{{Role: provider.RoleUser, Text: "go"}}
		p.m = engine.NewMachine(params, engine.Start{Messages: p.log})
		for range 80 {
			if p.step() {
				break
			}
		}
		p.afterTheEnd()
	})
}

func (p *play) step() (over bool) {
	if rapid.IntRange(0, 14).Draw(p.t, "crash") == 0 && !p.stopped {
		p.crash()
	}
	switch s := p.m.Next().(type) {
	case engine.Over:
		return true
	case engine.Park:
		for _, r := range p.running {
			if !r.handed {
				p.t.Fatalf("parked while %s runs", r.id)
			}
		}
		p.happenRunning()
	case engine.Ask:
		p.checkAsk()
		p.happenAsking()
	case engine.Run:
		p.start(s.Calls)
	case engine.Wait:
		if len(p.running) == 0 {
			p.t.Fatal("waits for nothing")
		}
		p.happenRunning()
	}
	return false
}

func (p *play) checkAsk() {
	if p.stopped {
		p.t.Fatal("asks the model after the stop")
	}
	if len(p.running) > 0 {
		p.t.Fatalf("asks the model while %v run", p.running)
	}
	if p.asked++; p.asked > p.rounds+1 {
		p.t.Fatalf("request %d, with %d rounds", p.asked, p.rounds)
	}
	tools := []provider.Tool{{Name: "parallel"}}
	req := p.m.Request(tools)
	if off := len(req.Tools) == 0; off != p.m.Final() {
		p.t.Fatalf("tools off: %v, the last request: %v", off, p.m.Final())
	}
	p.checkMessages(req.Messages)
}

// checkMessages holds every call to one result, in the model's order.
func (p *play) checkMessages(messages []provider.Message) {
	var results []string
	for i, m := range messages {
		for k, c := range m.Calls {
			if i+1+k >= len(messages) || messages[i+1+k].ToolCallID != c.ID {
				p.t.Fatalf("call %s has no result in its place: %+v", c.ID, messages)
			}
		}
		if m.Role == provider.RoleTool {
			results = append(results, m.ToolCallID)
		}
	}
	if !slices.Equal(results, p.opened) {
		p.t.Fatalf("results %v of calls %v", results, p.opened)
	}
}

func (p *play) happenAsking() {
	switch rapid.IntRange(0, 19).Draw(p.t, "asking") {
	case 0:
		p.commit(p.m.Failed(frames.NewError(frames.CodeUnavailable, "gone"), provider.Usage{}))
	case 1:
		p.stop()
	default:
		p.answer()
	}
}

func (p *play) answer() {
	kinds := rapid.SliceOfN(rapid.SampledFrom([]kind{parallel, safe, outside, sequential, locked, unknown, broken}), 0, 5).Draw(p.t, "calls")
	turn := &provider.Turn{Text: "so", Stop: provider.Stop{Reason: provider.StopToolCalls}}
	for i, k := range kinds {
		args := "{}"
		if k == broken {
			args = `{"a":`
		}
		turn.Calls = append(turn.Calls, provider.NewToolCall(fmt.Sprintf("m%d", i%2), string(k), args, provider.StopToolCalls))
	}
	if len(kinds) > 0 {
		p.withCalls++
	}
	c := p.m.Answer(turn, prepare)
	if diff := cmp.Diff(c.Next, p.m.Answer(turn, prepare).Next); diff != "" {
		p.t.Fatalf("a draft that was not kept changed something: %s", diff)
	}
	ids := p.open(kinds)
	for i, in := range c.Answer.Calls {
		if in.Refused != nil {
			p.result(ids[i])
		}
	}
	p.commit(c, ids...)
}

func (p *play) open(kinds []kind) []string {
	p.n++
	ids := make([]string, len(kinds))
	for i, k := range kinds {
		ids[i] = fmt.Sprintf("u-%d-%d", p.n, i)
		p.kinds[ids[i]] = k
	}
	p.opened = append(p.opened, ids...)
	p.round = ids
	return ids
}

func (p *play) start(calls []engine.RunCall) {
	if p.stopped {
		p.t.Fatalf("starts %v after the stop", calls)
	}
	for _, c := range calls {
		k := p.kinds[c.ID]
		if k == unknown || k == broken || p.started[c.ID] {
			p.t.Fatalf("starts %s, which is %s, started %v", c.ID, k, p.started[c.ID])
		}
		p.started[c.ID] = true
		p.running = append(p.running, played{id: c.ID, kind: k})
		p.checkOrder(c.ID, k)
	}
	if p.withCalls > p.rounds {
		p.t.Fatalf("calls run in round %d of %d", p.withCalls, p.rounds)
	}
	if p.calls >= 0 && len(p.started) > p.calls { // each counts once
		p.t.Fatalf("%d calls run, the limit is %d", len(p.started), p.calls)
	}
}

// checkOrder holds a start to barriers and locks.
func (p *play) checkOrder(id string, k kind) {
	for _, earlier := range p.round[:slices.Index(p.round, id)] {
		open := p.results[earlier] == 0
		switch {
		case !open:
		case !p.started[earlier] && p.kinds[earlier] != locked:
			p.t.Fatalf("%s starts before %s", id, earlier)
		case k == sequential || p.kinds[earlier] == sequential:
			p.t.Fatalf("%s (%s) starts while %s (%s) is open", id, k, earlier, p.kinds[earlier])
		case k == locked && p.kinds[earlier] == locked:
			p.t.Fatalf("%s and %s have one lock", id, earlier)
		}
	}
}

func (p *play) happenRunning() {
	if rapid.IntRange(0, 12).Draw(p.t, "running") == 0 {
		p.stop()
		return
	}
	i := rapid.IntRange(0, len(p.running)-1).Draw(p.t, "which")
	id, k := p.running[i].id, p.running[i].kind
	if k == outside && !p.running[i].handed && rapid.Bool().Draw(p.t, "handed") {
		p.running[i].handed = !p.stopped
		p.m.HandedOver(id)
		return
	}
	p.running = slices.Delete(p.running, i, i+1)
	res := &frames.ToolResult{Terminate: rapid.SampledFrom([]string{"", "", "", frames.TerminateRound, frames.TerminateNow}).Draw(p.t, "terminate")}
	if p.m.Result("nobody's", res) != nil {
		p.t.Fatal("takes a result of no call")
	}
	c := p.m.Result(id, res)
	if k == outside && rapid.Bool().Draw(p.t, "recorded") {
		c = p.m.Recorded(id, res)
	}
	p.commit(c)
	if p.m.Result(id, res) != nil || p.m.Recorded(id, res) != nil {
		p.t.Fatalf("takes a second result of %s", id)
	}
}

// stop cancels the run; of several stops the first counts.
func (p *play) stop() {
	end := engine.Cancelled()
	if p.stopped {
		end = engine.End{Reason: frames.EndLimit}
	}
	p.commit(p.m.Stop(end))
	p.stopped = true
	p.running = slices.DeleteFunc(p.running, func(r played) bool { return r.handed }) // they have their results
}

func (p *play) result(id string) {
	if p.results[id]++; p.results[id] > 1 {
		p.t.Fatalf("two results of %s", id)
	}
}

func (p *play) commit(c *engine.Commit, ids ...string) {
	p.keep(c, ids)
	for _, r := range c.Results {
		p.result(r.CallID)
	}
	if c.Next && c.End != nil {
		p.t.Fatal("goes on and ends")
	}
	if c.End != nil || c.Next {
		p.allSettled()
	}
	p.m.Accept(c, ids)
}

// keep writes down what a journal keeps of a commit.
func (p *play) keep(c *engine.Commit, ids []string) {
	if a := c.Answer; a != nil {
		message := a.Message
		message.Calls = slices.Clone(message.Calls)
		for i := range message.Calls {
			message.Calls[i].ID = ids[i]
		}
		p.log = append(p.log, message)
		if p.used.Calls += len(ids); len(ids) > 0 {
			p.used.Rounds++
		}
		for i, in := range a.Calls {
			if in.Refused != nil {
				p.keepResult(ids[i], in.Refused)
			}
		}
	}
	for _, r := range c.Results {
		p.keepResult(r.CallID, r.Result)
	}
}

func (p *play) keepResult(id string, r *frames.ToolResult) {
	p.outcomes[id] = r
	p.log = append(p.log, provider.ToolMessage(id, r))
}

// crash goes on with what was kept, in another process.
func (p *play) crash() {
	if _, over := p.m.Next().(engine.Over); over {
		return
	}
	start := engine.Start{Messages: p.log, Results: p.outcomes, Used: p.used, Open: p.unsettledRound()}
	for _, id := range p.round {
		if p.results[id] == 0 {
			pending := engine.Pending{CallID: id, Replay: frames.ReplayUnsafe, Outside: p.kinds[id] == outside}
			if p.kinds[id] == safe {
				pending.Replay = frames.ReplaySafe
			}
			start.Pending = append(start.Pending, pending)
			delete(p.started, id)
		}
	}
	p.running = nil
	p.m = engine.NewMachine(p.params, start)
	p.commit(p.m.Resume(prepare))
}

// unsettledRound reports whether the open round is not closed: the request that
// follows a closed one may not have been answered yet.
func (p *play) unsettledRound() bool {
	return slices.ContainsFunc(p.round, func(id string) bool { return p.results[id] == 0 })
}

func (p *play) allSettled() {
	for _, id := range p.round {
		if p.results[id] != 1 {
			p.t.Fatalf("the round closes with %d results of %s", p.results[id], id)
		}
	}
}

func (p *play) afterTheEnd() {
	over, ok := p.m.Next().(engine.Over)
	if !ok {
		p.t.Fatalf("no end after 60 steps: %+v", p.m.Next())
	}
	if p.stopped && over.End.Reason != frames.EndCancelled {
		p.t.Fatalf("stopped, and ended %s", over.End.Reason)
	}
	for _, id := range p.opened {
		if p.m.Result(id, &frames.ToolResult{}) != nil {
			p.t.Fatal("takes a result after the end")
		}
	}
	c := p.m.Stop(engine.Cancelled())
	if c.End != nil || len(c.Results) > 0 {
		p.t.Fatal("a cancel after the end says something")
	}
}
