package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

type callConfig struct {
	id, workspace string
	timeout       time.Duration
}

// CallOption changes one call.
type CallOption func(*callConfig) error

func newCallConfig(opts []CallOption) (callConfig, error) {
	cfg := callConfig{id: nuid.Next()}
	for _, o := range opts {
		if err := o(&cfg); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// WithID sets the call's id, ^[A-Za-z0-9_-]{1,64}$, by which [Client.Cancel] finds
// it; it must never be used twice. Default: a new unique one.
func WithID(id string) CallOption {
	return func(c *callConfig) error {
		if !frames.ValidName(id) {
			return frames.NewError(frames.CodeValidationInput, "call id %q: want letters, digits, _ and -, at most 64", id)
		}
		c.id = id
		return nil
	}
}

// WithWorkspace names the workspace that the call is about. Default: the only one.
func WithWorkspace(name string) CallOption {
	return func(c *callConfig) error { c.workspace = name; return nil }
}

// WithTimeout shortens the tool's time-out, which runs from the dispatch; parts of
// a millisecond are rounded up. Default: the tool's own.
func WithTimeout(d time.Duration) CallOption {
	return func(c *callConfig) error {
		if d <= 0 {
			return frames.NewError(frames.CodeValidationInput, "time-out of the call: %v, want more than 0", d)
		}
		c.timeout = d
		return nil
	}
}

// A CANCEL that is not acknowledged in cancelWait is sent again, cancelTries
// times in all: the process that runs the call may not know it yet.
const (
	cancelWait  = time.Second
	cancelTries = 4
)

// Call calls a tool through the router and waits for its result. args is JSON
// text as json.RawMessage, or a value for encoding/json; nil is {}. The tool's own
// failure is in the result's Err; the error is that of the mesh: UNAVAILABLE where
// no router listens, NO_RESULT where the answer broke off, CANCELLED where ctx
// ended, in which case the call was cancelled too.
func (c *Client) Call(ctx context.Context, tool string, args any, opts ...CallOption) (*frames.ToolResult, error) {
	return result(c.CallStream(ctx, tool, args, opts...))
}

// result reads a call for its result alone.
func result(call iter.Seq2[frames.Frame, error]) (*frames.ToolResult, error) {
	var res *frames.ToolResult
	for f, err := range call {
		if err != nil {
			return res, err
		}
		if f.Type != frames.TypeToolResult {
			continue
		}
		if res, err = f.Result(); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// CallStream is [Client.Call] with what the tool says while it runs: it ranges over
// its TEXT and PROGRESS frames as they come and then over one TOOL_RESULT, whose
// Result method reads it. An error is the last pair. Leaving the range before the
// result cancels the call. Each range makes a call of its own.
func (c *Client) CallStream(ctx context.Context, tool string, args any, opts ...CallOption) iter.Seq2[frames.Frame, error] {
	return func(yield func(frames.Frame, error) bool) {
		r, err := c.beginCall(ctx, tool, args, opts)
		if err != nil {
			yield(frames.Frame{}, err)
			return
		}
		c.follow(ctx, r, yield)
	}
}

// follow passes on what comes of a call, and cancels it where its result is not
// waited for.
func (c *Client) follow(ctx context.Context, r *running, yield func(frames.Frame, error) bool) {
	defer r.x.Close()
	left, err := r.read(ctx, yield)
	if left || (ctx.Err() != nil && !r.answered) || tooSlow(err) {
		if unheard := c.giveUp(context.WithoutCancel(ctx), r.x, r.id); unheard != nil {
			err = errors.Join(err, unheard)
		}
	}
	if err != nil && !left {
		yield(frames.Frame{}, err)
	}
}

// tooSlow reports whether the call goes on although its answers cannot be read.
func tooSlow(err error) bool {
	return err != nil && frames.AsError(err).Reason == bus.ReasonSlowReader
}

// running is a call that was sent.
type running struct {
	id string
	x  *bus.Exchange
	// answered: its result has come.
	answered bool
}

func (c *Client) beginCall(ctx context.Context, tool string, args any, opts []CallOption) (*running, error) {
	cfg, err := newCallConfig(opts)
	if err != nil {
		return nil, err
	}
	f, err := callFrame(tool, args, cfg)
	if err != nil {
		return nil, err
	}
	x, err := c.conn.Open(ctx, c.conn.Subjects.Call(c.Caller(), tool), frames.Msgpack, &f)
	if err != nil {
		return nil, err
	}
	return &running{id: cfg.id, x: x}, nil
}

func callFrame(tool string, args any, cfg callConfig) (frames.Frame, error) {
	if !frames.ValidName(tool) {
		return frames.Frame{}, frames.NotFound(tool, nil)
	}
	text, ok := args.(json.RawMessage)
	if !ok && args != nil {
		var err error
		if text, err = json.Marshal(args); err != nil {
			return frames.Frame{}, frames.NewError(frames.CodeValidationInput, "arguments of %s: %w", tool, err)
		}
	}
	f := frames.Call(tool, text, frames.WithCall(cfg.id, tool))
	if cfg.workspace != "" {
		f.Metadata.Set("workspace", frames.Value(cfg.workspace))
	}
	if cfg.timeout > 0 {
		f.Metadata.Set("timeoutMs", frames.Value((cfg.timeout + time.Millisecond - 1).Milliseconds()))
	}
	return f, nil
}

// read passes on what comes, up to END. left: the range was left before the
// result. Only the first result counts.
func (r *running) read(ctx context.Context, yield func(frames.Frame, error) bool) (left bool, err error) {
	for f, err := range r.x.All(ctx) {
		if err != nil {
			return false, err
		}
		switch f.Type {
		case frames.TypeToolResult:
			if r.answered {
				continue
			}
			r.answered = true
		case frames.TypeText, frames.TypeProgress:
		case frames.TypeError:
			return false, f.Err()
		default:
			continue
		}
		if !yield(f, nil) {
			return !r.answered, nil
		}
	}
	if !r.answered {
		return false, frames.NewError(frames.CodeNoResult, "the call ended without a result")
	}
	return false, nil
}

// giveUp cancels a call and waits until that is acknowledged, or the call's end
// shows that there is nothing to cancel any more.
func (c *Client) giveUp(ctx context.Context, x *bus.Exchange, id string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	acknowledged := make(chan error, 1)
	go func() {
		acknowledged <- c.Cancel(ctx, id)
		stop()
	}()
	ended := false
	for f, err := range x.All(ctx) {
		ended = err == nil && f.Type == frames.TypeEnd
	}
	if ended {
		stop()
	}
	if err := <-acknowledged; !ended {
		return err
	}
	return nil
}

// Cancel asks to stop a call of this caller and waits for the acknowledgement by
// the process that runs it. It asks again each second, 3 times; a call that nobody
// runs is NO_RESULT then.
func (c *Client) Cancel(ctx context.Context, callID string) error {
	for range cancelTries {
		err := c.cancelOnce(ctx, callID)
		if frames.CodeOf(err) != frames.CodeTimeout || ctx.Err() != nil {
			return err
		}
	}
	return frames.NewError(frames.CodeNoResult, "nobody runs call %s", callID)
}

func (c *Client) cancelOnce(ctx context.Context, callID string) error {
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	f := frames.Cancel(callID, "")
	_, err := c.conn.Request(ctx, c.conn.Ctl(c.Caller()), &f)
	return err
}
