// Package session is the record of a session and its pure transition functions.
//
// A session is one key of a JetStream KV bucket. Each revision of the key is one
// transition: an [Entry] that holds what changed and the state after it. The
// head revision is the state, the revisions are the log; both the harness
// (input) and the loop that owns the session (model and tools) write it, by
// compare-and-set on the last revision. The frames that clients read are derived
// from the changes, so that they can be published again at any time.
//
// Transitions are methods of [State] that give the changes they made. They keep
// no clock and do no input or output, and several of them may be put together in
// one [Transition], which [Store.Update] writes as one entry.
package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

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

// Running reports whether a turn is under way.
func (s Status) Running() bool { return s == Thinking || s == Executing || s == Waiting }

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
// Its arguments stand in that message, which may be larger than a state.
type PendingCall struct {
	ID string `json:"toolCallId"`
	// ModelID is the id that a model outside of the mesh gave its call.
	ModelID string `json:"modelCallId,omitempty"`
	Name    string `json:"name"`
	// Identity and Replay are the chosen tool's, as committed before the call
	// was dispatched; Identity is empty where the call was refused before.
	Identity string `json:"identity,omitempty"`
	Replay   string `json:"replay,omitempty"`
	// Limits bound the text that the model sees of the result.
	Limits frames.OutputLimits `json:"outputLimits,omitzero"`
	// Outside says that a client answers the call, not the mesh.
	Outside bool `json:"outside,omitempty"`
	// Fresh says that no loop has prepared or started the call yet.
	Fresh bool `json:"fresh,omitempty"`
	// Deadline is when a call that a waiting session waits for times out, in
	// milliseconds since 1970; 0 is never. Timeout is the time that it had.
	Deadline int64 `json:"deadline,omitempty"`
	Timeout  int64 `json:"timeoutMs,omitempty"`
}

// Queued is a user text that waits for the running turn to end.
type Queued struct {
	InputID string `json:"inputId,omitempty"`
	Text    string `json:"text"`
}

// Usage is a session's ledger: the sum over its model requests.
type Usage struct {
	provider.Usage
	// Requests are model requests, Failed those of them that brought no answer;
	// what a failed one said that it used is counted too.
	Requests int64 `json:"requests"`
	Failed   int64 `json:"failed,omitempty"`
	Calls    int64 `json:"calls"`
	// Tools is what tools say that they used of models themselves.
	Tools provider.Usage `json:"tools,omitzero"`
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
	// Epoch counts the attempts at a turn: a new turn and a take add one.
	Epoch uint64 `json:"epoch"`
	// TurnEpoch is the epoch at which the current turn began.
	TurnEpoch uint64 `json:"turnEpoch,omitempty"`
	// Round counts the assistant messages with calls of the current turn.
	Round int `json:"round,omitempty"`
	// Stream names the model request whose calls are pending.
	Stream string `json:"streamId,omitempty"`
	// Reason is the END reason of the last turn; empty while one runs.
	Reason string `json:"reason,omitempty"`
	Owner  *Owner `json:"owner,omitempty"`
	// Job is the sequence in WB_RUN of the job that was released last.
	Job uint64 `json:"job,omitempty"`
	// Cursor is the sequence in WB_IN up to which input was applied.
	Cursor  uint64        `json:"cursor"`
	Queued  []Queued      `json:"queued,omitempty"`
	Pending []PendingCall `json:"pending,omitempty"`
	// Own are the declarations of tools that clients serve for this session, as
	// JSON, in the order in which they were declared.
	Own []json.RawMessage `json:"own,omitempty"`
	// HasCut says that a model saw a part only of some result, and may read the rest.
	HasCut bool `json:"hasCut,omitempty"`
	// Cancel asks the owner to end the current turn; Close, which is an END
	// reason, to close the session as soon as the turns it waits for are over.
	Cancel bool   `json:"cancel,omitempty"`
	Close  string `json:"close,omitempty"`
	// Seen holds the ids of the last frames of input, against repeats.
	Seen    []string `json:"seen,omitempty"`
	Usage   Usage    `json:"usage"`
	Created int64    `json:"created"`
	Updated int64    `json:"updated"`

	// n is the number of the entry that is being made.
	n uint64
}

// Limits of a session.
const (
	MaxState        = 64 << 10
	MaxQueued       = 16
	MaxSeen         = 64
	MaxOwn          = 32
	DefaultMaxTurns = 100
)

// New gives the state of a session before its first input. uid is a NUID that
// call ids begin with.
func New(key Key, uid string, now time.Time) State {
	return State{
		SessionID: key.SID, Caller: key.Caller, UID: uid,
		Status: Idle, MaxTurns: DefaultMaxTurns, Created: now.UnixMilli(),
	}
}

// Key gives the session's key.
func (s *State) Key() Key { return Key{s.Caller, s.SessionID} }

// Model gives the PARAM model, empty where the session is driven from outside.
func (s *State) Model() string { return s.text(paramModel) }

// text gives a parameter that is a string.
func (s *State) text(param string) string {
	var v string
	if raw := s.Params[param]; raw != nil && json.Unmarshal(raw, &v) != nil {
		return ""
	}
	return v
}

// Work reports whether a loop has something to do: a turn runs, and it does not
// wait for somebody outside, its model or a client; or its owner is to end it.
func (s *State) Work() bool {
	return s.Status == Executing || s.Status == Thinking && (s.Model() != "" || s.Cancel)
}

// StreamID names the model request that comes next, on its live and its durable frames.
func (s *State) StreamID() string { return fmt.Sprintf("%s-%d-%d", s.UID, s.Epoch, s.Round) }

// CallID gives the id of the i-th call of the assistant message that the entry
// being made holds.
func (s *State) CallID(i int) string { return fmt.Sprintf("%s-%d-%d", s.UID, s.n, i) }

// WireEncoding is that of the session's frames on wb.out.
func (s *State) WireEncoding() frames.Encoding {
	if s.Encoding == frames.JSON.String() {
		return frames.JSON
	}
	return frames.Msgpack
}

// clone gives a copy that may be changed.
func (s *State) clone() State {
	c := *s
	c.Params = maps.Clone(s.Params)
	c.Queued = slices.Clone(s.Queued)
	c.Pending = slices.Clone(s.Pending)
	c.Seen = slices.Clone(s.Seen)
	c.Own = slices.Clone(s.Own)
	if s.Owner != nil {
		owner := *s.Owner
		c.Owner = &owner
	}
	return c
}

// pending gives the index of a pending call, -1 where there is none.
func (s *State) pending(id string) int {
	return slices.IndexFunc(s.Pending, func(c PendingCall) bool { return c.ID == id })
}
