package modelbus

import (
	"context"
	"iter"
	"sync"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Client asks the models of a mesh. It is safe for concurrent use.
type Client struct {
	conn *bus.Conn
	// seen are the providers that answered once.
	seen sync.Map
}

var _ engine.Model = (*Client)(nil)

// NewClient makes a client on a connection that may publish to wb.llm.
func NewClient(conn *bus.Conn) *Client { return &Client{conn: conn} }

// Stream implements [engine.Model]. A model without an adapter is NOT_FOUND, or
// UNAVAILABLE where its provider had answered before; a request over the inline
// limit is TOO_LARGE.
func (c *Client) Stream(ctx context.Context, req *provider.Request) iter.Seq2[provider.Event, error] {
	return func(yield func(provider.Event, error) bool) {
		if err := c.stream(ctx, req, func(e provider.Event) bool { return yield(e, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// stream gives events to yield; nil means that the stream ended as it should, or
// that yield wants no more.
func (c *Client) stream(ctx context.Context, req *provider.Request, yield func(provider.Event) bool) error {
	name, x, err := c.open(ctx, req)
	if err != nil {
		return err
	}
	defer x.Close()
	var a answer
	over := false
	defer func() {
		if !over {
			c.abort(ctx, a.accepted)
		}
	}()
	for f, err := range x.All(ctx) {
		if err != nil {
			return c.broken(name, req.Model, err)
		}
		c.seen.Store(name, true)
		if f.Type == frames.TypeEnd {
			over = true
			return a.ended(name, f.Reason())
		}
		events, err := a.events(&f)
		if err != nil {
			over = f.Type == frames.TypeError
			return err
		}
		for _, e := range events {
			if !yield(e) {
				over = a.stopped
				return nil
			}
		}
	}
	return nil
}

// ended judges an END: whether the turn was whole before it.
func (a *answer) ended(name, reason string) error {
	switch {
	case a.stopped:
		return nil
	case reason == frames.EndCancelled:
		return frames.NewError(frames.CodeCancelled, "the adapter of provider %q cancelled the request", name)
	}
	return frames.NewError(frames.CodeNoResult, "the adapter of provider %q ended (%s) without META {stopReason}", name, clip(reason))
}

func (c *Client) open(ctx context.Context, req *provider.Request) (name string, x *bus.Exchange, err error) {
	if name, _, err = provider.SplitModel(req.Model); err != nil {
		return "", nil, err
	}
	if !frames.ValidName(name) {
		return "", nil, notFound(name, req.Model)
	}
	fs, err := RequestFrames(req)
	if err != nil {
		return "", nil, err
	}
	if n, most := size(fs), c.conn.InlineLimit(); n > most {
		return "", nil, frames.NewError(frames.CodeTooLarge,
			"the model request has %d bytes, the limit is %d: start a new conversation, or give it less", n, most)
	}
	x, err = c.conn.Open(ctx, c.conn.LLM(name), frames.Msgpack, fs...)
	return name, x, err
}

func size(fs []*frames.Frame) int {
	n := 0
	for _, f := range fs {
		n += len(f.Value) + len(f.Key)
	}
	return n
}

func notFound(name, model string) error {
	return frames.NewError(frames.CodeNotFound,
		"no adapter serves provider %q, which model %q names: check the model's name, or start the adapter with weavebus serve llm",
		clip(name), clip(model))
}

// broken gives the error of an exchange that ended without END.
func (c *Client) broken(name, model string, err error) error {
	if frames.CodeOf(err) != frames.CodeUnavailable {
		return err
	}
	if _, seen := c.seen.Load(name); !seen {
		return notFound(name, model)
	}
	return frames.NewError(frames.CodeUnavailable,
		"the adapter of provider %q does not run any more: start it with weavebus serve llm", name)
}

// abort ends a request that nobody waits for any more.
func (c *Client) abort(ctx context.Context, a Accepted) {
	if a.Request == "" {
		return // refused, or not taken yet: then the adapter finds out by itself
	}
	f := frames.Abort(frames.WithStream(a.Request))
	_ = c.conn.Publish(context.WithoutCancel(ctx), c.conn.Inst(a.Identity, a.Instance), frames.Msgpack, &f)
}
