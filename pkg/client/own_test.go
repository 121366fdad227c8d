package client_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// doing is a set with one tool, which counts its runs.
func doing(t *testing.T, name string, run func(ctx context.Context, args json.RawMessage) (any, error), opts ...func(*frames.Declaration)) (*tool.Set, *atomic.Int32) {
	t.Helper()
	set, runs := tool.NewSet("own"), &atomic.Int32{}
	decl := frames.Declaration{Name: name, Schema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)}
	for _, o := range opts {
		o(&decl)
	}
	err := set.AddRaw(decl, func(ctx context.Context, c *tool.Call) (*frames.ToolResult, error) {
		runs.Add(1)
		out, err := run(ctx, c.Arguments)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(out)
		return &frames.ToolResult{Result: text}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return set, runs
}

func lasting(d time.Duration) func(*frames.Declaration) {
	return func(decl *frames.Declaration) { ms := d.Milliseconds(); decl.TimeoutMs = &ms }
}

func safe(decl *frames.Declaration) { decl.Replay = frames.ReplaySafe }

// after answers with the arguments when a time is over.
func after(d time.Duration) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, args json.RawMessage) (any, error) {
		select {
		case <-time.After(d): // virtual time
			return args, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// contract: G12, G43, B41, B48, P65
func TestOwnToolRunsInTheClient(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.play = rounds(says("", `ask {"q":"sure?"}`), says("well"))
		c := w.session(w.Client, "fake/m")
		set, runs := doing(t, "ask", after(10*time.Minute), lasting(20*time.Minute))
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		c.until("waiting", 1)
		synctest.Wait()
		info, err := w.SessionInfo(t.Context(), "s1")
		if err != nil || info.Status != "waiting" {
			t.Errorf("%+v, %v: nobody works on a session that waits", info, err)
		}
		c.want(c.until("idle", 2), `
			user: go
			thinking
			call ask
			executing
			waiting
			result ask {"q":"sure?"}
			executing
			thinking
			assistant: well
			idle`)
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
		if req := w.asked()[0]; len(req.Tools) != 1 || req.Tools[0].Name != "ask" || !strings.Contains(string(req.Tools[0].Schema), `"q"`) {
			t.Errorf("offered %+v", req.Tools)
		}
	})
}

// A client's own call and one of the mesh are one round; arguments are checked, and a
// client's own tool is called before one of the mesh that has its name.
//
// contract: B41, P74, P1, A14
func TestOwnAndMeshToolsInOneRound(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		meshSet := func(s *tool.Set) {
			for _, name := range []string{"look", "ask"} {
				w.must(tool.Add(s, name, func(ctx context.Context, _ struct{}) (string, error) {
					_, err := after(time.Minute/4)(ctx, nil)
					return "mesh", err
				}))
			}
		}
		w.meshTools(meshSet)
		w.play = rounds(says("", `ask {"q":"1"}`, "look", `ask {"q":2}`, "nosuch"), says("well"))
		c := w.session(w.Client, "fake/m")
		set, _ := doing(t, "ask", after(time.Second))
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		c.want(c.until("idle", 2), `
			user: go
			thinking
			call ask
			call look
			call ask
			call nosuch
			executing
			result ask VALIDATION_INPUT
			result nosuch NOT_FOUND
			result ask {"q":"1"}
			result look "mesh"
			thinking
			assistant: well
			idle`)
		messages := w.asked()[1].Messages
		if got := messages[len(messages)-4:]; got[0].Text != `{"q":"1"}` || got[1].Text != `"mesh"` || !strings.Contains(got[3].Text, "ask, look") {
			t.Errorf("the model sees %+v", got)
		}
	})
}

func TestOwnToolThatNobodyServes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.play = rounds(says("", "ask"), says("well"))
		c := w.session(w.Client, "fake/m", frames.Param("register-tool", map[string]any{"name": "ask"}))
		c.send(frames.Text("go"))
		if got := c.until("idle", 2); !strings.Contains(got, "result ask UNAVAILABLE\nthinking") {
			t.Errorf("got:\n%s", got)
		}
	})
}

// The time-out stands in the session: it holds although its loop and its harness are
// other ones by then.
//
// contract: B22
func TestOwnToolTimesOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h, l := w.harness(), w.loop()
		w.play = rounds(says("", "ask"), says("well"))
		c := w.session(w.Client, "fake/m")
		ended := make(chan error, 1)
		set, _ := doing(t, "ask", func(ctx context.Context, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, nil
		}, lasting(10*time.Minute))
		w.must(c.s.ServeTools(t.Context(), set))
		begun := time.Now()
		c.send(frames.Text("go"))
		c.until("waiting", 1)
		l.crash()
		h.crash()
		w.harness()
		w.loop()
		c.want(c.until("idle", 2), `
			user: go
			thinking
			call ask
			executing
			waiting
			result ask TIMEOUT
			executing
			thinking
			assistant: well
			idle`)
		if took := time.Since(begun); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("timed out after %v", took)
		}
		wantCode(t, <-ended, frames.CodeTimeout)
	})
}

