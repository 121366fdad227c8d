package tool

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Run runs one call of a tool of the set here, without a service: f is its
// TOOL_CALL. It holds the call to the tool's schema and time-out as [Serve] does, and
// returns when the handler does. metadata.timeoutMs can only shorten the time-out;
// what the handler puts out is dropped.
func (s *Set) Run(ctx context.Context, f *frames.Frame) *frames.ToolResult {
	t := s.find(f.Name)
	if t == nil {
		return &frames.ToolResult{Err: frames.NotFound(f.Name, nil)}
	}
	args, err := f.Arguments()
	if err != nil {
		return &frames.ToolResult{Err: frames.AsError(err)}
	}
	limit := t.decl.Timeout()
	if ms := f.Metadata.Int("timeoutMs"); ms > 0 && ms < limit.Milliseconds() {
		limit = time.Duration(ms) * time.Millisecond
	}
	c := &call{info: infoOf(f, t.decl.Name), tool: t, log: slog.Default(), started: time.Now(), inline: frames.InlineLimit(defaultPayload)}
	c.info.Deadline = c.started.Add(limit)
	ctx, cancel := context.WithDeadlineCause(context.WithValue(ctx, callKey{}, c), c.info.Deadline,
		frames.Timeout(c.info.Tool, limit).WithReplay(t.decl.ReplaySafe()))
	defer cancel()
	res, err := c.guarded(ctx, args)
	return c.outcome(ctx, res, err)
}

// defaultPayload is the server's max_payload as it is shipped.
const defaultPayload = 8 << 20

// guarded is invoke, with a panic as an error.
func (c *call) guarded(ctx context.Context, args []byte) (res *frames.ToolResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("tool panicked", "tool", c.info.Tool, "panic", p, "stack", string(debug.Stack()))
			res, err = nil, panicked(c.info.Tool)
		}
	}()
	return c.invoke(ctx, args)
}
