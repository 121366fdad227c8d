package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/blobs"
	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Store keeps sessions in a [Log]. It is safe for concurrent use.
type Store struct {
	log     Log
	blobs   Blobs // nil: everything stands in the log
	foreign atomic.Uint64
}

// NewStore gives a store over a log alone, such as [NewMemory]: large values stand in
// its entries. [Open] gives a mesh's own.
func NewStore(log Log) *Store { return &Store{log: log} }

// Foreign counts revisions that were skipped since they are no entries.
func (s *Store) Foreign() uint64 { return s.foreign.Load() }

// Head gives a session's newest entry; NOT_FOUND where there is none.
func (s *Store) Head(ctx context.Context, key Key) (Head, error) {
	head, err := s.head(ctx, key)
	if err == nil && head.N == 0 {
		err = notFound(key)
	}
	return head, err
}

// Create makes a session by its first transition, which gets what [New] gives.
// CONFLICT says that it exists.
func (s *Store) Create(ctx context.Context, key Key, t Transition) (Head, error) {
	return s.write(ctx, key, func(head Head) (Entry, bool, error) {
		if head.N != 0 {
			return Entry{}, false, frames.NewError(frames.CodeConflict, "session %s exists", key.SID)
		}
		now := time.Now()
		head.State = New(key, nuid.Next(), now)
		return head.Next(nuid.Next(), now, t)
	})
}

// Update writes one transition of a session and gives the new head. Where
// somebody else wrote first, it runs the transition again on the newer head.
// Where it changes nothing, nothing is written. The transition's own error comes
// back as it is. UNAVAILABLE says that ctx ended before the outcome was known.
func (s *Store) Update(ctx context.Context, key Key, t Transition) (Head, error) {
	return s.write(ctx, key, func(head Head) (Entry, bool, error) {
		if head.N == 0 {
			return Entry{}, false, notFound(key)
		}
		return head.Next(nuid.Next(), time.Now(), t)
	})
}

func notFound(key Key) error {
	return frames.NewError(frames.CodeNotFound, "no session %q", key.SID)
}

// head gives the newest revision that is an entry, with the number of the
// newest revision of all: that is what the next write must follow.
func (s *Store) head(ctx context.Context, key Key) (Head, error) {
	last, err := s.log.Last(ctx, key)
	if err != nil || last.Number == 0 {
		return Head{}, err
	}
	return s.headAt(ctx, key, last)
}

// headAt is head where the newest revision was read already.
func (s *Store) headAt(ctx context.Context, key Key, last Revision) (Head, error) {
	if e, ok := decode(last.Data); ok {
		return Head{e, last.Number}, nil
	}
	head := Head{Revision: last.Number}
	err := s.log.Read(ctx, key, 0, func(r Revision) bool {
		if e, ok := decode(r.Data); ok {
			head.Entry = e
		} else {
			s.foreign.Add(1)
		}
		return true
	})
	return head, err
}

// write is one compare-and-set, taken to a known outcome.
func (s *Store) write(ctx context.Context, key Key, next func(Head) (Entry, bool, error)) (Head, error) {
	w := writing{s: s, key: key}
	for {
		head, err := w.read(ctx)
		if err != nil || w.landed {
			return head, err
		}
		entry, ok, err := next(head)
		if err != nil || !ok {
			return head, err
		}
		head, again, err := w.append(ctx, entry, head.Revision)
		if !again {
			return head, err
		}
	}
}

// writing is the state of one write. An attempt whose outcome is unknown may
// stand, or be written later; only its nonce in the log can tell.
type writing struct {
	s      *Store
	key    Key
	landed bool
	// unknown are the nonces of attempts that may stand, base what the first followed.
	unknown map[string]bool
	base    uint64
	pause   time.Duration
	// kept are the values that this write put into the object store.
	kept map[string]*blobs.Ref
}

// read gives the head; where an attempt of unknown outcome stands, that
// attempt's entry, and landed is set.
func (w *writing) read(ctx context.Context) (Head, error) {
	if len(w.unknown) == 0 {
		return w.s.head(ctx, w.key)
	}
	for {
		w.pause = min(max(2*w.pause, readBackPause), maxReadBackPause)
		if err := pause.For(ctx, w.pause); err != nil {
			return Head{}, frames.NewError(frames.CodeUnavailable,
				"cannot tell whether session %s was written: %w", w.key.SID, bus.Words(err))
		}
		if head, err := w.readBack(ctx); err == nil {
			return head, nil
		}
	}
}

const (
	readBackPause    = 100 * time.Millisecond
	maxReadBackPause = 2 * time.Second
)

func (w *writing) readBack(ctx context.Context) (Head, error) {
	head, err := w.s.head(ctx, w.key)
	if err != nil || head.Revision == w.base {
		return head, err
	}
	var own Head
	err = w.s.log.Read(ctx, w.key, w.base+1, func(r Revision) bool {
		if e, ok := decode(r.Data); ok && w.unknown[e.By] {
			own = Head{e, r.Number}
		}
		return own.N == 0
	})
	if err == nil && own.N != 0 {
		w.landed = true
		return own, w.s.Whole(ctx, &own.Entry)
	}
	return head, err
}

