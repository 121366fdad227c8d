package workspace

import (
	"context"
	"io/fs"
	"sync"
	"syscall"
)

// fileKey names a real file however its path was spelled: the directory that
// holds it, and its last name.
type fileKey struct {
	dev, ino uint64
	base     string
}

func keyOf(dir fs.FileInfo, base string) fileKey {
	key := fileKey{base: base}
	if st, ok := dir.Sys().(*syscall.Stat_t); ok {
		key.dev, key.ino = uint64(st.Dev), st.Ino //nolint:unconvert // Dev is an int32 on macOS
	}
	return key
}

// fileLocks lets one writer at a time at each file of a workspace.
type fileLocks struct {
	mu   sync.Mutex
	held map[fileKey]*fileLock
}

type fileLock struct {
	turn  chan struct{} // holds a token while somebody has the file
	users int           // who has it or waits for it
}

// lock waits for the file's turn, or for the end of ctx. The caller calls unlock once.
func (l *fileLocks) lock(ctx context.Context, key fileKey) (unlock func(), err error) {
	f := l.enter(key)
	select {
	case f.turn <- struct{}{}:
		return func() { <-f.turn; l.leave(key, f) }, nil
	case <-ctx.Done():
		l.leave(key, f)
		return nil, ctx.Err()
	}
}

func (l *fileLocks) enter(key fileKey) *fileLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.held[key]
	if !ok {
		f = &fileLock{turn: make(chan struct{}, 1)}
		l.held[key] = f
	}
	f.users++
	return f
}

func (l *fileLocks) leave(key fileKey, f *fileLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.users--; f.users == 0 {
		delete(l.held, key)
	}
}
