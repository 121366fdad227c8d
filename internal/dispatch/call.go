package dispatch

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Call is a tool call to be dispatched.
type Call struct {
	// ID is unique, ^[A-Za-z0-9_-]{1,64}$.
	ID string
	// Caller is who asks, as proved by the subject.
	Caller string
	Tool   string
	// Arguments are JSON text.
	Arguments json.RawMessage
	SessionID string
	// Workspace is a name that an instance owns, or an absolute path of a root;
	// empty is the only one there is.
	Workspace string
	// Depth is 0 for calls of people and of loops that people started.
	Depth int
	// Timeout shortens the tool's; 0 leaves it.
	Timeout time.Duration
	// OnFrame takes the tool's TEXT, PROGRESS and TICK frames as they come, none of
	// them after the result. It runs on the connection's delivery goroutine and must
	// not block; nil drops them.
	OnFrame func(f *frames.Frame)
}

// Prepared is a call that may run: the tool was found and the arguments fit.
type Prepared struct {
	Call
	// Declaration is the tool's as it stood when the call was prepared.
	Declaration *frames.Declaration
	key         string
	hooked      *hooked // nil where no hook sees the call
}

// running is a call from its start to its one result.
type running struct {
	*Prepared
	d    *Dispatcher
	lane *lane
	done func(*frames.ToolResult)
	// trace are the W3C headers that go along.
	trace nats.Header

	hooks stopper // of those behind the tool

	// telling is held while OnFrame runs, so that nothing follows the result.
	telling sync.Mutex
	told    bool

	// The fields below are guarded by the lane's mutex.
	state    state
	queuedAt time.Time
	waited   time.Duration
	timer    *time.Timer   // ends the wait, the run, the grace or the held slot
	try      *attempt      // nil while the call waits
	stopped  *frames.Error // why the call was cancelled
}

type state uint8

const (
	queued state = iota
	sent
	cancelling // CANCEL is out; the tool's own result is waited for a moment
	abandoned  // answered already; the slot is held until the tool ends
	finished
)

// attempt is a call on the instance that was chosen for it. What comes for an
// attempt that is not its call's any more counts for nothing.
type attempt struct {
	*running
	target registry.Instance
	// decl is the declaration that the instance serves.
	decl   *frames.Declaration
	ask    *bus.Ask
	sentAt time.Time

	// The fields below are guarded by the lane's mutex.
	heard  time.Time // when the last answer came
	seq    uint64    // of the last answer
	result *frames.ToolResult
	orphan *time.Timer // runs since the instance is gone
}

// current reports whether the attempt still runs, under the lane's mutex.
func (a *attempt) current() bool { return a.try == a && a.state != finished }
