package client

import (
	"slices"
	"sync"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// DefaultTrace is how many calls a [Trace] keeps.
const DefaultTrace = 1000

// TracedCall is a tool call as its frames told of it.
type TracedCall struct {
	ID   string
	Tool string
	// Arguments are JSON text, nil where they could not be read.
	Arguments []byte
	// Begun is when the call was told of, Ended its result; zero while it runs.
	Begun, Ended time.Time
	// Result is nil while the call runs.
	Result *frames.ToolResult
}

// Trace keeps the newest calls that frames told of: of a session, of several, or of
// runs. Of several results of a call the first counts. It is safe for concurrent use.
type Trace struct {
	most int

	mu    sync.Mutex
	calls []TracedCall // oldest first
}

// NewTrace makes a trace of the newest so many calls; 0 is [DefaultTrace].
func NewTrace(most int) *Trace {
	if most <= 0 {
		most = DefaultTrace
	}
	return &Trace{most: most}
}

// Add takes a frame; those that are no call and no result are left out.
func (t *Trace) Add(f *frames.Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.IndexFunc(t.calls, func(c TracedCall) bool { return c.ID == f.ToolCallID })
	switch {
	case f.ToolCallID == "":
	case f.Type == frames.TypeToolCall && at < 0:
		t.open(f)
	case f.Type == frames.TypeToolResult && at >= 0 && t.calls[at].Result == nil:
		t.settle(&t.calls[at], f)
	}
}

func (t *Trace) open(f *frames.Frame) {
	args, _ := f.Arguments() // what cannot be read is not shown
	t.calls = append(t.calls, TracedCall{ID: f.ToolCallID, Tool: f.Name, Arguments: args, Begun: f.Time()})
	if over := len(t.calls) - t.most; over > 0 {
		t.calls = slices.Delete(t.calls, 0, over)
	}
}

func (*Trace) settle(c *TracedCall, f *frames.Frame) {
	res, err := f.Result()
	if err != nil {
		res = &frames.ToolResult{Err: frames.AsError(err)}
	}
	c.Result, c.Ended = res, f.Time()
}

// Calls gives the calls that are kept, the oldest first.
func (t *Trace) Calls() []TracedCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

// Clear forgets all calls.
func (t *Trace) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = nil
}
