package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/registry"
	"github.com/weavebus/weavebus/pkg/frames"
)

// A router that starts late knows all that was announced when it is ready.
//
// contract: P45
func TestCatchUpToTheExactEnd(t *testing.T) {
	const instances, each = 50, 20
	name := func(i, j int) string { return fmt.Sprintf("tool-%d", (i*each+j)%(instances*each/2)) }
	inBubble(t, func(t *testing.T, r *rig) {
		tools := r.Tools()
		want(t, "tools", len(tools), instances*each/2)
		for _, tool := range tools {
			if len(tool.Instances) != 2 {
				t.Fatalf("%s is served by %d instances", tool.Name, len(tool.Instances))
			}
		}
	}, func(r *rig) {
		for i := range instances {
			a := r.announcer("local", fmt.Sprint(i))
			var tools []string
			for j := range each {
				tools = append(tools, name(i, j))
			}
			a.declare(tools)
			a.alive(tools...)
		}
	})
}

func TestThousandToolsOfFiftyInstances(t *testing.T) {
	const instances, tools = 50, 1000
	inBubble(t, func(t *testing.T, r *rig) {
		want(t, "tools", len(r.Tools()), tools)
		want(t, "one of them", r.shows("tool-999"), "0.0.0: local/49")
		start := time.Now()
		again := registry.New(r.connect("loop"), registry.Config{Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		must(t, again.Run(ctx, stop))
		want(t, "read by another", len(again.Tools()), tools)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it was ready after %v", took)
		}
	}, func(r *rig) {
		for i := range instances {
			a := r.announcer("local", fmt.Sprint(i))
			var mine []string
			for j := range tools / instances {
				mine = append(mine, fmt.Sprintf("tool-%d", i*tools/instances+j))
			}
			a.declare(mine)
			a.alive(mine...)
		}
	})
}

func TestWhoIsGoneBeforeTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		want(t, "ended", r.shows("over"), "0.0.0:")
		want(t, "silent", r.shows("down"), "0.0.0:")
		want(t, "alive", r.shows("fine"), "0.0.0: local/c")
	}, func(r *rig) {
		ended, crashed, up := r.announcer("local", "a"), r.announcer("local", "b"), r.announcer("local", "c")
		ended.declare([]string{"over"})
		ended.end()
		crashed.declare([]string{"down"})
		crashed.alive("down")
		up.declare([]string{"fine"})
		<-time.After(time.Minute)
		up.alive("fine")
	})
}

func TestHeardLive(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.announcer("local", "a"), r.announcer("local", "b")
		a.declare([]string{"echo"}, version("1"))
		want(t, "announced", r.shows("echo"), "1: local/a")
		a.alive("echo")
		<-time.After(time.Second)
		b.declare([]string{"echo"}, version("2"))
		want(t, "a newer one that is not alive yet", r.shows("echo"), "1: local/a")
		b.alive("echo")
		want(t, "a newer one", r.shows("echo"), "2: local/b")
		a.alive("echo")
		a.declare([]string{"echo"}, version("1"))
		want(t, "the older again", r.shows("echo"), "2: local/b")
		b.end()
		want(t, "the newer ended", r.shows("echo"), "1: local/a")
		<-time.After(21 * time.Second)
		want(t, "the older is silent", r.shows("echo"), "1:")
	})
}

func TestConflictIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.announcer("local", "a").declare([]string{"echo"})
		r.announcer("other", "b").declare([]string{"echo"})
		want(t, "the first has the name", r.shows("echo"), "0.0.0: local/a")
		refused := r.Refused()
		if len(refused) != 1 || refused[0].Identity != "other" || r.Check(refused[0]).Code != frames.CodeConflict {
			t.Errorf("refused: %+v", refused)
		}
	})
}

