package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// broken is a run whose process ended when calls of a were settled and of b, c
// and d not.
func (r *rig) brokenOff() {
	calls := []provider.Call{{ID: "a", Name: "safe"}, {ID: "b", Name: "safe", Arguments: `{"n":2}`}, {ID: "c", Name: "unsafe"}, {ID: "d", Name: "grown"}}
	r.cfg.Start = engine.Start{
		Messages: []provider.Message{
			{Role: provider.RoleUser, Text: "go"},
			{Role: provider.RoleAssistant, Calls: calls},
			{Role: provider.RoleTool, ToolCallID: "a", Text: "kept"},
		},
		Pending: []engine.Pending{{CallID: "b", Replay: frames.ReplaySafe}, {CallID: "c", Replay: frames.ReplayUnsafe}, {CallID: "d", Replay: frames.ReplaySafe}},
		Used:    engine.Used{Rounds: 1, Calls: 4},
		Stream:  "s-old",
	}
	safe := after(time.Second)
	safe.replay = frames.ReplaySafe
	r.tools["safe"], r.tools["unsafe"] = safe, after(time.Second)
	r.tools["grown"] = after(time.Second) // is unsafe now
}

// contract: E3, E4
// case: WS-H01
func TestResumeRunsSafeCallsAgainOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.brokenOff()
		r.says("done")
		r.ends(frames.EndCompleted)
		r.want(r.noted("META"), `
			TOOL_RESULT c unsafe INTERRUPTED
			TOOL_RESULT d grown INTERRUPTED
			start b
			TOOL_RESULT b safe {"n":2}
			ask 3 tools
			live TEXT done
			END completed`)
		got := r.model.requests[0].Messages[2:]
		var order []string
		for _, m := range got {
			order = append(order, m.ToolCallID)
		}
		if strings.Join(order, "") != "abcd" || got[0].Text != "kept" || !strings.Contains(got[2].Text, "may have run, and may still") {
			t.Errorf("the model sees %+v", got)
		}
	})
}

func TestResumeOfACancelledRunStartsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.brokenOff()
		runner := engine.New(r.cfg)
		runner.Cancel()
		end, err := runner.Run(t.Context())
		if err != nil || end.Reason != frames.EndCancelled {
			t.Fatalf("%+v, %v", end, err)
		}
		r.want(r.noted(), `
			TOOL_RESULT b safe CANCELLED
			TOOL_RESULT c unsafe CANCELLED
			TOOL_RESULT d grown CANCELLED
			END cancelled`)
		if e := r.commits[0].Results[0].Result.Err; e.Effect != frames.EffectUnknown {
			t.Errorf("an earlier process may have run it, its effect is %s", e.Effect)
		}
	})
}

func TestResumeCountsTheRoundsBefore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.brokenOff()
		r.cfg.Params.MaxIterations = new(1)
		r.says("done")
		r.ends(frames.EndCompleted)
		if len(r.model.requests[0].Tools) != 0 {
			t.Error("the round was used up, but tools are on")
		}
	})
}

// Providers use ids again, and refuse a request with a call that has no result.
//
// case: WS-H01, WS-H02, WS-H03, loop-07-unknown-result-id, loop-08-duplicate-result
func TestHistoryIsMadeLegal(t *testing.T) {
	user := provider.Message{Role: provider.RoleUser, Text: "go"}
	says := func(ids ...string) provider.Message {
		m := provider.Message{Role: provider.RoleAssistant}
		for _, id := range ids {
			m.Calls = append(m.Calls, provider.Call{ModelID: id, Name: "f"})
		}
		return m
	}
	result := func(id, text string) provider.Message {
		return provider.Message{Role: provider.RoleTool, ToolCallID: id, Text: text}
	}
	for name, test := range map[string]struct {
		in   []provider.Message
		want string
	}{
		"orphan":       {[]provider.Message{user, says("a"), user}, "user assistant a! user"},
		"used again":   {[]provider.Message{says("a"), result("a", "1"), user, says("a"), user}, "assistant a=1 user assistant a! user"},
		"twice":        {[]provider.Message{says("a"), result("a", "1"), result("a", "2")}, "assistant a=1"},
		"unknown":      {[]provider.Message{says("a"), result("zzz", "0"), result("a", "1")}, "assistant a=1"},
		"no call":      {[]provider.Message{user, result("a", "1")}, "user"},
		"order":        {[]provider.Message{says("a", "b"), result("b", "2"), result("a", "1")}, "assistant a=1 b=2"},
		"two alike":    {[]provider.Message{says("a", "a"), result("a", "1"), result("a", "2")}, "assistant a=1 a=2"},
		"late":         {[]provider.Message{says("a"), user, result("a", "1")}, "assistant a! user"},
		"nothing said": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := engine.NewMachine(engine.Params{}, engine.Start{Messages: test.in})
			var got []string
			for _, m := range m.Request(nil).Messages {
				switch {
				case m.Role != provider.RoleTool:
					got = append(got, string(m.Role))
				case m.IsError:
					got = append(got, m.ToolCallID+"!")
				default:
					got = append(got, m.ToolCallID+"="+m.Text)
				}
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
}
