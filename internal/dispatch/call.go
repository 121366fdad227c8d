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

// MaxDepth is how deep calls may be nested.
const MaxDepth = frames.MaxCallDepth

// Call is a tool call to be dispatched.
type Call struct {
	// ID is unique, ^[A-Za-z0-9_-]{1,64}$.
	ID string
	// Caller is who asks, as proved by the subject.
	Caller string
	Tool   string
	// Arguments are JSON text; what [Dispatcher.Prepare] repairs may be none yet.
	Arguments json.RawMessage
	// Repairs names what was done to Arguments already.
	Repairs []string
	// Translate puts arguments that are one JSON object into the tool's own terms,
	// where they were made by an export of its schema. Nil leaves them.
	Translate func(d *frames.Declaration, args json.RawMessage) json.RawMessage
	SessionID string
	// Workspace is a name that an instance owns, or an absolute path of a root;
	// empty is the only one there is.
	Workspace string
	// Depth is 0 for calls of people and of loops that people started, at most
	// MaxDepth. Calls of one depth wait for no slot of another's.
	Depth int
	// Timeout shortens the tool's, and bounds all attempts together; 0 leaves both.
	Timeout time.Duration
	// OnFrame takes the tool's TEXT, PROGRESS and TICK frames as they come, none of
	// them after the result. It runs on the connection's delivery goroutine and must
	// not block; nil drops them.
	OnFrame func(f *frames.Frame)
}

// Prepared is a call that may run: the tool was found and the arguments, which are
// those that will run, fit. Repairs names all that was done to them.
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
	trace  nats.Header
	opened time.Time
	lock   string // what only one call of the lane may hold; "" is none

	hooks stopper // of those behind the tool

	// telling is held while OnFrame runs, so that nothing follows the result.
	telling sync.Mutex
	told    bool

	// The fields below are guarded by the lane's mutex.
	state    state
	queuedAt time.Time          // since when it waits for an instance
	waited   time.Duration      // for instances so far
	begun    time.Time          // when the first attempt was sent
	attempts int                // that were sent and not refused
	waiting  *time.Timer        // ends the wait for an instance, or the pause
	try      *attempt           // the one whose result counts; nil while there is none
	stopped  *frames.Error      // why the call was cancelled
	last     *frames.ToolResult // of the attempt before
	acted    bool               // an attempt before may have
}

type state uint8

const (
	queued state = iota
	sent
	pausing // between two attempts
	finished
)

// attempt is a call on the instance that was chosen for it. One that its call
// does not wait for any more still holds its slot until its tool ends.
type attempt struct {
	*running
	index  int // 0, 1, 2 …
	target registry.Instance
	// decl is the declaration that the instance serves.
	decl   *frames.Declaration
	ask    *bus.Ask
	sentAt time.Time
	limit  time.Duration // how long it may run
	// ahead: it was sent to an instance that had no free slot.
	ahead bool
	// before is how long the call had waited before this attempt.
	before time.Duration

	// The fields below are guarded by the lane's mutex.
	phase     phase
	waits     bool      // it still has no slot
	startedAt time.Time // when it had its slot
	heard     time.Time // when the last answer came
	seq       uint64    // of the last answer
	result    *frames.ToolResult
	unsaid    bool        // the result does not say whether it may be retried
	foreign   bool        // a result came that was another call's
	timer     *time.Timer // ends the run, the grace or the held slot
	orphan    *time.Timer // runs since the instance is gone
}

type phase uint8

const (
	runs       phase = iota
	cancelling       // CANCEL is out; the tool's own result is waited for a moment
	abandoned        // nobody waits for it; the slot is held until the tool ends
	over
)
