package harness

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Pages of lists and histories.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// question is the META of a request on wb.ses.
type question struct {
	caller  string
	op, sid string
	after   frames.Raw
	limit   int
	// frames asks for a history's durable frames instead of its messages.
	frames bool
	// force deletes a session whose turn runs.
	force bool
}

// sessions answers for a caller's own sessions, and for no others.
func (h *harness) sessions(ctx context.Context, r *bus.Request) {
	q, err := questionOf(r)
	if err == nil {
		err = h.answer(ctx, r, q)
	}
	if err != nil {
		_ = r.Fail(err) // who asked is gone
	}
}

func questionOf(r *bus.Request) (question, error) {
	meta := r.First(frames.TypeMeta)
	if meta == nil {
		return question{}, session.UnknownType(r.Frames[0].Type)
	}
	c := meta.Content
	q := question{caller: r.Caller(), op: text(c, "op"), sid: text(c, "sid"), after: c.Lookup("after"), limit: defaultLimit}
	q.frames, _ = c.Lookup("frames").Bool()
	q.force, _ = c.Lookup("force").Bool()
	if n, ok := c.Lookup("limit").Int64(); ok {
		q.limit = int(min(max(n, 1), maxLimit))
	}
	if !frames.ValidName(q.caller) {
		return question{}, frames.NewError(frames.CodeValidationInput, "%q names no caller", r.Subject)
	}
	if q.op != "list" && !frames.ValidName(q.sid) {
		return question{}, frames.NewError(frames.CodeValidationInput,
			"sid %q: want letters, digits, _ and -, at most 64 of them", q.sid[:min(len(q.sid), 64)])
	}
	return q, nil
}

func text(c frames.Raw, key string) string {
	s, _ := c.Lookup(key).Text()
	return s
}

func (q *question) key() session.Key { return session.Key{Caller: q.caller, SID: q.sid} }

func (h *harness) answer(ctx context.Context, r *bus.Request, q question) error {
	switch q.op {
	case "list":
		return h.list(ctx, r, q)
	case "get":
		return h.get(ctx, r, q)
	case "history":
		return h.history(ctx, r, q)
	case "delete":
		return h.remove(ctx, r, q)
	}
	return frames.NewError(frames.CodeValidationInput, "op %q is not list, get, history or delete", q.op[:min(len(q.op), 64)])
}

// summary is what a list tells of a session; all of it stands in its state too.
type summary struct {
	SessionID   string         `json:"sessionId"`
	Status      session.Status `json:"status"`
	CurrentTurn int            `json:"currentTurn"`
	MaxTurns    int            `json:"maxTurns"`
	Workspace   string         `json:"workspace,omitempty"`
	Task        string         `json:"task,omitempty"`
	NodeID      string         `json:"nodeId,omitempty"`
	Epoch       uint64         `json:"epoch"`
	Created     int64          `json:"created"`
	Updated     int64          `json:"updated"`
	N           uint64         `json:"n"`
}

func summaryOf(h *session.Head) summary {
	s := &h.State
	return summary{s.SessionID, s.Status, s.CurrentTurn, s.MaxTurns, s.Workspace, s.Task, s.NodeID, s.Epoch, s.Created, s.Updated, h.N}
}

// list answers META {session} for each, by their ids, and META {page}. after is
// the last id that the caller has.
func (h *harness) list(ctx context.Context, r *bus.Request, q question) error {
	heads, err := h.store.List(ctx, q.caller)
	if err != nil {
		return err
	}
	after, _ := q.after.Text()
	p := pager{r: r, room: h.conn.InlineLimit()}
	for i := range heads {
		sid := heads[i].State.SessionID
		if strings.Compare(sid, after) <= 0 {
			continue
		}
		if p.count == q.limit {
			return p.end(after, true)
		}
		if err := p.item(meta("session", summaryOf(&heads[i]))); err != nil {
			return err
		}
		after = sid
	}
	return p.end(after, false)
}

// get answers META {session} with the state. Then it does what a wake-up does: a
// session whose work was not under way is now.
func (h *harness) get(ctx context.Context, r *bus.Request, q question) error {
	head, err := h.store.Head(ctx, q.key())
	if err != nil {
		return err
	}
	if err := r.End(frames.EndCompleted, meta("session", stateOf(&head))); err != nil {
		return err
	}
	if err := h.underWay(ctx, &head); err != nil {
		h.log.Warn("a session's work is not under way", "session_id", q.sid, "caller", q.caller, "error", err)
	}
	return nil
}

