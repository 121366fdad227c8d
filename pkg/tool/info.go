package tool

import (
	"context"
	"encoding/json"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Info is what a tool may know of the call that it runs.
type Info struct {
	// ID is the call's, unique.
	ID string
	// Tool is the tool's name.
	Tool string
	// Caller is the identity that calls, as the dispatcher says.
	Caller string
	// SessionID is the session that the call belongs to; empty outside of one.
	SessionID string
	// StreamID is the exchange or model turn that the call belongs to.
	StreamID string
	// Workspace is the name of the workspace that was asked for; may be empty.
	Workspace string
	// Attempt counts 0, 1, 2 … for one call.
	Attempt int
	// Depth is how many runs the call lies inside of.
	Depth int
	// Deadline is when the call times out.
	Deadline time.Time
	// Metadata is all that came along with the call. It is not to be changed.
	Metadata frames.Fields
}

// Call is one call of a tool that was added by [Set.AddRaw].
type Call struct {
	Info
	// Arguments are a JSON object that fits the tool's schema.
	Arguments json.RawMessage
}

// callKey is where a call's context holds the running call.
type callKey struct{}

// CallInfo gives what is known of the call that ctx belongs to; the zero Info
// where it belongs to none.
func CallInfo(ctx context.Context) Info {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.info
	}
	return Info{}
}

// Output sends text that the running tool puts out, e.g. of a command's stdout,
// to those who watch the call. It never waits: text is sent each 100 ms, at most
// 256 KiB for a call, the rest is dropped and counted. stream is "stdout",
// "stderr" or a name of your own. Bytes that are not UTF-8 become U+FFFD, so cut
// on rune borders. Outside of a call it does nothing.
func Output(ctx context.Context, stream, text string) {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.live != nil {
		c.live.output(stream, text)
	}
}

// Progress tells how far the running tool is; total is 0 where it is not known.
// It never waits: each 100 ms the newest is sent. A progress below the last one
// is dropped. Outside of a call it does nothing.
func Progress(ctx context.Context, progress, total float64, message string) {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.live != nil {
		c.live.progress(progress, total, message)
	}
}

// infoOf reads a call's frame.
func infoOf(f *frames.Frame, tool string) Info {
	m := f.Metadata
	return Info{
		ID: f.ToolCallID, Tool: tool, StreamID: f.StreamID, Metadata: m,
		Caller: m.Text("caller"), SessionID: m.Text("sessionId"), Workspace: m.Text("workspace"),
		Attempt: count(m, "attempt"), Depth: count(m, "depth"),
	}
}

func count(m frames.Fields, key string) int {
	return int(min(max(m.Int(key), 0), 1<<20))
}
