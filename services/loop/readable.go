package loop

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/internal/results"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// cutResults are the results of a session or run that a model saw a part of.
type cutResults interface {
	// anyCut reports whether there are some.
	anyCut() bool
	// whole gives the text of one; NOT_FOUND where there is none of that ref.
	whole(ctx context.Context, ref string) (string, error)
}

// readable offers read_result beside a run's tools, from the first result on that was
// cut for the model. The name is the built-in's from then on. It runs here, and no
// hook sees it: it gives nothing that the run has not got.
type readable struct {
	engine.Tools
	cut      cutResults
	identity string
}

// Offer implements [engine.Tools]. A run without tools stays without.
func (t *readable) Offer(ctx context.Context) []provider.Tool {
	out := t.Tools.Offer(ctx)
	if len(out) == 0 || !t.cut.anyCut() {
		return out
	}
	out = slices.DeleteFunc(out, func(tool provider.Tool) bool { return tool.Name == results.ToolName })
	return append(out, results.Tool())
}

// Prepare implements [engine.Tools].
func (t *readable) Prepare(ctx context.Context, c engine.Call) (*engine.Ticket, error) {
	if c.Name != results.ToolName || !t.cut.anyCut() {
		return t.Tools.Prepare(ctx, c)
	}
	q, err := results.ReadRequest(json.RawMessage(c.Arguments))
	if err != nil {
		return nil, err
	}
	return &engine.Ticket{Identity: t.identity, Replay: frames.ReplaySafe, Start: t.start(q)}, nil
}

// readLimit bounds one call of read_result.
const readLimit = 30 * time.Second

func (t *readable) start(q *results.Request) engine.StartCall {
	return func(ctx context.Context, _ string, _ func(*frames.Frame), done func(*frames.ToolResult)) func(error) {
		ctx, cancel := context.WithCancelCause(ctx)
		go func() {
			defer cancel(nil)
			ctx, stop := context.WithTimeoutCause(ctx, readLimit, frames.Timeout(results.ToolName, readLimit).WithReplay(true))
			defer stop()
			done(t.read(ctx, q))
		}()
		return cancel
	}
}

func (t *readable) read(ctx context.Context, q *results.Request) *frames.ToolResult {
	begun := time.Now()
	whole, err := t.cut.whole(ctx, q.Ref)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return answerError(err)
	}
	r := q.Read(whole)
	r.Attempts, r.Duration = 1, time.Since(begun)
	return r
}

// anyCut implements [cutResults]; only the job's own goroutine asks.
func (j *job) anyCut() bool { return j.head.State.HasCut }

// whole implements [cutResults].
func (j *job) whole(ctx context.Context, ref string) (string, error) {
	return j.l.store.CutResult(ctx, j.key, ref)
}