// state is a session's state as clients see it.
type state struct {
	session.State
	// Seen is of no use to clients.
	Seen     []string `json:"seen,omitempty"`
	N        uint64   `json:"n"`
	Revision uint64   `json:"revision"`
}

func stateOf(h *session.Head) state { return state{State: h.State, N: h.N, Revision: h.Revision} }

// history answers META {message} for each message behind entry after, or META
// {frame} for each durable frame as it was published, and META {page}.
func (h *harness) history(ctx context.Context, r *bus.Request, q question) error {
	after, _ := q.after.Uint64()
	entries, more, err := h.store.History(ctx, q.key(), after, q.limit)
	if err != nil {
		return err
	}
	if len(entries) == 0 && after > 0 {
		if err := h.within(ctx, q.key(), after); err != nil {
			return err
		}
	}
	p := pager{r: r, room: h.conn.InlineLimit()}
	for i := range entries {
		if err := p.entry(&entries[i], q.frames); err != nil {
			return err
		}
		after = entries[i].N
	}
	return p.end(after, more)
}

// within sees that an entry is one of the session: a reader of an earlier session
// of the same id, which had more, must not wait for its entries.
func (h *harness) within(ctx context.Context, key session.Key, entry uint64) error {
	head, err := h.store.Head(ctx, key)
	if err == nil && entry > head.N {
		err = frames.NewError(frames.CodeConflict, "session %s has %d entries, none after %d", key.SID, head.N, entry).WithReason("gap")
	}
	return err
}

// remove deletes a session with its input.
func (h *harness) remove(ctx context.Context, r *bus.Request, q question) error {
	head, err := h.store.Head(ctx, q.key())
	if err != nil {
		return err
	}
	if head.State.Status.Running() && !q.force {
		return frames.NewError(frames.CodeConflict, "session %s is %s: send ABORT first, or say force", q.sid, head.State.Status)
	}
	if err := h.inbox.Purge(ctx, jetstream.WithPurgeSubject(h.conn.Inbox(q.caller, q.sid))); err != nil {
		return frames.NewError(frames.CodeUnavailable, "the input of session %s cannot be removed: %w", q.sid, bus.Words(err))
	}
	if err := h.store.Delete(ctx, q.key()); err != nil {
		return err
	}
	return r.End(frames.EndCompleted, meta("deleted", q.sid))
}

func meta(key string, value any) frames.Frame {
	return frames.Meta(frames.Fields{{Key: key, Value: frames.Value(value)}})
}

// pager sends items in messages that keep to a limit.
type pager struct {
	r     *bus.Request
	room  int
	held  []frames.Frame
	size  int
	count int
}

func (p *pager) item(f frames.Frame) error {
	const envelope = 256
	size := len(f.Content) + len(f.Value) + envelope
	if p.size+size > p.room && len(p.held) > 0 {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.held, p.size, p.count = append(p.held, f), p.size+size, p.count+1
	return nil
}

func (p *pager) flush() error {
	held := p.held
	p.held, p.size = nil, 0
	return p.r.Send(held...)
}

// entry sends what an entry holds: its messages, or its durable frames.
func (p *pager) entry(e *session.Entry, durable bool) error {
	var items []frames.Frame
	if durable {
		for _, f := range e.Frames() {
			items = append(items, wrapped(&f))
		}
	} else {
		for _, m := range e.Messages() {
			items = append(items, meta("message", forClients(m)))
		}
	}
	for _, f := range items {
		if err := p.item(f); err != nil {
			return err
		}
	}
	return nil
}

// wrapped puts a durable frame into another: an END among answers would end them.
func wrapped(f *frames.Frame) frames.Frame {
	data, _ := frames.Encode(frames.Msgpack, f) // msgpack cannot fail
	return meta("frame", frames.Raw(data))
}

// forClients leaves out what is between the loop and the provider.
func forClients(m provider.Message) json.RawMessage {
	m.ProviderData = nil
	calls := make([]provider.Call, len(m.Calls))
	for i, c := range m.Calls {
		c.ModelID = ""
		calls[i] = c
	}
	m.Calls = calls
	data, err := json.Marshal(m)
	if err != nil {
		return json.RawMessage("null")
	}
	return data
}

// end sends the rest and META {page}: what to ask for next.
func (p *pager) end(after any, more bool) error {
	page := frames.Meta(map[string]any{"page": map[string]any{"after": after, "more": more}})
	return p.r.End(frames.EndCompleted, append(p.held, page)...)
}
