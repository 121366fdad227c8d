package modelbus

import (
	"time"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// heldCalls are the calls of an answer in the model's order: whole ones, and those
// whose arguments come in pieces.
type heldCalls struct {
	held   []*heldCall
	stream *argstream.Calls
}

type heldCall struct {
	frame *frames.Frame
	key   argstream.Key

	streamed, closed bool
	text             []byte
	err              *frames.Error // why the pieces are not the text
}

// open takes a TOOL_CALL.
func (c *heldCalls) open(f *frames.Frame) error {
	h := &heldCall{frame: f, key: keyOf(f), streamed: f.Metadata.Bool("streaming")}
	if h.streamed {
		if c.stream == nil {
			limits := argstream.Limits{Age: frames.MaxTimeout}
			limits.OwnerCalls, limits.OwnerBytes = 1024, 256<<20
			c.stream = argstream.NewCalls(limits)
		}
		if err := c.stream.Open(h.key, time.Now()); err != nil {
			return broken("opens a call", err)
		}
	}
	c.held = append(c.held, h)
	return nil
}

func keyOf(f *frames.Frame) argstream.Key {
	return argstream.Key{Stream: f.StreamID, Call: frames.StreamedCallID(f)}
}

// piece takes a part of a call's arguments. The exchange numbers its frames, so
// none is missing here.
func (c *heldCalls) piece(f *frames.Frame) error {
	text, _ := f.Content.Lookup("text").Bytes()
	h := c.find(keyOf(f))
	if h == nil {
		return broken("sends a piece", nil)
	}
	if err := c.stream.Add(h.key, 0, text, time.Now()); frames.CodeOf(err) == frames.CodeTimeout {
		return err
	}
	return nil // another error stands until the close
}

// close takes the META that says that a call's arguments are whole.
func (c *heldCalls) close(f *frames.Frame) error {
	h := c.find(keyOf(f))
	if h == nil {
		return broken("closes a call", nil)
	}
	h.end(c.stream)
	h.closed = true
	return nil
}

func (h *heldCall) end(stream *argstream.Calls) {
	text, err := stream.Close(h.key, 0, time.Now())
	h.text, h.err = text, frames.AsError(err)
}

// find gives an open call by what a frame says of it.
func (c *heldCalls) find(k argstream.Key) *heldCall {
	for _, h := range c.held {
		if h.streamed && !h.closed && h.key.Call == k.Call && (k.Stream == "" || k.Stream == h.key.Stream) {
			return h
		}
	}
	return nil
}

func broken(does string, err error) error {
	if err == nil {
		return frames.NewError(frames.CodeNoResult, "the adapter %s that is not open", does)
	}
	return frames.NewError(frames.CodeNoResult, "the adapter %s that cannot be: %w", does, err)
}

// events judges all calls by the turn's stop reason.
func (c *heldCalls) events(reason provider.StopReason) []provider.Event {
	out := make([]provider.Event, 0, len(c.held)+1)
	for _, h := range c.held {
		out = append(out, h.call(c.stream, reason))
	}
	c.held, c.stream = nil, nil
	return out
}

func (h *heldCall) call(stream *argstream.Calls, reason provider.StopReason) provider.ToolCall {
	if !h.streamed {
		return readCall(h.frame, reason)
	}
	if !h.closed {
		h.end(stream)
	}
	id, name := identity(h.frame)
	call := provider.NewToolCall(id, name, string(h.text), reason)
	switch {
	case !reason.Complete(): // judged so already
	case h.err != nil:
		call.Invalid = h.err
	case !h.closed:
		call.Invalid = argstream.Unclosed(h.key.Call)
	}
	return call
}

func identity(f *frames.Frame) (id, name string) {
	if id = f.Metadata.Text("modelCallId"); id == "" {
		id = frames.StreamedCallID(f)
	}
	if name = f.Metadata.Text("modelName"); name == "" {
		name = f.Name
	}
	return id, name
}

// readCall judges the arguments of a whole call here too: an adapter in another
// language may not.
func readCall(f *frames.Frame, reason provider.StopReason) provider.ToolCall {
	id, name := identity(f)
	text, ok := f.Content.Lookup("argumentsText").Text()
	if !ok {
		args, err := f.Arguments()
		if err != nil {
			return provider.ToolCall{ID: id, Name: name, Arguments: "{}", Invalid: frames.AsError(err)}
		}
		text = string(args)
	}
	call := provider.NewToolCall(id, name, text, reason)
	call.Repairs = append(repairsOf(f), call.Repairs...)
	if e := f.Metadata.Get("error"); !e.Absent() {
		call.Invalid = frames.ErrorFrom(e)
	}
	return call
}

// maxRepairs is how many repairs an adapter may name.
const maxRepairs = 16

// repairsOf gives the repairs that an adapter made.
func repairsOf(f *frames.Frame) []string {
	var out []string
	for v := range f.Metadata.Get("repairs").Items() {
		if name, _ := v.Text(); frames.ValidName(name) && len(out) < maxRepairs {
			out = append(out, name)
		}
	}
	return out
}
