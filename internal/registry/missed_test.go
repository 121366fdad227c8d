package registry_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// What was announced while there was no connection is read when it is back;
// nobody is taken for silent because of that time.
func TestAnnouncementsMissedWithoutAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		stays, ends, crashes, comes := r.announcer("local", "a"), r.announcer("local", "b"), r.announcer("local", "c"), r.announcer("local", "d")
		stays.declare([]string{"stays"})
		ends.declare([]string{"ends"})
		crashes.declare([]string{"crashes"})

		r.line.Cut()
		<-time.After(time.Minute)
		stays.alive("stays")
		ends.end()
		comes.declare([]string{"comes"})
		want(t, "without a connection", []string{r.shows("stays"), r.shows("ends"), r.shows("comes")},
			[]string{"0.0.0: local/a", "0.0.0: local/b", ""})
		want(t, "connected", r.conn.NATS().IsConnected(), false)

		r.line.Mend()
		<-time.After(4 * time.Second)
		want(t, "with it again", []string{r.shows("stays"), r.shows("ends"), r.shows("comes"), r.shows("crashes")},
			[]string{"0.0.0: local/a", "0.0.0:", "0.0.0: local/d", "0.0.0: local/c"})
		stays.alive("stays")
		comes.alive("comes")
		<-time.After(14 * time.Second)
		stays.alive("stays")
		comes.alive("comes")
		<-time.After(6 * time.Second)
		want(t, "who was silent since", []string{r.shows("stays"), r.shows("comes"), r.shows("crashes")},
			[]string{"0.0.0: local/a", "0.0.0: local/d", "0.0.0:"})
	})
}

// A service without announcements may have come meanwhile too.
func TestPlainServiceThatCameWithoutAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.line.Cut()
		r.plain("local", declaration("echo"))
		<-time.After(10 * time.Second)
		r.line.Mend()
		<-time.After(4 * time.Second)
		want(t, "found", r.shows("echo"), "0.0.0: tool")
	})
}

// An instance that was taken out, but lives, is found by its next alive: it
// declares its tools again after minutes only.
func TestAliveOfAnInstanceThatWasTakenOut(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.announcer("local", "a")
		a.declare([]string{"echo"})
		a.alive("echo")
		r.Gone(registry.Instance{Identity: "local", ID: "a"})
		want(t, "taken out", r.shows("echo"), "0.0.0:")
		<-time.After(time.Second)
		a.alive("echo")
		<-time.After(5 * time.Second)
		want(t, "found again", r.shows("echo"), "0.0.0: local/a")
	})
}

// Its answer to DESCRIBE shows that something was missed, but is no announcement.
func TestLookupOfAToolThatWasAnnounced(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.plain("local", &frames.Declaration{Name: "echo", Identity: "local", Instance: "a"})
		r.announcer("local", "a").declare([]string{"echo"})
		r.Gone(registry.Instance{Identity: "local", ID: "a"})
		<-time.After(2 * time.Second)
		start := time.Now()
		want(t, "found", shown(r.Find(t.Context(), "echo")), "0.0.0: local/a")
		if took := time.Since(start); took >= 250*time.Millisecond {
			t.Errorf("found after %v", took)
		}
	})
}

// The stream may be gone, as one in memory is when its server starts anew. What is
// heard live counts all the same.
func TestCatalogueWithoutItsStream(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.announcer("local", "a"), r.announcer("local", "b")
		a.declare([]string{"echo"})
		b.declare([]string{"down"})
		must(t, r.mesh.JetStream(t, "admin").DeleteStream(t.Context(), "WB_CATALOG"))
		r.line.Cut()
		<-time.After(time.Second)
		r.line.Mend()
		for range 5 {
			<-time.After(5 * time.Second)
			a.alive("echo")
		}
		want(t, "alive", r.shows("echo"), "0.0.0: local/a")
		want(t, "silent", r.shows("down"), "0.0.0:")
		r.announcer("local", "c").declare([]string{"more"})
		want(t, "announced then", r.shows("more"), "0.0.0: local/c")
	})
}

// Listeners hear of what changed when the stream is read again, and of nothing else.
func TestListenersOfACatchUp(t *testing.T) {
	var mu sync.Mutex
	var told []string
	inBubble(t, func(t *testing.T, r *rig) {
		r.stop()
		must(t, <-r.done)
		r.Registry = registry.New(r.conn, registry.Config{Log: slog.New(slog.DiscardHandler)})
		r.OnChange(func(tool string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, tool)
		})
		r.OnGone(func(id registry.Instance, dead bool) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, id.ID)
		})
		r.follow()
		a, b := r.announcer("local", "a"), r.announcer("local", "b")
		a.declare([]string{"one"})
		a.alive("one")
		mu.Lock()
		told = nil
		mu.Unlock()
		r.line.Cut()
		b.declare([]string{"two"})
		a.alive("one")
		r.line.Mend()
		<-time.After(4 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		want(t, "told", told, []string{"two"})
	})
}