// A call that waits beside one of the mesh times out as well.
func TestOwnToolTimesOutWhileTheLoopWorks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.meshTools(func(s *tool.Set) {
			w.must(tool.Add(s, "look", func(ctx context.Context, _ struct{}) (string, error) {
				_, err := after(20*time.Second)(ctx, nil)
				return "mesh", err
			}))
		})
		w.play = rounds(says("", "ask", "look"), says("well"))
		c := w.session(w.Client, "fake/m")
		set, _ := doing(t, "ask", after(time.Hour), lasting(5*time.Second))
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		if got := c.until("idle", 2); !strings.Contains(got, "executing\nresult ask TIMEOUT\nresult look \"mesh\"\nthinking") {
			t.Errorf("got:\n%s", got)
		}
	})
}

func TestOwnToolIsCancelledWithItsTurn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.play = rounds(says("", "ask"), says("well"))
		c := w.session(w.Client, "fake/m")
		ended := make(chan error, 1)
		set, _ := doing(t, "ask", func(ctx context.Context, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return "late", nil
		})
		w.must(c.s.ServeTools(t.Context(), set))
		c.send(frames.Text("go"))
		c.until("waiting", 1)
		c.send(frames.NewFrame(frames.TypeCancel, nil))
		c.want(c.until("idle", 2), `
			user: go
			thinking
			call ask
			executing
			waiting
			result ask CANCELLED
			idle`)
		wantCode(t, <-ended, frames.CodeCancelled)
		synctest.Wait()
		if got := strings.Join(c.lines(), " "); strings.Contains(got, "CONFLICT") {
			t.Errorf("a result was sent that nobody waits for: %s", got)
		}
	})
}

// Of the processes that serve a session one gets a call; those of other sessions leave
// it, although they serve a tool of the same name.
func TestOwnToolsOfSeveralProcesses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.play = rounds(says("", `ask {"q":"1"}`, `ask {"q":"2"}`, `ask {"q":"3"}`), says("well"))
		c := w.session(w.Client, "fake/m")
		first, a := doing(t, "ask", after(time.Second))
		second, b := doing(t, "ask", after(time.Second))
		other, x := doing(t, "ask", after(time.Second))
		w.must(c.s.ServeTools(t.Context(), first))
		for sid, set := range map[string]*tool.Set{"s1": second, "s2": other} {
			s, err := w.dial().Session(t.Context(), sid)
			w.must(err)
			w.must(s.ServeTools(t.Context(), set))
			w.must(s.Close())
		}
		c.send(frames.Text("go"))
		c.until("idle", 2)
		if a.Load()+b.Load() != 3 || x.Load() != 0 {
			t.Errorf("%d and %d runs, %d in another session", a.Load(), b.Load(), x.Load())
		}
	})
}

// A loop that dies is taken over: a call that may run twice is offered again, under
// its id, and one that may not is waited for; neither runs twice.
//
// contract: B41, E3
func TestOwnToolsSurviveTheirLoop(t *testing.T) {
	for name, opts := range map[string][]func(*frames.Declaration){"safe": {safe}, "unsafe": nil} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.harness()
				l := w.loop()
				w.meshTools(func(s *tool.Set) {
					w.must(tool.Add(s, "look", func(ctx context.Context, _ struct{}) (string, error) {
						_, err := after(20*time.Second)(ctx, nil)
						return "mesh", err
					}, tool.ReplaySafe()))
				})
				w.play = rounds(says("", "ask", "look"), says("well"))
				c := w.session(w.Client, "fake/m")
				set, runs := doing(t, "ask", after(time.Minute*2), append(opts, lasting(10*time.Minute))...)
				w.must(c.s.ServeTools(t.Context(), set))
				c.send(frames.Text("go"))
				c.until("executing", 1)
				<-time.After(time.Second) // virtual time: both run
				l.crash()
				w.loop()
				c.want(c.until("idle", 2), `
					user: go
					thinking
					call ask
					call look
					executing
					result look "mesh"
					waiting
					result ask {}
					executing
					thinking
					assistant: well
					idle`)
				if n := runs.Load(); n != 1 {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

// contract: G12
func TestToolsThatCannotBeServed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		s, err := w.Session(t.Context(), "s1")
		w.must(err)
		wantCode(t, s.ServeTools(t.Context(), tool.NewSet("none")), frames.CodeValidationInput)
		w.must(s.Close())
		var late *client.Session
		late, err = w.Session(t.Context(), "s2")
		w.must(err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		set, _ := doing(t, "ask", after(0))
		if err := late.ServeTools(ctx, set); err == nil {
			t.Error("served with a context that has ended")
		}
		w.must(late.Close())
	})
}