// What is no declaration is refused where it stands, and shown if it has a name.
func TestRefusedAnnouncements(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.announcer("local", "a")
		subject := a.conn.AnnounceTool("local", "a", "echo")
		for _, data := range []string{"", "\xc1", "\xdf\xff\xff\xff\xff\x00", `{"type":`, "{}", strings.Repeat("\x91", 100)} {
			if err := a.conn.NATS().Publish(subject, []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		a.publish(subject, frames.Text("hello"))
		a.publish(a.conn.Announce("local", "a"), frames.Description(&frames.Declaration{Name: "echo"})) // it names no tool
		a.publish(subject, frames.End(frames.EndDrained))                                               // it does not name the instance
		a.publish(subject+".more", frames.Description(&frames.Declaration{Name: "echo"}))
		a.publish(a.conn.AnnounceTool("local", "a", "b@d"), frames.Description(&frames.Declaration{Name: "b@d"}))
		a.flush()
		want(t, "known", len(r.Tools()), 0)
		want(t, "shown", len(r.Refused()), 0)

		a.publish(subject, frames.Description(&frames.Declaration{Name: "another"}))
		a.publish(a.conn.AnnounceTool("local", "a", "long"), frames.Description(&frames.Declaration{Name: "long", Description: strings.Repeat("x", 5000)}))
		big := frames.Fields{{Key: "x-more", Value: frames.Value(strings.Repeat("x", 300<<10))}}
		a.publish(a.conn.AnnounceTool("local", "a", "big"), frames.Description(&frames.Declaration{Name: "big", Extra: big}))
		a.declare([]string{"fine"})
		want(t, "known then", r.shows("fine"), "0.0.0: local/a")
		codes := map[string]frames.Code{}
		for _, tool := range r.Refused() {
			codes[tool.Name] = r.Check(tool).Code
		}
		want(t, "shown then", codes, map[string]frames.Code{
			"echo": frames.CodeValidationInput, "long": frames.CodeTooLarge, "big": frames.CodeTooLarge,
		})
	})
}

// What a service cannot take tools from is shown until its next sign of life says
// otherwise, or the service is gone.
//
// contract: S37
func TestWhatAServiceSkipsIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.announcer("local", "a")
		say := func(skipped ...any) {
			a.publish(a.conn.Announce("local", "a"), frames.Meta(map[string]any{"alive": true, "skipped": skipped}))
			a.flush()
		}
		item := func(source, reason string) any { return map[string]any{"source": source, "reason": reason} }
		say(item("tools/b.yaml", "line 3: what is this"), item("", "nameless"), item("x", strings.Repeat("x", 2000)), "no map")
		refused := r.Refused()
		if len(refused) != 1 || refused[0].Name != "tools/b.yaml" || r.Check(refused[0]).Message != "line 3: what is this" {
			t.Fatalf("refused: %+v", refused)
		}
		want(t, "no tool", r.shows("tools/b.yaml"), "")
		var many []any
		for range 50 {
			many = append(many, item("many", "y"))
		}
		say(many...)
		want(t, "bounded", len(r.Refused()), 32)
		say()
		want(t, "mended", len(r.Refused()), 0)
		say(item("b", "z"))
		time.Sleep(time.Minute)
		want(t, "gone", len(r.Refused()), 0)
	})
}

// A schema is compiled when somebody asks, and is no reason to fail for the rest.
func TestSchemaThatDoesNotCompile(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.announcer("local", "a")
		a.declare([]string{"echo"}, func(d *frames.Declaration) { d.Schema = []byte(`{"$ref":"file:///etc/passwd"}`) })
		a.declare([]string{"out"}, func(d *frames.Declaration) { d.OutputSchema = []byte(`{"type":7}`) })
		a.declare([]string{"fine"})
		for tool, good := range map[string]bool{"echo": false, "out": false, "fine": true} {
			if err := r.Check(r.Get(tool)); (err == nil) != good {
				t.Errorf("%s: %v", tool, err)
			}
		}
	})
}

func TestConnectionThatIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.conn.NATS().Close()
		if err := <-r.done; frames.CodeOf(err) != frames.CodeUnavailable {
			t.Errorf("Run gave %v", err)
		}
	})
}

func TestMeshWithoutACatalogue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, mesh: bustest.Start(t, bustest.WithoutAssets())}
		reg := registry.New(r.connect("router"), registry.Config{Log: slog.New(slog.DiscardHandler)})
		err := reg.Run(t.Context(), func() { t.Error("it is ready") })
		if frames.CodeOf(err) != frames.CodeUnavailable {
			t.Errorf("Run gave %v", err)
		}
	})
}
