package cli

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
)

func TestWhoServesAFolderStaysForOthers(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		server, guest := mustUse(ctx, t, state), mustUse(ctx, t, state)
		server.end()
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			server.awaitOthers(ctx, &console{err: newScreen(io.Discard)})
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("it does not wait for the one who still uses the folder")
		default:
		}
		guest.end()
		<-waited

		late, cancel := context.WithTimeout(ctx, 10*announcePause)
		defer cancel()
		if _, err := useFolder(late, state, "/a"); err == nil {
			t.Error("a folder whose server is ending can be used")
		}
		server.end()
		mustUse(ctx, t, state).end()
	})
}

func TestASignalDoesNotWaitForOthers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	state := t.TempDir()
	server, guest := mustUse(ctx, t, state), mustUse(ctx, t, state)
	defer guest.end()
	server.end()
	cancel()
	server.awaitOthers(ctx, &console{err: newScreen(io.Discard)})
	server.end()
}

func mustUse(ctx context.Context, t *testing.T, state string) *folderUse {
	t.Helper()
	u, err := useFolder(ctx, state, "/a")
	if err != nil || u == nil {
		t.Fatalf("useFolder gives %v, %v", u, err)
	}
	return u
}
