package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/frames"
)

// folderUse is a command's claim, as a lock in the state folder that ends with the
// process at the latest. Where there is no state folder the mesh runs elsewhere, and
// nothing is locked: the claim is nil, and its methods do nothing.
type folderUse struct{ lock *flock.Flock }

// lockServing keeps commands that start at the same time from serving the same
// folder each: a folder with several owners is ambiguous, and its calls refused.
func lockServing(ctx context.Context, state string) (*folderUse, error) {
	return claim(ctx, state, "serve.lock", (*flock.Flock).TryLockContext)
}

// useFolder claims a folder together with others: the command that serves it stays
// until they are done. While that one is ending it waits. Folders share 256 locks,
// so that no more files are left behind; who shares one with others waits for them too.
func useFolder(ctx context.Context, state, dir string) (*folderUse, error) {
	sum := sha256.Sum256([]byte(dir))
	return claim(ctx, state, "use-"+hex.EncodeToString(sum[:1])+".lock", (*flock.Flock).TryRLockContext)
}

func claim(ctx context.Context, state, name string, take func(*flock.Flock, context.Context, time.Duration) (bool, error)) (*folderUse, error) {
	if !exists(state) {
		return nil, nil //nolint:nilnil // as the type says
	}
	lock := flock.New(filepath.Join(state, name), flock.SetPermissions(0o600))
	if _, err := take(lock, ctx, announcePause); err != nil {
		if ctx.Err() != nil {
			return nil, frames.AsError(context.Cause(ctx))
		}
		return nil, frames.NewError(frames.CodeUnavailable, "cannot lock the state folder: %w", err)
	}
	return &folderUse{lock}, nil
}

// end gives the claim up.
func (u *folderUse) end() {
	if u != nil {
		_ = u.lock.Close() // ends with the process at the latest
	}
}

// awaitOthers waits until nobody else claims the folder, and keeps it from them
// until end. A signal does not wait.
func (u *folderUse) awaitOthers(ctx context.Context, c *console) {
	if u == nil {
		return
	}
	for told := false; ctx.Err() == nil; told = true {
		if alone, err := u.lock.TryLock(); alone || err != nil {
			return
		}
		if !told {
			c.note("Other commands use the folder that this one serves; it ends when they are done. Ctrl-C ends it now.")
		}
		_ = pause.For(ctx, 10*announcePause) // its end is seen above
	}
}
