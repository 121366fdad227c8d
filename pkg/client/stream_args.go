package client

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
)

// maxPiece is how many bytes of arguments go into one message.
const maxPiece = 64 << 10

// StreamedCall is a call whose arguments are written in pieces, as a model writes
// them. Pieces may be cut anywhere. It is safe for concurrent use.
type StreamedCall struct {
	c    *Client
	tool string
	cfg  callConfig
	sink string

	mu   sync.Mutex
	seq  uint64
	text []byte // all of it: a router that died does not have it
	lost bool   // a piece could not be sent
	over bool
}

// OpenCall opens a call whose arguments come in pieces: write them, then [StreamedCall.Finish].
// The error is UNAVAILABLE where no router listens, BUSY where too many calls are open.
func (c *Client) OpenCall(ctx context.Context, tool string, opts ...CallOption) (*StreamedCall, error) {
	cfg, err := newCallConfig(opts)
	if err != nil {
		return nil, err
	}
	f, err := callFrame(tool, nil, cfg)
	if err != nil {
		return nil, err
	}
	f.Content = nil
	f.Metadata.Set("streaming", frames.Value(true))
	got, err := c.conn.Request(ctx, c.conn.Subjects.Call(c.Caller(), tool), &f)
	if err != nil {
		return nil, err
	}
	s := &StreamedCall{c: c, tool: tool, cfg: cfg}
	for i := range got {
		switch g := &got[i]; g.Type {
		case frames.TypeMeta:
			s.sink, _ = g.Content.Lookup("sink").Text()
		case frames.TypeToolResult:
			if err := refusedBy(g); err != nil {
				return nil, err
			}
		}
	}
	if s.sink == "" {
		return nil, frames.NewError(frames.CodeNoResult, "the router does not say where the arguments go")
	}
	return s, nil
}

func refusedBy(f *frames.Frame) error {
	r, err := f.Result()
	if err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	return nil
}

// ID gives the call's id, for [Client.Cancel].
func (s *StreamedCall) ID() string { return s.cfg.id }

// Write sends the next piece of the arguments' JSON text. Over the inline limit it
// is TOO_LARGE, after the end CONFLICT. A piece that is lost on the way does no
// harm: [StreamedCall.Finish] then sends the whole call.
func (s *StreamedCall) Write(piece []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, finished(s.cfg.id)
	}
	if n, most := len(s.text)+len(piece), s.c.conn.InlineLimit(); n > most {
		return 0, frames.TooLarge("arguments of tool "+s.tool, int64(n), int64(most))
	}
	s.text = append(s.text, piece...)
	for rest := piece; len(rest) > 0; {
		n := min(len(rest), maxPiece)
		s.send(rest[:n])
		rest = rest[n:]
	}
	return len(piece), nil
}

func finished(id string) error {
	return frames.NewError(frames.CodeConflict, "the arguments of call %s have ended", id)
}

// send publishes one piece, under the lock.
func (s *StreamedCall) send(piece []byte) {
	s.seq++
	f := frames.ArgumentPiece(s.cfg.id, s.seq, piece)
	if err := s.c.conn.Publish(context.Background(), s.sink, frames.Msgpack, &f); err != nil {
		s.lost = true
	}
}

// Finish says that the arguments are whole and waits for the call's result, like
// [Client.Call]. Where the router that had the pieces is gone, or has not all of
// them, the whole call is sent.
func (s *StreamedCall) Finish(ctx context.Context) (*frames.ToolResult, error) {
	text, err := s.end()
	if err != nil {
		return nil, err
	}
	if !s.lost {
		res, err := s.close(ctx, "")
		if !unknownThere(res, err) {
			return res, err
		}
	}
	return s.c.Call(ctx, s.tool, json.RawMessage(text), func(c *callConfig) error { *c = s.cfg; return nil })
}

// Cut says that the model's output was cut off, for the reason of its provider:
// the call does not run, and its result says so.
func (s *StreamedCall) Cut(ctx context.Context, stopReason string) (*frames.ToolResult, error) {
	if _, err := s.end(); err != nil {
		return nil, err
	}
	return s.close(ctx, stopReason)
}

func (s *StreamedCall) end() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, finished(s.cfg.id)
	}
	s.over = true
	return s.text, nil
}

// unknownThere reports whether the router did not get the call, so that it cannot
// have run.
func unknownThere(res *frames.ToolResult, err error) bool {
	if errors.Is(err, nats.ErrNoResponders) {
		return true
	}
	return err == nil && res.Err != nil && (res.Err.Reason == "not_open" || res.Err.Reason == "arguments_gap")
}

func (s *StreamedCall) close(ctx context.Context, stopReason string) (*frames.ToolResult, error) {
	f := frames.CloseCall(s.cfg.id, s.seq+1)
	if stopReason != "" {
		f.Metadata.Set("stopReason", frames.Value(stopReason))
	}
	x, err := s.c.conn.Open(ctx, s.sink, frames.Msgpack, &f)
	if err != nil {
		return nil, err
	}
	return result(func(yield func(frames.Frame, error) bool) { s.c.follow(ctx, &running{id: s.cfg.id, x: x}, yield) })
}
