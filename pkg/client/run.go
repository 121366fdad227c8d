package client

import (
	"context"
	"iter"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// Run starts one ephemeral run of the loop between model and tools, and ranges
// over its frames up to and with END. params are PARAM frames: model and messages
// at least. A run leaves nothing behind, and is lost with the loop that works on
// it; a [Session] is kept. An ERROR frame is one of the run's, the error of the
// range that of the mesh. When ctx ends, the run is aborted.
//
// A run that a tool starts, with its call's context, is nested in the run that made
// the call: runs are nested 4 deep at most, else the error is LIMIT.
func (c *Client) Run(ctx context.Context, params ...frames.Frame) iter.Seq2[frames.Frame, error] {
	return func(yield func(frames.Frame, error) bool) {
		stream := nuid.Next()
		request := make([]*frames.Frame, 0, len(params)+1)
		for i := range params {
			request = append(request, &params[i])
		}
		start := frames.Start(frames.WithStream(stream))
		if info := tool.CallInfo(ctx); info.ID != "" {
			start.Metadata.Set("depth", frames.Value(info.Depth+1))
		}
		x, err := c.conn.Open(ctx, c.conn.Loop(c.Caller()), frames.Msgpack, append(request, &start)...)
		if err != nil {
			yield(frames.Frame{}, err)
			return
		}
		defer x.Close()
		ended := false
		defer func() {
			if !ended {
				c.abort(ctx, stream)
			}
		}()
		for f, err := range x.All(ctx) {
			ended = f.Type == frames.TypeEnd || (err != nil && ctx.Err() == nil)
			if !yield(f, err) {
				return
			}
		}
	}
}

// abort stops a run that is not read any more.
func (c *Client) abort(ctx context.Context, stream string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
	defer cancel()
	f := frames.Abort(frames.WithStream(stream))
	_, _ = c.conn.Request(ctx, c.conn.Ctl(c.Caller()), &f) // a run that nobody runs has ended
}
