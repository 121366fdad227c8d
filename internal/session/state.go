// Package session is the record of a session and its pure transition functions.
//
// A session is one key of a JetStream KV bucket. Each revision of the key is one
// transition: an [Entry] that holds what changed and the state after it. The
// head revision is the state, the revisions are the log; both the harness
// (input) and the loop that owns the session (model and tools) write it, by
// compare-and-set on the last revision. The frames that clients read are derived
// from the changes, so that they can be published again at any time.
package session

import (
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Status says what a session is doing.
type Status string

// The statuses of PROTOCOL section 8. Done, failed and cancelled are final.
const (
	Idle      Status = "idle"
	Thinking  Status = "thinking"
	Executing Status = "executing"
	Waiting   Status = "waiting"
	Done      Status = "done"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Final reports whether a session of this status is closed.
func (s Status) Final() bool { return s == Done || s == Failed || s == Cancelled }

// Key names a session: <caller>.<sid>.
type Key struct{ Caller, SID string }

// String gives the key in the bucket.
func (k Key) String() string { return k.Caller + "." + k.SID }

// Owner is the loop that works on a session. Its nonce is of one take.
type Owner struct {
	Nonce    string `json:"nonce"`
	Identity string `json:"identity"`
	Instance string `json:"instance"`
}

// PendingCall is a call of the last assistant message that has no result yet.
type PendingCall struct {
	ID        string          `json:"toolCallId"`
	ModelID   string          `json:"modelCallId,omitempty"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"argumentsJson"`
	// Identity and Replay are the chosen tool's, as committed before the call
	// was dispatched; Identity is empty where the call was refused before.
	Identity string `json:"identity,omitempty"`
	Replay   string `json:"replay,omitempty"`
	// Outside says that a client answers the call, not the mesh.
	Outside bool `json:"outside,omitempty"`
}

// Queued is a user text that waits for the running turn to end.
type Queued struct {
	InputID string `json:"inputId"`
	Text    string `json:"text"`
}

// Usage is a session's ledger: the sum over its model requests.
type Usage struct {
	provider.Usage
	Requests int64 `json:"requests"`
	Calls    int64 `json:"calls"`
}

// State is a session's state: what the head revision holds. It is at most
// MaxState bytes of JSON.
type State struct {
	SessionID   string                     `json:"sessionId"`
	Caller      string                     `json:"caller"`
	UID         string                     `json:"uid"`
	Workspace   string                     `json:"workspace,omitempty"`
	Task        string                     `json:"task,omitempty"`
	NodeID      string                     `json:"nodeId,omitempty"`
	Status      Status                     `json:"status"`
	CurrentTurn int                        `json:"currentTurn"`
	MaxTurns    int                        `json:"maxTurns"`
	Initialized bool                       `json:"initialized"`
	Encoding    string                     `json:"encoding,omitempty"`
	Params      map[string]json.RawMessage `json:"params,omitempty"`
	// Epoch counts the attempts at a turn: a new turn and a take-over add one.
	Epoch uint64 `json:"epoch"`
	// TurnEpoch is the epoch at which the current turn began.
	TurnEpoch uint64 `json:"turnEpoch,omitempty"`
	// Round counts the rounds of the current turn.
	Round int    `json:"round,omitempty"`
	Owner *Owner `json:"owner,omitempty"`
	// Job is the sequence in WB_RUN of the job that was released last.
	Job uint64 `json:"job,omitempty"`
	// Cursor is the sequence in WB_IN up to which input was applied.
	Cursor  uint64        `json:"cursor"`
	Queued  []Queued      `json:"queued,omitempty"`
	Pending []PendingCall `json:"pending,omitempty"`
	// Cancel asks the owner to end the current turn; Close, which is an END
	// reason, to close the session as soon as the turn is over.
	Cancel bool   `json:"cancel,omitempty"`
	Close  string `json:"close,omitempty"`
	// Seen holds the ids of the last frames of input, against repeats.
	Seen    []string `json:"seen,omitempty"`
	Usage   Usage    `json:"usage"`
	Created int64    `json:"created"`
	Updated int64    `json:"updated"`
}

// Limits of a session.
const (
	MaxState        = 64 << 10
	MaxQueued       = 16
	MaxSeen         = 64
	DefaultMaxTurns = 100
)

// ChangeKind says what a Change is.
type ChangeKind string

// The kinds of changes, each with the durable frames that clients see of it.
const (
	// ChangeMessage appends Message to the history. A user's is a TEXT with
	// metadata.role "user"; an assistant's is THINKING, TEXT and TOOL_CALL
	// frames; a tool's is the TOOL_RESULT in Result; a system's shows nothing.
	ChangeMessage ChangeKind = "message"
	// ChangeFrame is a frame that is no message: START, PROGRESS, ERROR, META, END.
	ChangeFrame ChangeKind = "frame"
)

// Change is one thing that a transition did.
type Change struct {
	Kind    ChangeKind        `json:"kind"`
	Message *provider.Message `json:"message,omitempty"`
	// Result is a tool message's TOOL_RESULT content, in msgpack.
	Result frames.Raw `json:"result,omitempty"`
	// Tool is the name of the tool whose result it is.
	Tool string `json:"tool,omitempty"`
	// Frame is the frame of a ChangeFrame, in msgpack.
	Frame []byte `json:"frame,omitempty"`
}

// Entry is one transition: what one revision of a session's key holds.
type Entry struct {
	// N counts a session's transitions 1, 2, 3 …
	N uint64 `json:"n"`
	// By is a nonce of this one write: after an unknown outcome it tells whether
	// the write that stands is one's own.
	By      string   `json:"by"`
	Changes []Change `json:"changes,omitempty"`
	State   State    `json:"state"`
}

// Head is a session's newest entry and the revision it stands at.
type Head struct {
	Entry
	Revision uint64
}
