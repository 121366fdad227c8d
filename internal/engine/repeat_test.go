package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

const many = 220

// noticed gives the number of the first request that tells the model of a repeat.
func (r *rig) noticed() int {
	for i, req := range r.model.requests {
		if strings.Contains(req.Messages[0].Text, "the same result each time") {
			return i + 1
		}
	}
	return 0
}

// contract: B17
// case: WS-L10
func TestRepeatedCallsEndTheRun(t *testing.T) {
	for name, test := range map[string]struct {
		calls   func(n int) []string
		noticed int // the request with the notice
		asked   int // requests in all; many and one where nothing is wrong
	}{
		"the same call": {func(int) []string { return []string{`f {"a":1,"b":[2]}`} }, 4, 4},
		"keys in another order": {func(n int) []string {
			return []string{[]string{`f {"a":1,"b":2}`, `f { "b": 2, "a": 1 }`}[n%2]}
		}, 4, 4},
		"no arguments":      {func(n int) []string { return []string{[]string{"f", "f {}"}[n%2]} }, 4, 4},
		"a call that fails": {func(int) []string { return []string{"nosuch"} }, 4, 4},
		"by turns":          {func(n int) []string { return []string{fmt.Sprintf(`f {"n":%d}`, n%2)} }, 7, 8},
		"several at once":   {func(int) []string { return []string{"f", "f", `f {"n":1}`} }, 4, 4},
		"other arguments":   {func(n int) []string { return []string{fmt.Sprintf(`f {"n":%d}`, n)} }, 0, many + 1},
		"other results":     {func(int) []string { return []string{"count"} }, 0, many + 1},
		"it polls":          {func(int) []string { return []string{"poll"} }, 0, many + 1},
		"beside what is new": {func(n int) []string {
			return []string{"f", fmt.Sprintf(`f {"n":%d}`, n)}
		}, 0, many + 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				counted := 0
				r.tools["poll"] = after(0)
				r.tools["f"] = fakeTool{run: func(call) *frames.ToolResult { return &frames.ToolResult{Result: []byte("true")} }}
				r.tools["count"] = fakeTool{run: func(call) *frames.ToolResult {
					counted++
					return &frames.ToolResult{Result: fmt.Append(nil, counted)}
				}}
				r.cfg.Params.MaxIterations = new(many + 10)
				r.cfg.Start.Polls = func(tool string) bool { return tool == "poll" }
				for n := range many {
					r.says("", test.calls(n)...)
				}
				r.says("done")
				end, err := r.run()
				if err != nil || len(r.model.requests) != test.asked || r.noticed() != test.noticed {
					t.Fatalf("ended %+v, %v; %d requests, told in %d", end, err, len(r.model.requests), r.noticed())
				}
				if looped := test.noticed > 0; looped != (end.Err != nil && end.Err.Code == frames.CodeLimit && end.Err.Reason == "loop_detected") {
					t.Errorf("ended %+v", end)
				}
			})
		})
	}
}

// A model that takes the notice goes on.
func TestModelThatStopsToRepeat(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(0)
		r.cfg.Params.MaxIterations = new(10)
		for range engine.MaxRepeats {
			r.says("", "f {}")
		}
		r.says("", `f {"n":1}`)
		r.says("done")
		r.ends(frames.EndCompleted)
		if got := r.model.requests[4].Messages[0]; got.Role != provider.RoleUser {
			t.Errorf("it is told of again: %+v", got)
		}
	})
}

// A run that goes on in another process knows what was repeated before.
func TestRepeatsAreSeenAfterATakeOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools["f"] = after(0)
		r.cfg.Params.MaxIterations = new(10)
		for i := range engine.MaxRepeats {
			id := fmt.Sprint("c", i)
			r.cfg.Start.Messages = append(r.cfg.Start.Messages,
				provider.Message{Role: provider.RoleAssistant, Calls: []provider.Call{{ID: id, Name: "f", Arguments: "{}"}}},
				provider.ToolMessage(id, &frames.ToolResult{Result: []byte("{}")}))
		}
		r.cfg.Start.Used.Rounds = engine.MaxRepeats
		r.says("", "f {}")
		if end := r.ends(frames.EndLimit); end.Err.Reason != "loop_detected" || r.noticed() != 1 {
			t.Errorf("ended %+v, told in request %d", end, r.noticed())
		}
	})
}
