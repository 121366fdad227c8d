package tool

import (
	"context"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// describeBatch is how many bytes of declarations go into one message.
const describeBatch = 256 << 10

// serveControl answers what is said to this one instance.
func (s *server) serveControl(_ context.Context, r *bus.Request) {
	for i := range r.Frames {
		switch f := &r.Frames[i]; f.Type {
		case frames.TypeDescribe:
			s.describe(r, f.Name)
		case frames.TypeCancel, frames.TypeAbort:
			s.cancel(r, f, "")
		case frames.TypeMeta:
			s.meta(r, f)
		default:
			continue
		}
		return
	}
	s.answer(r.Fail(frames.UnknownType(r.Frames[0].Type)))
}

// serveDescribe answers what is asked of every instance.
func (s *server) serveDescribe(_ context.Context, r *bus.Request) {
	f := r.First(frames.TypeDescribe)
	if f == nil {
		s.answer(r.Fail(frames.UnknownType(r.Frames[0].Type)))
		return
	}
	s.describe(r, f.Name)
}

// serveCancel hears CANCEL and ABORT for every instance of a tool. Only the one
// that runs the call answers.
func (s *server) serveCancel(_ context.Context, r *bus.Request) {
	for i := range r.Frames {
		if f := &r.Frames[i]; f.Type == frames.TypeCancel || f.Type == frames.TypeAbort {
			s.cancel(r, f, r.Tokens[len(r.Tokens)-1])
			return
		}
	}
	s.answer(r.Fail(frames.UnknownType(r.Frames[0].Type)))
}

func (s *server) answer(err error) {
	if err != nil {
		s.log.Warn("answer not sent", "error", err)
	}
}

// describe answers with the declarations of all tools, or of the one named; with
// END alone where it is not here.
func (s *server) describe(r *bus.Request, name string) {
	var batch []frames.Frame
	size := 0
	for _, d := range s.set.Declarations() {
		if name != "" && d.Name != name {
			continue
		}
		f := frames.Description(s.declaration(d.Name))
		if size += len(f.Content); len(batch) > 0 && size > min(describeBatch, s.conn.InlineLimit()) {
			s.answer(r.Send(batch...))
			batch, size = nil, len(f.Content)
		}
		batch = append(batch, f)
	}
	s.answer(r.End(frames.EndCompleted, batch...))
}

// meta answers who runs a call, or that this instance is alive.
func (s *server) meta(r *bus.Request, f *frames.Frame) {
	content := s.alive()
	if id, ok := f.Content.Lookup("whoRuns").Text(); ok {
		content = map[string]any{"state": s.calls.state(id)}
	}
	s.answer(r.End(frames.EndCompleted, frames.Meta(content)))
}

// cancel ends the calls that a CANCEL or ABORT means and acknowledges each. With
// tool set, only that tool's calls are meant, and where none runs nothing is answered.
func (s *server) cancel(r *bus.Request, f *frames.Frame, tool string) {
	match, id, err := meant(f, tool)
	if err != nil {
		s.answer(r.Fail(err))
		return
	}
	found := s.calls.which(match)
	var acks []frames.Frame
	for _, c := range found {
		c.stop(frames.Cancelled(c.info.Tool))
		acks = append(acks, frames.Meta(map[string]any{"cancelling": c.info.ID}, frames.WithCall(c.info.ID, c.info.Tool)))
	}
	if len(found) == 0 {
		if tool != "" {
			return
		}
		acks = append(acks, frames.Meta(map[string]any{"state": s.calls.state(id)}))
	}
	s.answer(r.End(frames.EndCompleted, acks...))
}

// meant gives which calls a CANCEL means, by call id, or an ABORT, by session or
// stream. A caller or an attempt that is named counts, else those of any are meant.
func meant(f *frames.Frame, tool string) (match func(*Info) bool, id string, err *frames.Error) {
	name, id := or(f.Name, text(f.Content, "name")), or(f.ToolCallID, text(f.Content, "toolCallId"))
	if tool != "" && name != "" && name != tool {
		return nil, "", badCall("the frame names tool %q, the subject %q", clip(name, 80), tool)
	}
	caller, session, stream := f.Metadata.Text("caller"), f.Metadata.Text("sessionId"), f.StreamID
	if f.Type == frames.TypeCancel {
		session, stream = "", ""
	} else {
		id = ""
	}
	if id == "" && session == "" && stream == "" {
		return nil, "", badCall("%s names no call, session or stream", f.Type)
	}
	name = or(name, tool)
	attempt := -1
	if f.Metadata.Get("attempt") != nil {
		attempt = count(f.Metadata, "attempt")
	}
	fits := func(want, is string) bool { return want == "" || want == is }
	return func(c *Info) bool {
		return (attempt < 0 || attempt == c.Attempt) && fits(name, c.Tool) && fits(caller, c.Caller) &&
			fits(id, c.ID) && fits(session, c.SessionID) && fits(stream, c.StreamID)
	}, id, nil
}

func text(r frames.Raw, key string) string {
	s, _ := r.Lookup(key).Text()
	return s
}
