package tooltest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// exchange is a request and its answers, message by message.
type exchange struct {
	ask *bus.Ask
	enc frames.Encoding
	got chan answer
}

type answer struct {
	m   frames.Message
	err error
}

func (s *suite) open(ctx context.Context, subject string, enc frames.Encoding, fs ...frames.Frame) (*exchange, error) {
	ptrs := make([]*frames.Frame, len(fs))
	for i := range fs {
		ptrs[i] = &fs[i]
	}
	data, err := frames.Encode(enc, ptrs...)
	if err != nil {
		return nil, err
	}
	return s.openRaw(ctx, subject, enc, data)
}

func (s *suite) openRaw(ctx context.Context, subject string, enc frames.Encoding, data []byte) (*exchange, error) {
	x := &exchange{enc: enc, got: make(chan answer, 4096)}
	ask, err := s.conn.Ask(ctx, subject, data, func(m frames.Message, err error) {
		select {
		case x.got <- answer{m, err}:
		default: // a flood of answers fails by its missing END
		}
	})
	x.ask = ask
	return x, err
}

func (x *exchange) close() { x.ask.Stop() }

func (x *exchange) next(ctx context.Context) (frames.Message, error) {
	select {
	case a := <-x.got:
		return a.m, a.err
	case <-ctx.Done():
		return frames.Message{}, frames.AsError(ctx.Err())
	}
}

// finish reads the answers to END, and holds them to the rules of an exchange.
func (x *exchange) finish(ctx context.Context) ([]frames.Message, error) {
	var all []frames.Message
	seq := uint64(0)
	for {
		m, err := x.next(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, m)
		if m.Encoding != x.enc {
			return all, fmt.Errorf("the answer is in %v, the request was in %v", m.Encoding, x.enc)
		}
		for i := range m.Frames {
			f := &m.Frames[i]
			if seq++; f.Seq != 0 && f.Seq != seq {
				return all, fmt.Errorf("%s has seq %d, want %d", f.Type, f.Seq, seq)
			}
			if last := i == len(m.Frames)-1; f.Type == frames.TypeEnd && !last {
				return all, fmt.Errorf("%s stands behind END", m.Frames[i+1].Type)
			}
		}
		if m.Frames[len(m.Frames)-1].Type == frames.TypeEnd {
			return all, nil
		}
	}
}

// request sends frames and gives all frames of the answer before END.
func (s *suite) request(ctx context.Context, subject string, fs ...frames.Frame) ([]frames.Frame, error) {
	x, err := s.open(ctx, subject, frames.Msgpack, fs...)
	if err != nil {
		return nil, err
	}
	defer x.close()
	ms, err := x.finish(ctx)
	if err != nil {
		return nil, err
	}
	var all []frames.Frame
	for _, m := range ms {
		all = append(all, m.Frames...)
	}
	return all[:len(all)-1], nil
}

// result is how a call ended.
type result struct {
	frame frames.Frame
	*frames.ToolResult
	reason string
}

func (r *result) code() frames.Code {
	if r.Err == nil {
		return ""
	}
	return r.Err.Code
}

// newCall makes a call of the tool under test.
func (s *suite) newCall(args json.RawMessage) frames.Frame {
	f := frames.Call(s.cfg.Tool, args, frames.WithCall(nuid.Next(), s.cfg.Tool), frames.WithStream("tooltest"))
	f.Metadata = s.cfg.Metadata.Clone()
	return f
}

// call makes a call and reads its one result.
func (s *suite) call(ctx context.Context, enc frames.Encoding, f frames.Frame) (*result, error) {
	x, err := s.open(ctx, s.subject(), enc, f)
	if err != nil {
		return nil, err
	}
	defer x.close()
	r, err := s.finishCall(ctx, x)
	if err != nil {
		return r, err
	}
	if r.frame.ToolCallID != f.ToolCallID || r.frame.StreamID != f.StreamID {
		return r, fmt.Errorf("TOOL_RESULT names call %q of stream %q, want %q of %q",
			r.frame.ToolCallID, r.frame.StreamID, f.ToolCallID, f.StreamID)
	}
	return r, s.checkSilent(ctx, x)
}

// finishCall reads the answer of a call: TOOL_RESULT and END in one message, at the end.
func (s *suite) finishCall(ctx context.Context, x *exchange) (*result, error) {
	ms, err := x.finish(ctx)
	if err != nil {
		return nil, err
	}
	var r *result
	for i, m := range ms {
		f := m.First(frames.TypeToolResult)
		switch {
		case f == nil && i == len(ms)-1:
			return nil, fmt.Errorf("END comes without a TOOL_RESULT in its message")
		case f != nil && i < len(ms)-1:
			return nil, fmt.Errorf("TOOL_RESULT comes before the message with END")
		case f == nil:
			continue
		}
		if n := len(m.Frames); n != 2 || m.Frames[0].Type != frames.TypeToolResult {
			return nil, fmt.Errorf("the last message has %d frames, want TOOL_RESULT and END", n)
		}
		tr, err := f.Result()
		if err != nil {
			return nil, err
		}
		r = &result{*f, tr, m.Frames[1].Reason()}
	}
	return r, r.check()
}

// check holds a result to the protocol.
func (r *result) check() error {
	if r.ToolResult.Result != nil {
		if p := jsontext.Check(r.ToolResult.Result, jsontext.Limits{}); p != nil {
			return fmt.Errorf("the result is not JSON: %v", p)
		}
	}
	want := frames.EndCompleted
	switch r.code() {
	case "":
	case frames.CodeCancelled:
		want = frames.EndCancelled
	default:
		want = frames.EndError
	}
	switch {
	case r.reason != want:
		return fmt.Errorf("END says %q, want %q beside %w", r.reason, want, r.Err)
	case r.Err != nil && (r.Err.Message == "" || r.Err.LLMMessage == ""):
		return fmt.Errorf("the error %s has no message or no llmMessage", r.Err.Code)
	}
	return nil
}

// checkSilent proves that nothing follows an answer that ended: what the
// service sent before its answer to another request has come by then.
func (s *suite) checkSilent(ctx context.Context, x *exchange) error {
	probe, err := s.open(ctx, s.conn.Describe(), frames.Msgpack, frames.Describe(s.cfg.Tool))
	if err != nil {
		return err
	}
	defer probe.close()
	for found := false; !found; {
		m, err := probe.next(ctx)
		if err != nil {
			return err
		}
		d := s.chosen(m)
		found = d != nil && d.Instance == s.decl.Instance
	}
	select {
	case <-x.got:
		return fmt.Errorf("something was answered behind END")
	default:
		return nil
	}
}
