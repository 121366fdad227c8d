package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: P24
func TestPlainServiceIsFound(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			start := time.Now()
			r.Settle(t.Context())
			want(t, "found", r.shows("echo"), "0.0.0: tool")
			want(t, "the registry was ready before, by", time.Since(start), 250*time.Millisecond)
		}, func(r *rig) { r.plain("local", declaration("echo")) })
	})
	t.Run("by its name at the start", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			start := time.Now()
			want(t, "found", shown(r.Find(t.Context(), "echo")), "0.0.0: tool")
			if took := time.Since(start); took >= 250*time.Millisecond {
				t.Errorf("found after %v", took)
			}
		}, func(r *rig) { r.plain("local", declaration("echo")) })
	})
	t.Run("each 30 s", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			r.plain("local", &frames.Declaration{Name: "echo"})
			<-time.After(31 * time.Second)
			want(t, "found", r.shows("echo"), "0.0.0: tool")
		})
	})
	t.Run("named beside its declaration only", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			r.answerDescribe("local", `{"type":"DESCRIPTION","name":"echo","content":{"description":"says it again"}} {"type":"END"}`)
			want(t, "found", shown(r.Find(t.Context(), "echo")), "0.0.0: tool")
		})
	})
	t.Run("by its name", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			r.plain("local", &frames.Declaration{Name: "echo"})
			start := time.Now()
			want(t, "found", shown(r.Find(t.Context(), "echo")), "0.0.0: tool")
			if took := time.Since(start); took >= 250*time.Millisecond {
				t.Errorf("found after %v", took)
			}
		})
	})
	t.Run("again", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			p := r.plain("local", &frames.Declaration{Name: "echo"})
			r.Find(t.Context(), "echo")
			must(t, p.sub.Drain(t.Context()))
			r.Gone(r.Get("echo").Instances[0].Instance)
			want(t, "down", shown(r.Find(t.Context(), "echo")), "0.0.0:")
			r.plain("local", &frames.Declaration{Name: "echo"})
			<-time.After(time.Second)
			want(t, "back", shown(r.Find(t.Context(), "echo")), "0.0.0: tool")
		})
	})
}

// Plain services have no instance, but each tool is gone by itself.
func TestPlainServicesAreGoneOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		p := r.plain("local", &frames.Declaration{Name: "one"})
		r.plain("other", &frames.Declaration{Name: "two", Identity: "local"})
		<-time.After(31 * time.Second)
		must(t, p.sub.Drain(t.Context()))
		r.Gone(r.Get("one").Instances[0].Instance)
		want(t, "nobody listened", r.shows("one"), "0.0.0:")
		want(t, "another", r.shows("two"), "0.0.0: tool")
		<-time.After(3 * time.Minute)
		want(t, "another later", r.shows("two"), "0.0.0: tool")
	})
}

// A service that answers DESCRIBE for another identity gets nothing by it.
func TestForgedIdentity(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.announcer("local", "a")
		a.declare([]string{"echo"})
		r.plain("other", &frames.Declaration{Name: "echo", Identity: "local"}, &frames.Declaration{Name: "x", Identity: "local", Instance: "a"})
		for range 7 {
			a.alive("echo")
			<-time.After(5 * time.Second)
		}
		for _, s := range r.Get("echo").Instances {
			if s.Instance.ID != "a" {
				t.Errorf("%+v serves echo too", s)
			}
		}
		want(t, "announced by nobody", r.shows("x"), "")
	})
}

func TestMissesShareOneQuestion(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.Settle(t.Context())
		p := r.plain("local")
		find := func(n int) {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() { want(t, "found", r.Find(t.Context(), "nope"), nil) })
			}
			wg.Wait()
		}
		start := time.Now()
		find(100)
		want(t, "took", time.Since(start), 250*time.Millisecond)
		want(t, "questions", p.questions(), []string{"nope"})
		start = time.Now()
		find(10)
		want(t, "took within the second", time.Since(start), 0)
		want(t, "questions within the second", p.questions(), nil)
		<-time.After(750 * time.Millisecond)
		find(10)
		want(t, "questions after the second", p.questions(), []string{"nope"})
		r.Find(t.Context(), "b@d")
		want(t, "questions for what is no name", p.questions(), nil)
	})
}

// Each DESCRIBE goes to every service of the mesh.
func TestFloodOfUnknownNames(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.Settle(t.Context())
		p := r.plain("local")
		var wg sync.WaitGroup
		for i := range 5000 {
			wg.Go(func() { r.Find(t.Context(), fmt.Sprint("nope-", i)) })
		}
		wg.Wait()
		synctest.Wait()
		if n := len(p.questions()); n == 0 || n > 16 {
			t.Errorf("%d names were asked for at once", n)
		}
	})
}

func TestLookupOfACallerThatGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		r.Find(ctx, "nope")
		want(t, "took", time.Since(start), 0)
		r.stop()
		must(t, <-r.done)
		want(t, "the lookup ended with the registry", time.Since(start), 0)
		r.Find(t.Context(), "other")
		want(t, "none after that", time.Since(start), 0)
	})
}
