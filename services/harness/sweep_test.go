package harness_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/blobs"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/frames"
)

// A text over 256 KiB is kept aside and shown inline, to readers and in the history;
// it goes with the session.
func TestLargeTextsAreSeenInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		text := strings.Repeat("日", 200_000)
		c.start(frames.Text(text))
		c.until("thinking 1")
		held := func(frame frames.Frame) bool { return frame.Type == frames.TypeText && frame.Text() == text }
		live := 0
		for _, f := range c.frames() {
			if held(f) {
				live++
			}
		}
		history, err := c.ask(map[string]any{"op": "history", "sid": "s1", "frames": true})
		if err != nil {
			t.Fatal(err)
		}
		if live != 1 || !strings.Contains(strings.Join(history, "\n"), text) {
			t.Errorf("%d readers' frames hold the text; the history: %d frames", live, len(history))
		}
		values := valuesOf(t, mesh)
		if n := values(); n == 0 {
			t.Fatal("nothing is in the object store")
		}
		if _, err := c.ask(map[string]any{"op": "delete", "sid": "s1", "force": true}); err != nil {
			t.Fatal(err)
		}
		if n := values(); n != 0 {
			t.Errorf("%d values outlived their session", n)
		}
	})
}

// valuesOf counts a mesh's large values.
func valuesOf(t *testing.T, mesh *bustest.Mesh) func() uint64 {
	t.Helper()
	stream, err := mesh.JetStream(t, "harness").Stream(t.Context(), assets.BlobsStream(mesh.Prefix()))
	if err != nil {
		t.Fatal(err)
	}
	return func() uint64 {
		t.Helper()
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs
	}
}

// A loop that writes a value while its session is deleted leaves it: it is swept,
// though not before it is old, and the values of sessions that stand stay.
func TestOrphansAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		store, err := blobs.Open(t.Context(), mesh.JetStream(t, "loop"), mesh.Prefix())
		if err != nil {
			t.Fatal(err)
		}
		put := func(sid string) {
			t.Helper()
			if _, err := store.Put(t.Context(), "me", sid, "text/plain", []byte("a value of "+sid)); err != nil {
				t.Fatal(err)
			}
		}
		begin(t, mesh)
		c := dial(t, mesh, "s1")
		c.start()
		c.until("idle 0")
		put("s1")
		put("gone")
		values := valuesOf(t, mesh)
		<-time.After(61 * time.Minute) // virtual time
		if n := values(); n != 2 {
			t.Errorf("%d values after an hour, want both", n)
		}
		<-time.After(time.Hour) // virtual time
		if n := values(); n != 1 {
			t.Errorf("%d values after two hours, want that of the session", n)
		}
	})
}
