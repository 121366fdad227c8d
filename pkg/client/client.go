// Package client is what an application writes against a mesh: calls of tools,
// lists of them, runs and sessions. It speaks the protocol's own subjects with
// publish, subscribe and request only.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Client speaks to a mesh as one caller. It is safe for concurrent use.
type Client struct{ conn *bus.Conn }

// New makes a client of a connection; the connection's identity is the caller.
func New(conn *bus.Conn) *Client { return &Client{conn: conn} }

// Conn gives the connection beneath.
func (c *Client) Conn() *bus.Conn { return c.conn }

// Caller gives who the client speaks as.
func (c *Client) Caller() string { return c.conn.Identity() }

type callConfig struct {
	id, workspace string
	timeout       time.Duration
	onFrame       func(frames.Frame)
}

// CallOption changes one call.
type CallOption func(*callConfig)

// WithID sets the call's id, ^[A-Za-z0-9_-]{1,64}$. Default: a new unique one.
func WithID(id string) CallOption { return func(c *callConfig) { c.id = id } }

// WithWorkspace names the workspace that the call is about. Default: the only one.
func WithWorkspace(name string) CallOption { return func(c *callConfig) { c.workspace = name } }

// WithTimeout shortens the tool's time-out, which runs from the dispatch. Default:
// the tool's own.
func WithTimeout(d time.Duration) CallOption { return func(c *callConfig) { c.timeout = d } }

// OnFrame takes the tool's TEXT and PROGRESS frames while it runs. Default: none.
func OnFrame(f func(frames.Frame)) CallOption { return func(c *callConfig) { c.onFrame = f } }

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
	cfg := callConfig{id: nuid.Next()}
	for _, o := range opts {
		o(&cfg)
	}
	f, err := callFrame(tool, args, cfg)
	if err != nil {
		return nil, err
	}
	x, err := c.conn.Open(ctx, c.conn.Subjects.Call(c.Caller(), tool), frames.Msgpack, &f)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	res, err := readCall(ctx, x, cfg.onFrame)
	if ctx.Err() != nil && res == nil {
		if cancelErr := c.giveUp(context.WithoutCancel(ctx), x, cfg.id); cancelErr != nil {
			err = errors.Join(err, cancelErr)
		}
		return nil, err
	}
	return res, err
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
	stop()
	if err := <-acknowledged; !ended {
		return err
	}
	return nil
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
		f.Metadata.Set("timeoutMs", frames.Value(max(cfg.timeout.Milliseconds(), 1)))
	}
	return f, nil
}

func readCall(ctx context.Context, x *bus.Exchange, onFrame func(frames.Frame)) (*frames.ToolResult, error) {
	var res *frames.ToolResult
	for f, err := range x.All(ctx) {
		if err != nil {
			return res, err
		}
		switch f.Type {
		case frames.TypeToolResult:
			if res, err = f.Result(); err != nil {
				return nil, err
			}
		case frames.TypeError:
			return nil, f.Err()
		case frames.TypeText, frames.TypeProgress:
			if onFrame != nil {
				onFrame(f)
			}
		}
	}
	if res == nil {
		return nil, frames.NewError(frames.CodeNoResult, "the call ended without a result")
	}
	return res, nil
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
