package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
)

// A tool may run a loop whose model calls the tool again, 4 deep; what lies deeper is
// LIMIT, and told to the model that asked for it.
//
// contract: A12, P77
func TestToolThatRunsALoop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.loop()
		var deepest atomic.Int32
		w.meshTools(func(s *tool.Set) {
			w.must(tool.Add(s, "delegate", func(ctx context.Context, _ struct{}) (string, error) {
				deepest.Store(max(deepest.Load(), int32(tool.CallInfo(ctx).Depth)))
				return w.answer(ctx)
			}))
		})
		w.play = func(req *provider.Request) []provider.Event {
			last := req.Messages[len(req.Messages)-1]
			if last.Role == provider.RoleTool {
				return says("then: " + last.Text)
			}
			return says("", "delegate")
		}
		got, err := w.answer(t.Context())
		w.must(err)
		if n := strings.Count(got, "then: "); n != 5 || !strings.Contains(got, "nested 5 deep") || deepest.Load() != 4 {
			t.Errorf("%d answers, deepest %d: %s", n, deepest.Load(), got)
		}
	})
}

// answer runs the model fake and gives its text.
func (w *world) answer(ctx context.Context) (string, error) {
	var text strings.Builder
	for f, err := range w.Run(ctx, frames.Param("model", "fake/m"), frames.Param("messages", []any{map[string]any{"role": "user", "content": "go"}})) {
		switch {
		case err != nil:
			return "", err
		case f.Type == frames.TypeText && f.ToolCallID == "":
			text.WriteString(f.Text())
		case f.Type == frames.TypeError:
			return "", fmt.Errorf("%w", frames.ErrorFrom(f.Content))
		}
	}
	return text.String(), nil
}
