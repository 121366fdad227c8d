package session

import (
	"context"
	"errors"
)

// ErrStale says that a key has another last revision than the one that a write
// was to follow: nothing was written.
var ErrStale = errors.New("the key was written meanwhile")

// Revision is one value of a key. Revisions are numbered for the whole log.
type Revision struct {
	Number uint64
	Data   []byte
}

// Log keeps the revisions of keys. [Open] and [NewMemory] give one.
type Log interface {
	// Append writes a revision of a key whose last revision is last, 0 for none,
	// and gives its number. ErrStale and TOO_LARGE say that nothing was written;
	// after any other error the outcome is unknown.
	Append(ctx context.Context, key Key, data []byte, last uint64) (uint64, error)
	// Last gives a key's newest revision; its number is 0 where there is none.
	Last(ctx context.Context, key Key) (Revision, error)
	// Read gives a key's revisions from the number on, oldest first, up to the
	// one that was the newest when it began, until fn says false.
	Read(ctx context.Context, key Key, from uint64, fn func(Revision) bool) error
	// Keys gives the keys of a caller, sorted.
	Keys(ctx context.Context, caller string) ([]Key, error)
	// Purge removes a key and all its revisions.
	Purge(ctx context.Context, key Key) error
}
