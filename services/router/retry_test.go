package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// A tool fails twice by plain errors and works then: the client sees the result,
// and how often it was tried.
//
// contract: W7, W11, W14
func TestRetriesThroughTheRouter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, res := w.call("shaky", `{}`).result()
		want(t, "error", res.Err, nil)
		want(t, "result", string(res.Result), `2`)
		want(t, "attempts", res.Attempts, 3)
		err := w.call("broken", `{}`).failure(frames.CodeExecution)
		want(t, "message", err.Message, "no line after 3 attempts")
		want(t, "retryable", err.Retryable, true)
	}, func(w *world) {
		d := frames.Declaration{Name: "shaky", Retries: 2, Replay: frames.ReplaySafe}
		s := set(w.t, d, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
			if c.Attempt < 2 {
				return nil, errors.New("no line")
			}
			return &frames.ToolResult{Result: fmt.Append(nil, c.Attempt)}, nil
		})
		d.Name = "broken"
		add(w.t, s, d, func(context.Context, *tool.Call) (*frames.ToolResult, error) { return nil, errors.New("no line") })
		w.serve("a", s)
	})
}

// The first attempt of a safe call does not heed its time-out. The next one runs
// beside it, on the same instance where there is no other, and is not taken for
// it when the first is told to stop.
//
// contract: B7, S28
func TestRetryBesideAnAttemptThatDoesNotStop(t *testing.T) {
	for name, slots := range map[string]int{"a slot is free": 2, "it has to end first": 1} {
		t.Run(name, func(t *testing.T) {
			var running, most atomic.Int32
			inBubble(t, func(t *testing.T, w *world) {
				_, res := w.call("deaf", `{}`).result()
				want(t, "error", res.Err, nil)
				want(t, "attempts", res.Attempts, 2)
				want(t, "at once", int(most.Load()), slots)
				<-time.After(time.Minute)
			}, func(w *world) {
				ms := int64(1000)
				d := frames.Declaration{Name: "deaf", Retries: 1, Replay: frames.ReplaySafe, TimeoutMs: &ms, Concurrency: slots}
				w.serve("a", set(w.t, d, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					if c.Attempt == 0 {
						<-time.After(5 * time.Second)
					}
					<-time.After(500 * time.Millisecond)
					return nil, nil
				}))
			})
		})
	}
}

// A tool whose calls are short gets its next call before it has answered the one
// that runs; nothing is refused, lost or run too often at once.
func TestCallsAheadThroughTheRouter(t *testing.T) {
	var running, most, total atomic.Int32
	inBubble(t, func(t *testing.T, w *world) {
		for range 6 {
			var wg sync.WaitGroup
			for range 50 {
				x := w.call("quick", `{}`)
				wg.Go(func() {
					for !x.over {
						x.next()
					}
				})
			}
			wg.Wait()
			synctest.Wait()
		}
		want(t, "calls", total.Load(), 300)
		want(t, "at once", most.Load(), 2)
	}, func(w *world) {
		d := frames.Declaration{Name: "quick", Concurrency: 1}
		for _, id := range []string{"a", "b"} {
			w.serve(id, set(w.t, d, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				total.Add(1)
				<-time.After(3 * time.Millisecond)
				return nil, nil
			}))
		}
	})
}

// A client says how deep its call is nested; too deep is refused.
//
// contract: P77
func TestDepthOfACall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for depth, seen := range map[string]string{"0": "0", "3": "3", "4": "4", `"4"`: "0", "null": "0"} {
			_, res := w.call("depth", `{}`, `"metadata":{"depth":`+depth+`}`).result()
			want(t, "error", res.Err, nil)
			want(t, "depth", string(res.Result), seen)
		}
		for _, depth := range []string{"5", "-1", "1e15"} {
			err := w.call("depth", `{}`, `"metadata":{"depth":`+depth+`}`).failure(frames.CodeLimit)
			want(t, "effect", err.Effect, frames.EffectNone)
		}
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "depth"}, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
			return &frames.ToolResult{Result: fmt.Append(nil, c.Depth)}, nil
		}))
	})
}
