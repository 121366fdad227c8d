package session

import (
	"context"
	"slices"
	"sync"
)

// Memory is a [Log] in memory, for tests. It is safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	next uint64
	keys map[Key][]Revision
}

var _ Log = (*Memory)(nil)

// NewMemory gives an empty log in memory.
func NewMemory() *Memory { return &Memory{keys: map[Key][]Revision{}} }

// Append implements [Log].
func (m *Memory) Append(ctx context.Context, key Key, r Revision) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last(key).Number != r.Number {
		return 0, ErrStale
	}
	m.next++
	m.keys[key] = append(m.keys[key], Revision{m.next, slices.Clone(r.Data), r.Deadline})
	return m.next, nil
}

// Last implements [Log].
func (m *Memory) Last(ctx context.Context, key Key) (Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last(key), ctx.Err()
}

func (m *Memory) last(key Key) Revision {
	if all := m.keys[key]; len(all) > 0 {
		return all[len(all)-1]
	}
	return Revision{}
}

// Read implements [Log].
func (m *Memory) Read(ctx context.Context, key Key, from uint64, fn func(Revision) bool) error {
	m.mu.Lock()
	all := slices.Clone(m.keys[key])
	m.mu.Unlock()
	for _, r := range all {
		if r.Number >= from && !fn(r) {
			break
		}
	}
	return ctx.Err()
}

// Newest implements [Log].
func (m *Memory) Newest(ctx context.Context, caller string, fn func(Key, Revision) bool) error {
	m.mu.Lock()
	newest := map[Key]Revision{}
	for key := range m.keys {
		if key.Caller == caller {
			newest[key] = m.last(key)
		}
	}
	m.mu.Unlock()
	for key, r := range newest {
		if !fn(key, r) {
			break
		}
	}
	return ctx.Err()
}

// Purge implements [Log].
func (m *Memory) Purge(ctx context.Context, key Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, key)
	return ctx.Err()
}
