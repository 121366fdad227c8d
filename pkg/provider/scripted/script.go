package scripted

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Script is what a model says, turn by turn. It is not changed once it was
// given to [New].
type Script struct {
	Turns []Turn
	// PerUser counts the turns from the last user message on; otherwise from
	// the first message.
	PerUser bool
	// RepeatLast plays the last turn again when the turns are used up;
	// otherwise that is LIMIT.
	RepeatLast bool
}

// Turn is one assistant message.
type Turn struct {
	// Expect is a text that the last message of the request must hold.
	Expect string
	// Delay is waited before the turn, ChunkDelay before each chunk but the first.
	Delay, ChunkDelay time.Duration
	// Thinking and Text are chunks.
	Thinking, Text []string
	Calls          []Call
	// Error ends the turn instead of calls and stop.
	Error *frames.Error
	// Stop is the stop reason; empty means what the calls imply.
	Stop  provider.StopReason
	Usage provider.Usage
}

// Call is a call of a turn.
type Call struct {
	// ID is the model's own id; empty means one made from the turn's number.
	ID   string
	Name string
	// Arguments are pieces of JSON text, joined by their bytes.
	Arguments []string
}

// turn picks the turn that answers the request, and its number from 0.
func (s *Script) turn(req *provider.Request) (*Turn, int, error) {
	n := s.played(req.Messages)
	at := n
	if s.RepeatLast {
		at = min(n, len(s.Turns)-1)
	}
	if at >= len(s.Turns) || at < 0 {
		return nil, 0, frames.NewError(frames.CodeLimit,
			"script %q has %d turns, and turn %d is asked for", req.Model, len(s.Turns), n+1).WithReason("script_over")
	}
	return &s.Turns[at], n, nil
}

func (s *Script) played(messages []provider.Message) int {
	n := 0
	for i := range messages {
		switch messages[i].Role {
		case provider.RoleAssistant:
			n++
		case provider.RoleUser:
			if s.PerUser {
				n = 0
			}
		}
	}
	return n
}

// meets checks what the turn expects of the request.
func (t *Turn) meets(req *provider.Request, n int) error {
	last := ""
	if len(req.Messages) > 0 {
		last = req.Messages[len(req.Messages)-1].Content()
	}
	if strings.Contains(last, t.Expect) {
		return nil
	}
	e := frames.NewError(frames.CodeValidationInput,
		"script %q, turn %d: expected %q in the last message, which is %q", req.Model, n+1, t.Expect, bounded(last, 200))
	e.Retryable = false
	return e.WithReason("expectation_failed")
}

// player plays one turn into a range.
type player struct {
	ctx   context.Context //nolint:containedctx // one call long
	yield func(provider.Event, error) bool
	wait  time.Duration // before the next chunk
}

// play gives the turn's events; false means that the range was left.
func (t *Turn) play(ctx context.Context, n int, yield func(provider.Event, error) bool) error {
	p := player{ctx: ctx, yield: yield, wait: t.Delay}
	for _, chunk := range t.Thinking {
		if err := p.say(provider.Thinking{Text: chunk}, chunk, t.ChunkDelay); err != nil {
			return err
		}
	}
	for _, chunk := range t.Text {
		if err := p.say(provider.Text{Text: chunk}, chunk, t.ChunkDelay); err != nil {
			return err
		}
	}
	if err := p.pause(); err != nil {
		return err
	}
	if t.Error != nil {
		return t.Error
	}
	return p.end(t, n)
}

// errLeft ends a turn whose range was left.
var errLeft = fmt.Errorf("range left")

func (p *player) emit(event provider.Event) error {
	if !p.yield(event, nil) {
		return errLeft
	}
	return nil
}

// say gives a chunk after its wait; an empty one only waits.
func (p *player) say(event provider.Event, chunk string, next time.Duration) error {
	if err := p.pause(); err != nil {
		return err
	}
	p.wait = next
	if chunk == "" {
		return nil
	}
	return p.emit(event)
}

// pause waits what is to be waited, unless the context ends.
func (p *player) pause() error {
	if p.ctx.Err() != nil {
		return ended(p.ctx)
	}
	if p.wait <= 0 {
		return nil
	}
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	p.wait = 0
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return ended(p.ctx)
	}
}

func ended(ctx context.Context) error {
	if e, ok := context.Cause(ctx).(*frames.Error); ok { //nolint:errorlint // our own, unwrapped
		return e
	}
	return frames.AsError(ctx.Err())
}

func (p *player) end(t *Turn, n int) error {
	reason := t.stop()
	for i := range t.Calls {
		call, err := t.Calls[i].event(n, i, reason)
		if err != nil {
			return err
		}
		if err := p.emit(call); err != nil {
			return err
		}
	}
	return p.emit(provider.Stop{Reason: reason, Usage: t.usage()})
}

func (t *Turn) stop() provider.StopReason {
	switch {
	case t.Stop != "" && t.Stop != provider.StopDone && t.Stop != provider.StopToolCalls:
		return t.Stop
	case len(t.Calls) > 0:
		return provider.StopToolCalls
	}
	return provider.StopDone
}

// usage fills the total when only its parts are given.
func (t *Turn) usage() provider.Usage {
	u := t.Usage
	if u.TotalTokens == 0 {
		u.TotalTokens = u.InputTokens + u.OutputTokens
	}
	return u
}

func (c *Call) event(n, i int, reason provider.StopReason) (provider.ToolCall, error) {
	var text argstream.Joiner
	pieces := c.Arguments
	if len(pieces) == 0 {
		pieces = []string{"{}"}
	}
	for _, piece := range pieces {
		if err := text.Add([]byte(piece)); err != nil {
			return provider.ToolCall{}, err
		}
	}
	id := c.ID
	if id == "" {
		id = fmt.Sprintf("call_%d_%d", n+1, i+1)
	}
	return provider.NewToolCall(id, c.Name, text.Text(), reason), nil
}
