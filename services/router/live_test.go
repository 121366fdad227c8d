package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/router"
)

// What a running tool says comes to the caller, numbered, with the call's name.
//
// contract: A6
func TestStreamedOutput(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("build", `{}`, `"toolCallId":"c-1"`)
		_, res := x.result()
		want(t, "error", res.Err, nil)
		var got []string
		for _, f := range x.all {
			if f.ToolCallID != "c-1" && f.Type != frames.TypeEnd {
				t.Errorf("%s has call id %q", f.Type, f.ToolCallID)
			}
			got = append(got, strings.TrimSpace(fmt.Sprint(f.Type, " ", f.Metadata.Text("stream"), " ", f.Text())))
		}
		want(t, "frames", got, []string{"TEXT stdout one", "TEXT stderr two", "PROGRESS", "TOOL_RESULT", "END"})
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "build"}, func(ctx context.Context, _ *tool.Call) (*frames.ToolResult, error) {
			tool.Output(ctx, "stdout", "one")
			tool.Output(ctx, "stderr", "two")
			<-time.After(time.Second)
			tool.Progress(ctx, 1, 2, "half")
			<-time.After(time.Second)
			return nil, nil
		}))
	})
}

// contract: F1
func TestTickEachFiveSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("sleep", `{}`)
		_, res := x.result()
		want(t, "error", res.Err, nil)
		ticks := 0
		for _, f := range x.all {
			if f.Type == frames.TypeTick {
				ticks++
			}
		}
		want(t, "TICKs in 22 s, those of the tool not among them", ticks, 4)
		start := time.Now()
		w.call("sleep", `{}`, `"metadata":{"timeoutMs":12000}`).failure(frames.CodeTimeout)
		want(t, "the total is not kept from ending by them", time.Since(start), 12*time.Second)
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "sleep"}, func(ctx context.Context, _ *tool.Call) (*frames.ToolResult, error) {
			<-time.After(22 * time.Second)
			return nil, nil
		}))
	})
}

// Fields that this version does not know pass through, those that name the call
// are the router's; what could be taken for the caller's own does not pass.
//
// contract: P48
func TestFramesThatPassOn(t *testing.T) {
	const text = `{"type":"TEXT","toolCallId":"forged","x-top":{"a":[1.0,9007199254740993]},"content":{"text":"hi","x-in":null},"metadata":{"x-meta":true}}`
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("talk", `{}`, `"toolCallId":"c-1"`)
		all := x.read()
		var got []frames.Type
		for _, f := range all {
			got = append(got, f.Type)
		}
		want(t, "frames", got, []frames.Type{frames.TypeText, frames.TypeToolResult, frames.TypeEnd})
		for _, field := range []string{`"x-top":{"a":[1.0,9007199254740993]}`, `"x-in":null`, `"x-meta":true`, `"toolCallId":"c-1"`, `"name":"talk"`} {
			if !strings.Contains(x.raw[0], field) {
				t.Errorf("%s is not in %s", field, x.raw[0])
			}
		}
	}, func(w *world) {
		w.plain("talk", `{"name":"talk","encodings":["json"]}`, func(m *nats.Msg) {
			_ = m.Respond([]byte(text))
			_ = m.Respond([]byte(`{"type":"META","content":{"state":"done"}}{"type":"CANCEL"}{"type":"NEW"}`))
			_ = m.Respond([]byte(`{"type":"TOOL_RESULT","content":{"result":1}}{"type":"END"}`))
		})
	})
}

// Of two routers the one that runs the call acknowledges; nobody does for a call
// that nobody runs.
//
// contract: F2
func TestCancel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.route(router.Config{})
		x := w.call("slow", `{}`, `"toolCallId":"c-1"`)
		synctest.Wait()
		for _, data := range []string{
			`{"type":"CANCEL","content":{"toolCallId":"c-9"}}`, `{"type":"ABORT","streamId":"s-1"}`,
		} {
			w.silence(w.me, "wb.ctl.me", data)
		}
		you := w.mesh.Connect(t, "you")
		w.silence(you, "wb.ctl.you", `{"type":"CANCEL","content":{"toolCallId":"c-1"}}`)

		ack := w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","content":{"toolCallId":"c-1","name":"slow"}}`)
		all := ack.read()
		if id, _ := all[0].Content.Lookup("cancelling").Text(); len(all) != 2 || all[0].Type != frames.TypeMeta || id != "c-1" {
			t.Errorf("acknowledged: %v", all)
		}
		want(t, "acknowledgements", len(ack.raw), 1)
		want(t, "the tool was told", <-w.ended, "c-1")
		err := x.failure(frames.CodeCancelled)
		want(t, "message", err.Message, "Tool slow was cancelled")
		want(t, "retryable", err.Retryable, false)
		w.silence(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-1"}`) // it has ended
	}, func(w *world) { w.serve("a", set(w.t, frames.Declaration{Name: "slow"}, untilStopped(w.ended))) })
}

