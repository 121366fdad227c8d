package engine_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// rig is a run with a model and tools that do what the test says, and what was
// seen of it.
type rig struct {
	t     *testing.T
	cfg   engine.Config
	model model
	tools map[string]fakeTool

	mu      sync.Mutex
	log     []string // what happened, in order
	commits []*engine.Commit
	refuse  func(*engine.Commit) error
}

// model plays turns, one a request, and keeps the requests.
type model struct {
	turns    []func(ctx context.Context, yield func(provider.Event, error) bool)
	requests []*provider.Request
}

// fakeTool is a tool of the rig; run gives the result, or nil to wait for cancel.
type fakeTool struct {
	replay     string
	sequential bool
	run        func(c call) *frames.ToolResult
}

// call is a running call of a fake tool.
type call struct {
	id, args string
	ctx      context.Context //nolint:containedctx // the call's own, to see that it ends
	live     func(*frames.Frame)
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, tools: map[string]fakeTool{}}
	memory := engine.NewMemory("u", func(fs ...frames.Frame) error {
		for i := range fs {
			r.notef("%s", brief(&fs[i]))
		}
		return nil
	})
	r.cfg = engine.Config{
		Params: engine.Params{Model: "fake/m", Messages: nil, FinalSystemPrompt: engine.FinalPrompt},
		Start:  engine.Start{Messages: []provider.Message{{Role: provider.RoleUser, Text: "go"}}},
		Model:  r, Tools: r, Journal: journal{r, memory},
		Live:   func(f frames.Frame) { r.notef("live %s", brief(&f)) },
		Stream: func(rounds int) string { return fmt.Sprintf("s%d", rounds) },
	}
	return r
}

func (r *rig) notef(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// noted gives what happened, without the lines that begin with one of skip.
func (r *rig) noted(skip ...string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
lines:
	for _, line := range r.log {
		for _, s := range skip {
			if strings.HasPrefix(line, s) {
				continue lines
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func brief(f *frames.Frame) string {
	words := []string{string(f.Type)}
	if f.ToolCallID != "" {
		words = append(words, f.ToolCallID, f.Name)
	}
	switch f.Type {
	case frames.TypeText, frames.TypeThinking:
		words = append(words, f.Text())
	case frames.TypeToolResult:
		res, err := f.Result()
		switch {
		case err != nil:
			words = append(words, err.Error())
		case res.Err != nil:
			words = append(words, string(res.Err.Code), res.Err.Reason)
		default:
			words = append(words, string(res.Result))
		}
	case frames.TypeError:
		e := frames.ErrorFrom(f.Content)
		words = append(words, string(e.Code), e.Message)
	case frames.TypeEnd:
		words = append(words, f.Reason())
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

type journal struct {
	r *rig
	engine.Journal
}

func (j journal) Commit(ctx context.Context, c *engine.Commit) ([]string, error) {
	if j.r.refuse != nil {
		if err := j.r.refuse(c); err != nil {
			return nil, err
		}
	}
	j.r.commits = append(j.r.commits, c)
	return j.Journal.Commit(ctx, c)
}

// Stream plays the next turn.
func (r *rig) Stream(ctx context.Context, req *provider.Request) iter.Seq2[provider.Event, error] {
	return func(yield func(provider.Event, error) bool) {
		r.model.requests = append(r.model.requests, req)
		r.notef("ask %d tools", len(req.Tools))
		n := len(r.model.requests)
		if n > len(r.model.turns) {
			yield(nil, frames.NewError(frames.CodeInternal, "request %d was not expected", n))
			return
		}
		r.model.turns[n-1](ctx, yield)
	}
}

// says adds a turn of a text, which comes in words, and calls: "name args".
func (r *rig) says(text string, calls ...string) {
	reason := provider.StopDone
	if len(calls) > 0 {
		reason = provider.StopToolCalls
	}
	r.stops(reason, text, calls...)
}

func (r *rig) stops(reason provider.StopReason, text string, calls ...string) {
	r.model.turns = append(r.model.turns, func(_ context.Context, yield func(provider.Event, error) bool) {
		if text != "" && !yield(provider.Text{Text: text}, nil) {
			return
		}
		for i, c := range calls {
			name, args, _ := strings.Cut(c, " ")
			if !yield(provider.NewToolCall(fmt.Sprintf("m%d", i), name, args, reason), nil) {
				return
			}
		}
		yield(provider.Stop{Reason: reason, Usage: provider.Usage{InputTokens: 8, OutputTokens: 2}}, nil)
	})
}

// hangs adds a turn that says something and never ends.
func (r *rig) hangs() {
	r.model.turns = append(r.model.turns, func(ctx context.Context, yield func(provider.Event, error) bool) {
		yield(provider.Text{Text: "hm"}, nil)
		<-ctx.Done()
		yield(nil, frames.AsError(ctx.Err()))
	})
}

func (r *rig) Offer(context.Context) []provider.Tool {
	out := make([]provider.Tool, 0, len(r.tools))
	for name := range r.tools {
		out = append(out, provider.Tool{Name: name})
	}
	return out
}

func (r *rig) Prepare(_ context.Context, c engine.Call) (*engine.Ticket, error) {
	tool, ok := r.tools[c.Name]
	if !ok {
		return nil, frames.NewError(frames.CodeNotFound, "Tool %q not found", c.Name)
	}
	start := func(ctx context.Context, id string, live func(*frames.Frame), done func(*frames.ToolResult)) func(error) {
		r.notef("start %s", id)
		running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		go func() {
			res := tool.run(call{id, c.Arguments, running, live})
			if res == nil {
				<-running.Done()
				res = &frames.ToolResult{Err: frames.AsError(context.Cause(running))}
			}
			done(res)
		}()
		r.t.Cleanup(func() { cancel(context.Canceled) })
		return cancel
	}
	return &engine.Ticket{Identity: "local", Replay: tool.replay, Sequential: tool.sequential, Start: start}, nil
}

// after is a tool that takes a time and answers with its arguments.
func after(d time.Duration) fakeTool {
	return fakeTool{run: func(c call) *frames.ToolResult {
		<-time.After(d) // virtual time
		return &frames.ToolResult{Result: []byte(c.args)}
	}}
}

// hanging is a tool that ends by a cancel only.
func hanging() fakeTool {
	return fakeTool{run: func(call) *frames.ToolResult { return nil }}
}

func (r *rig) run() (engine.End, error) { return engine.New(r.cfg).Run(r.t.Context()) }

// ends runs to an end that must be of the reason.
func (r *rig) ends(reason string) engine.End {
	r.t.Helper()
	end, err := r.run()
	if err != nil || end.Reason != reason {
		r.t.Fatalf("ended %+v, %v; want %s\n%s", end, err, reason, r.noted())
	}
	return end
}

func (r *rig) want(got, want string) {
	r.t.Helper()
	want = strings.ReplaceAll(strings.TrimSpace(want), "\t", "")
	if got != want {
		r.t.Errorf("got:\n%s\n\nwant:\n%s", got, want)
	}
}