// append writes an entry behind a revision. again says that the head must be
// read again: somebody else wrote, or the outcome is unknown.
func (w *writing) append(ctx context.Context, e Entry, last uint64) (head Head, again bool, err error) {
	stored, err := w.stored(ctx, e)
	if err != nil {
		return Head{}, false, err
	}
	data, err := stored.encode()
	if err != nil {
		return Head{}, false, err
	}
	number, err := w.s.log.Append(ctx, w.key, Revision{last, data, e.State.Deadline()})
	switch {
	case err == nil:
		return Head{e, number}, false, nil
	case errors.Is(err, ErrStale):
		return Head{}, true, nil
	case !errors.Is(err, ErrUnknown):
		return Head{}, false, err
	}
	if w.unknown == nil {
		w.unknown, w.base = map[string]bool{}, last
	}
	w.unknown[e.By] = true
	return Head{}, true, nil
}

// historyBytes bounds what one History gives.
const historyBytes = 4 << 20

// History gives up to limit entries behind the after-th, oldest first; fewer
// where they are large. more says that others follow.
func (s *Store) History(ctx context.Context, key Key, after uint64, limit int) (entries []Entry, more bool, err error) {
	entries, more, err = s.Entries(ctx, key, after, limit)
	for i := range entries {
		if err := s.Whole(ctx, &entries[i]); err != nil {
			return nil, false, err
		}
	}
	return entries, more, err
}

// Entries gives what [Store.History] does, without the values that stand in the
// object store.
func (s *Store) Entries(ctx context.Context, key Key, after uint64, limit int) (entries []Entry, more bool, err error) {
	room := historyBytes
	err = s.each(ctx, key, func(e *Entry, size int) bool {
		if e.N <= after {
			return true
		}
		if len(entries) >= limit || (len(entries) > 0 && size > room) {
			more = true
			return false
		}
		room -= size
		entries = append(entries, *e)
		return true
	})
	return entries, more, err
}

// Messages gives a session's conversation, as a model request needs it: the
// results of a round in the order of its calls. Calls that are still pending
// have none.
func (s *Store) Messages(ctx context.Context, key Key) ([]provider.Message, error) {
	messages, _, err := s.Conversation(ctx, key)
	return messages, err
}

// Conversation gives a session's messages as [Store.Messages] does, and the results
// of the last assistant message's calls, by their ids.
func (s *Store) Conversation(ctx context.Context, key Key) ([]provider.Message, map[string]*frames.ToolResult, error) {
	var c conversation
	var lost error
	err := s.each(ctx, key, func(e *Entry, _ int) bool {
		if lost = s.forModel(ctx, e); lost == nil {
			c.add(e)
		}
		return lost == nil
	})
	return c.messages(), c.open, errors.Join(err, lost)
}

// Results gives the results of calls that entries from a revision on hold, by the
// calls' ids.
func (s *Store) Results(ctx context.Context, key Key, from uint64) (map[string]*frames.ToolResult, error) {
	out := map[string]*frames.ToolResult{}
	var lost error
	err := s.log.Read(ctx, key, from, func(r Revision) bool {
		if e, ok := decode(r.Data); ok {
			lost = s.Whole(ctx, &e)
			e.results(out)
		}
		return lost == nil
	})
	return out, errors.Join(err, lost)
}

// each reads a session's entries, with their sizes; NOT_FOUND where there are none.
func (s *Store) each(ctx context.Context, key Key, fn func(e *Entry, size int) bool) error {
	var n uint64
	err := s.log.Read(ctx, key, 0, func(r Revision) bool {
		e, ok := decode(r.Data)
		if !ok || e.N <= n {
			s.foreign.Add(1)
			return true
		}
		n = e.N
		return fn(&e, len(r.Data)+e.large())
	})
	if err == nil && n == 0 {
		return notFound(key)
	}
	return err
}

// List gives the heads of a caller's sessions, by their id.
func (s *Store) List(ctx context.Context, caller string) ([]Head, error) {
	newest := map[Key]Revision{}
	err := s.log.Newest(ctx, caller, func(key Key, r Revision) bool {
		newest[key] = r
		return true
	})
	if err != nil {
		return nil, err
	}
	out := make([]Head, 0, len(newest))
	for key, r := range newest {
		head, err := s.headAt(ctx, key, r)
		if err != nil {
			return nil, err
		}
		if head.N != 0 {
			out = append(out, head)
		}
	}
	slices.SortFunc(out, func(a, b Head) int { return strings.Compare(a.State.SessionID, b.State.SessionID) })
	return out, nil
}

// Delete removes a session, its history and its large values; one that does not
// exist too.
func (s *Store) Delete(ctx context.Context, key Key) error {
	if err := s.log.Purge(ctx, key); err != nil || s.blobs == nil {
		return err
	}
	return s.blobs.Delete(ctx, key.Caller, key.SID)
}
