package schema

import (
	"container/list"
	"crypto/sha256"
	"sync"

	"github.com/weavebus/weavebus/pkg/frames"
)

// DefaultCacheBytes is the bound of a [Cache] that sets none.
const DefaultCacheBytes = 8 << 20

// entryBytes is what an entry costs beside its text.
const entryBytes = 1 << 10

// Cache compiles each schema once, when it is first asked for, and remembers
// failures too. The least recently used schemas are dropped beyond its bound.
// Its zero value is ready; it may be used by many goroutines and is not to be
// copied.
type Cache struct {
	// MaxBytes bounds the texts of the schemas kept, with 1 KiB for each more.
	// A compiled schema takes some 10 to 40 times its text. Default 8 MiB.
	MaxBytes int

	mu      sync.Mutex
	bytes   int
	entries map[[sha256.Size]byte]*list.Element
	recent  list.List // of *entry, the newest first
}

type entry struct {
	key    [sha256.Size]byte
	bytes  int
	once   sync.Once
	schema *Schema
	err    error
}

// Compile is [Compile] with the outcome of an earlier call for the same text.
func (c *Cache) Compile(text []byte) (*Schema, error) {
	if len(text) > frames.MaxSchema {
		return Compile(text)
	}
	text = declared(text)
	e := c.entry(sha256.Sum256(text), len(text)+entryBytes)
	e.once.Do(func() { e.schema, e.err = Compile(text) })
	return e.schema, e.err
}

// Len gives how many schemas are kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

func (c *Cache) entry(key [sha256.Size]byte, bytes int) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.entries[key]; ok {
		c.recent.MoveToFront(found)
		return found.Value.(*entry) //nolint:errcheck,forcetypeassert // the list holds entries only
	}
	if c.entries == nil {
		c.entries = map[[sha256.Size]byte]*list.Element{}
	}
	e := &entry{key: key, bytes: bytes}
	c.entries[key] = c.recent.PushFront(e)
	c.bytes += bytes
	c.shrink()
	return e
}

// shrink drops the oldest entries beyond the bound, but never the newest one.
func (c *Cache) shrink() {
	limit := c.MaxBytes
	if limit <= 0 {
		limit = DefaultCacheBytes
	}
	for c.bytes > limit && c.recent.Len() > 1 {
		oldest := c.recent.Remove(c.recent.Back()).(*entry) //nolint:errcheck,forcetypeassert // likewise
		delete(c.entries, oldest.key)
		c.bytes -= oldest.bytes
	}
}