// silence sends a request that nobody is to answer.
func (w *world) silence(nc *nats.Conn, subject, data string) {
	w.t.Helper()
	x := w.send(nc, subject, data)
	<-time.After(2 * time.Second)
	if n := len(x.got); n > 0 {
		w.t.Errorf("%s was answered %q", data, (<-x.got).Data)
	}
}

// A CANCEL without a reply subject is acted on; one that cannot be read is answered.
func TestCancelWithoutAReply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("slow", `{}`, `"toolCallId":"c-1"`)
		synctest.Wait()
		for _, data := range []string{"\xc1", "", `{"type":"TEXT"}`, `{"type":"NEW"}`} {
			all := w.send(w.me, "wb.ctl.me", data).read()
			if len(all) != 2 || frames.CodeOf(all[0].Err()) != frames.CodeBadFrame {
				t.Errorf("%q was answered %v", data, all)
			}
		}
		if err := w.me.Publish("wb.ctl.me", []byte(`{"type":"CANCEL","toolCallId":"c-1"}`)); err != nil {
			t.Fatal(err)
		}
		x.failure(frames.CodeCancelled)
		<-w.ended
	}, func(w *world) { w.serve("a", set(w.t, frames.Declaration{Name: "slow"}, untilStopped(w.ended))) })
}

// The tool does not hear CANCEL: the caller has its answer all the same.
func TestCancelOfADeafTool(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("mute", `{}`, `"toolCallId":"c-1"`)
		synctest.Wait()
		start := time.Now()
		w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-1"}`).read()
		want(t, "acknowledged after", time.Since(start), 0)
		err := x.failure(frames.CodeCancelled)
		want(t, "answered after", time.Since(start), time.Second)
		want(t, "effect", err.Effect, frames.EffectUnknown)
		w.router.holdsNothing()
	}, func(w *world) { w.plain("mute", `{"name":"mute"}`, func(*nats.Msg) {}) })
}

// A call whose caller is gone ends by itself, and nothing is left of it.
func TestCallerThatVanishes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		you := w.mesh.Connect(t, "you")
		w.send(you, "wb.call.you.slow", `{"type":"TOOL_CALL","toolCallId":"c-1"}`)
		stays := w.call("slow", `{}`, `"toolCallId":"c-2"`)
		synctest.Wait()
		start := time.Now()
		you.Close()
		want(t, "the tool was told", <-w.ended, "c-1")
		if took := time.Since(start); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("after %v", took)
		}
		w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-2"}`).read()
		stays.failure(frames.CodeCancelled)
		w.router.holdsNothing()
	}, func(w *world) {
		ms := time.Hour.Milliseconds()
		w.serve("a", set(w.t, frames.Declaration{Name: "slow", TimeoutMs: &ms}, untilStopped(w.ended)))
	})
}

// A caller that was away for a moment keeps its call.
func TestCallerThatComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("sleep", `{}`)
		<-time.After(time.Second)
		if err := x.sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
		<-time.After(8 * time.Second)
		x.sub = w.subscribe(w.me, x.sub.Subject, "", func(m *nats.Msg) { x.got <- m })
		_, res := x.result()
		want(t, "error", res.Err, nil)
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "sleep"}, func(ctx context.Context, _ *tool.Call) (*frames.ToolResult, error) {
			select {
			case <-time.After(28 * time.Second):
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
	})
}

