package client_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
)

// A session's ledger counts its model requests, those that failed, and what tools
// say that they used themselves.
//
// contract: F5, E10
func TestLedgerOfASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.meshTools(func(s *tool.Set) {
			w.must(s.AddRaw(frames.Declaration{Name: "think"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
				return &frames.ToolResult{Usage: []byte(`{"inputTokens":100,"outputTokens":"many","totalTokens":120}`)}, nil
			}))
		})
		w.play = func(req *provider.Request) []provider.Event {
			if req.Messages[len(req.Messages)-1].Text == "fail" {
				return nil // no stop: NO_RESULT
			}
			return rounds(says("", "think", "think"), says("well"))(req)
		}
		c := w.session(w.Client, "fake/m")
		c.send(frames.Text("go"))
		c.until("idle", 2)
		c.send(frames.Text("fail"))
		c.until("idle", 3)
		info, err := w.SessionInfo(t.Context(), "s1")
		w.must(err)
		want := client.SessionUsage{
			Usage:    provider.Usage{InputTokens: 16, OutputTokens: 4, TotalTokens: 20},
			Requests: 3, Failed: 1, Calls: 2,
			Tools: provider.Usage{InputTokens: 200, TotalTokens: 240},
		}
		if diff := cmp.Diff(want, info.Usage); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
