package session

import (
	"context"
	"errors"
)

// Errors of [Log.Append] that the store acts on.
var (
	// ErrStale says that the key has another last revision than the one that the
	// write was to follow: nothing was written.
	ErrStale = errors.New("the key was written meanwhile")
	// ErrUnknown says that nobody knows whether it was written, or yet will be.
	ErrUnknown = errors.New("the outcome of the write is unknown")
)

// Revision is one value of a key. Revisions are numbered for the whole log.
type Revision struct {
	Number uint64
	Data   []byte
	// Deadline is that of the state, so that who looks for sessions whose time is
	// over need not read them. It is written, and read by [Store.Deadlines] only.
	Deadline int64
}

// Log keeps the revisions of keys. [Open] and [NewMemory] give one.
type Log interface {
	// Append writes a revision of a key whose last revision is r.Number, 0 for none,
	// and gives its number. After any error but ErrUnknown nothing was written.
	Append(ctx context.Context, key Key, r Revision) (uint64, error)
	// Last gives a key's newest revision; its number is 0 where there is none.
	Last(ctx context.Context, key Key) (Revision, error)
	// Read gives a key's revisions from the number on, oldest first, up to the
	// one that was the newest when it began, until fn says false.
	Read(ctx context.Context, key Key, from uint64, fn func(Revision) bool) error
	// Newest gives the newest revision of each key of a caller, until fn says false.
	Newest(ctx context.Context, caller string, fn func(Key, Revision) bool) error
	// Purge removes a key and all its revisions.
	Purge(ctx context.Context, key Key) error
}