// The router's connection is lost when the result comes: it is sent when it is back.
func TestResultWithoutAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		x := w.call("mute", `{}`, `"metadata":{"timeoutMs":1500}`)
		<-time.After(time.Second)
		w.line.Cut()
		<-time.After(3 * time.Second)
		w.line.Mend()
		x.failure(frames.CodeTimeout)
		if took := time.Since(start); took < 4*time.Second {
			t.Errorf("answered after %v", took)
		}
	}, func(w *world) { w.plain("mute", `{"name":"mute"}`, func(*nats.Msg) {}) })
}

// A draining router takes no call, and still hears CANCEL for those it has.
func TestDrainWithACallThatIsCancelled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("slow", `{}`, `"toolCallId":"c-1"`)
		synctest.Wait()
		w.router.cancel()
		synctest.Wait()
		_, err := w.bus("me").Request(t.Context(), "wb.list.me", &frames.Frame{Type: frames.TypeDescribe})
		want(t, "nobody takes more", frames.CodeOf(err), frames.CodeUnavailable)
		w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-1"}`).read()
		x.failure(frames.CodeCancelled)
		<-w.ended
		w.router.holdsNothing()
	}, func(w *world) { w.serve("a", set(w.t, frames.Declaration{Name: "slow"}, untilStopped(w.ended))) })
}

// A call that was taken is answered, be it by a search that is under way when
// the router drains.
func TestDrainDuringALookup(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("nope", `{}`)
		l := w.send(w.me, "wb.list.me", `{"type":"DESCRIBE","name":"nope"}`)
		synctest.Wait()
		if took := w.router.stop(); took < 250*time.Millisecond || took > time.Second {
			t.Errorf("drained in %v", took)
		}
		x.failure(frames.CodeNotFound)
		want(t, "list", frames.CodeOf(l.read()[0].Err()), frames.CodeNotFound)
	})
}

// The work context ends: what runs is answered and given up.
func TestHardStop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.call("mute", `{}`)
		synctest.Wait()
		w.router.cancel()
		<-time.After(5 * time.Second)
		w.router.cut()
		err := x.failure(frames.CodeInterrupted)
		want(t, "effect", err.Effect, frames.EffectUnknown)
		<-w.router.done // what was cut off is no clean drain
		w.router.once.Do(func() {})
	}, func(w *world) { w.plain("mute", `{"name":"mute"}`, func(*nats.Msg) {}) })
}

func TestQueueOverItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve("a", set(t, frames.Declaration{Name: "slow", Concurrency: 1}, untilStopped(w.ended)))
		w.router = w.route(router.Config{Dispatch: dispatch.Config{QueueLimit: 1, QueueWait: 10 * time.Second}})
		runs := w.call("slow", `{}`, `"toolCallId":"c-1"`)
		synctest.Wait()
		waits := w.call("slow", `{}`)
		synctest.Wait()
		err := w.call("slow", `{}`).failure(frames.CodeBusy)
		if !err.Retryable || err.RetryAfter <= 0 || err.Effect != frames.EffectNone {
			t.Errorf("%+v", err)
		}
		waits.failure(frames.CodeBusy)
		w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-1"}`).read()
		runs.failure(frames.CodeCancelled)
		<-w.ended
	})
}

// contract: P46
func TestRouterOfAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bustest.WithIdentity("gate", natsd.RoleRouter))
		readFile(w)
		w.line = w.mesh.Line(t, "gate")
		w.route(router.Config{Identity: "gate"})
		_, res := w.call("read_file", `{"path":"a"}`).result()
		want(t, "error", res.Err, nil)
		want(t, "below the level of its log", w.log.take(), nil)
		if err := w.me.PublishMsg(&nats.Msg{Subject: "wb.list.me", Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(t, "above it", w.log.take(), []string{"refused a reply subject"})
	})
}

func TestWrongConfig(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]router.Config{
		"Identity":            {Identity: "a.b"},
		"Dispatch.QueueLimit": {Dispatch: dispatch.Config{QueueLimit: -1}},
		"Dispatch.QueueWait":  {Dispatch: dispatch.Config{QueueWait: -1}},
	} {
		err := router.New(cfg).Run(t.Context(), emptyEnv(), func() { t.Error("it is ready") })
		if frames.CodeOf(err) != frames.CodeValidationInput || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func (w *world) bus(identity string) *bus.Conn {
	w.t.Helper()
	c, err := bus.New(w.mesh.Connect(w.t, identity), identity)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}
