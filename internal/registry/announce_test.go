package registry

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// A subject that speaks while the stream is being read has said something newer
// than what was fetched of it.
func TestHeardWhileTheStreamIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := bustest.Start(t)
		connect := func(identity string) *bus.Conn {
			c, err := bus.New(m.Connect(t, identity), identity)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		local := connect("local")
		for _, name := range []string{"one", "two"} {
			f := frames.Description(&frames.Declaration{Name: name})
			if err := local.Publish(t.Context(), local.AnnounceTool("local", "a", name), frames.Msgpack, &f); err != nil {
				t.Fatal(err)
			}
		}
		if err := local.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		r := New(connect("router"), Config{Log: slog.New(slog.DiscardHandler)})
		r.live.note("wb.announce.local.a.two") // before: it is in the stream
		r.live.begin()
		r.live.note("wb.announce.local.a.one")
		said, err := r.announced(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(said) != 1 || said[0].decl.Name != "two" {
			t.Errorf("read %+v", said)
		}
	})
}
