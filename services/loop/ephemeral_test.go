package loop_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/loop"
)

// run is an open exchange of an ephemeral run.
type run struct {
	r    *rig
	x    *bus.Exchange
	got  []frames.Frame
	tick int
}

// params are PARAM frames of key, value pairs.
func params(pairs ...any) []*frames.Frame {
	out := make([]*frames.Frame, 0, len(pairs)/2+1)
	for i := 0; i < len(pairs); i += 2 {
		f := frames.Param(pairs[i].(string), pairs[i+1])
		out = append(out, &f)
	}
	return out
}

var goOn = []any{map[string]any{"role": "user", "content": "go"}}

// start starts a run of the fake model, with further PARAMs.
func (r *rig) start(enc frames.Encoding, streamID string, pairs ...any) *run {
	r.t.Helper()
	begin := frames.Start(frames.WithStream(streamID))
	fs := append(params("model", "fake/m", "messages", goOn), append(params(pairs...), &begin)...)
	x, err := r.me.Open(r.t.Context(), r.me.Loop("me"), enc, fs...)
	r.must(err)
	r.t.Cleanup(x.Close)
	return &run{r: r, x: x}
}

// next gives the next frame but TICK.
func (u *run) next() frames.Frame {
	u.r.t.Helper()
	for {
		f, err := u.x.Next(u.r.t.Context())
		u.r.must(err)
		if f.Type == frames.TypeTick {
			u.tick++
			continue
		}
		u.got = append(u.got, f)
		return f
	}
}

// until reads to a frame of the type.
func (u *run) until(t frames.Type) frames.Frame {
	u.r.t.Helper()
	for {
		if f := u.next(); f.Type == t || f.Type == frames.TypeEnd {
			return f
		}
	}
}

// all reads to the end and gives what came.
func (u *run) all() []string {
	u.r.t.Helper()
	u.until(frames.TypeEnd)
	out := make([]string, 0, len(u.got))
	for i := range u.got {
		out = append(out, brief(&u.got[i]))
	}
	return out
}

// contract: P70, P76, P79, W41
func TestRunOverTheBus(t *testing.T) {
	for _, enc := range []frames.Encoding{frames.Msgpack, frames.JSON} {
		t.Run(enc.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.tools(func(s *tool.Set) {
					r.add(s, frames.Declaration{Name: "slow", Schema: anything}, after(22*time.Second)) // no end on a tick
					r.add(s, frames.Declaration{Name: "fast", Schema: anything}, after(time.Second))
				})
				r.loop(loop.Config{})
				r.play = script(answer("let me look", `slow {"n":1}`, `fast {"n":2}`), answer("two things"))
				u := r.start(enc, "")
				r.want(u.all(), `
					META streamId
					TEXT let
					TEXT me
					TEXT look
					TOOL_CALL slow
					TOOL_CALL fast
					META usage stopReason
					TOOL_RESULT fast {"n":2}
					TOOL_RESULT slow {"n":1}
					TEXT two
					TEXT things
					META usage stopReason
					END completed`)
				u.checkIDs()
				if u.tick != 4 {
					t.Errorf("%d ticks in 22 s", u.tick)
				}
				asked := r.asked()
				if len(asked) != 2 || len(asked[0].Tools) != 2 || len(asked[1].Tools) != 2 {
					t.Fatalf("the model was asked %+v", asked)
				}
				if m := asked[1].Messages; len(m) != 4 || m[2].Text != `{"n":1}` || m[3].Text != `{"n":2}` {
					t.Errorf("the follow-up holds %+v", m)
				}
			})
		})
	}
}

// checkIDs holds all frames to one stream and calls to distinct ids.
func (u *run) checkIDs() {
	u.r.t.Helper()
	name, _ := u.got[0].Content.Lookup("streamId").Text()
	ids := map[string]bool{}
	for _, f := range u.got {
		if f.StreamID != name || name == "" {
			u.r.t.Errorf("%s has stream %q, the run has %q", f.Type, f.StreamID, name)
		}
		if f.Type == frames.TypeToolCall {
			if ids[f.ToolCallID] || !frames.ValidName(f.ToolCallID) {
				u.r.t.Errorf("call id %q", f.ToolCallID)
			}
			ids[f.ToolCallID] = true
		}
	}
}

// What the PARAMs of a run say stands in its first request as in the others, and what
// the model thinks and a tool reports comes out on the way.
//
// contract: P66, P71, P75, P79
func TestParamsOfARun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "dig", Schema: anything}, func(ctx context.Context, args json.RawMessage) (any, error) {
				tool.Progress(ctx, 1, 2, "half")
				return after(time.Second)(ctx, args)
			})
			r.add(s, frames.Declaration{Name: "fly", Schema: anything}, after(0))
		})
		r.loop(loop.Config{})
		r.play = script(append([]provider.Event{provider.Thinking{Text: "hm"}}, answer("", `dig {"n":1}`)...), answer("done"))
		u := r.start(frames.JSON, "", "temperature", 0.5, "toolChoice", "required", "systemPrompt", "be kind", "tools", []any{"d*"})
		r.want(u.all(), `
			META streamId
			THINKING hm
			TOOL_CALL dig
			META usage stopReason
			PROGRESS dig
			TOOL_RESULT dig {"n":1}
			TEXT done
			META usage stopReason
			END completed`)
		asked := r.asked()
		for i, req := range asked {
			var roles []string
			for _, m := range req.Messages {
				roles = append(roles, string(m.Role))
			}
			if want := []string{"system", "user", "assistant", "tool"}[:2+2*i]; !slices.Equal(roles, want) || req.Messages[0].Text != "be kind" {
				t.Errorf("request %d holds %v, %q", i+1, roles, req.Messages[0].Text)
			}
			if len(req.Tools) != 1 || req.Tools[0].Name != "dig" || req.ToolChoice.Mode != provider.ChoiceRequired || string(req.Settings["temperature"]) != "0.5" {
				t.Errorf("request %d: %+v", i+1, req)
			}
		}
		if len(asked) != 2 {
			t.Errorf("%d requests", len(asked))
		}
	})
}

// contract: E12, B38
func TestCallsOfOneLockRunOneAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "edit", Schema: anything, LockKey: "path"}, after(time.Second))
			r.add(s, frames.Declaration{Name: "alone", Schema: anything, ExecutionMode: frames.Sequential}, after(time.Second))
		})
		r.loop(loop.Config{})
		r.play = script(answer("", `edit {"path":"a"}`, `edit {"path":"b"}`, `edit {"path" : "a","n":2}`, "alone {}", "edit {}"), answer("done"))
		start := time.Now()
		r.start(frames.Msgpack, "").all()
		if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("took %v, want 4 s: a and b, a again, alone, the last", took)
		}
	})
}

// contract: B24, W41, E11
// case: loop-15-validation-error-loops-back
func TestWhatFailsGoesBackToTheModel(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "fly", Schema: json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}`)}, after(time.Second))
			r.add(s, frames.Declaration{Name: "hidden", Schema: anything}, after(time.Second))
			r.add(s, frames.Declaration{Name: "fire", Schema: anything, Annotations: frames.Annotations{RequiresConfirmation: true}}, after(time.Second))
		})
		r.loop(loop.Config{})
		r.play = script(answer("", `fly {"to":{"k":"v"}}`, "hidden {}", "nosuch {}", `fly {"to":`, "fire {}"), answer("", `fly {"to":"Rome"}`), answer("done"))
		r.want(r.start(frames.JSON, "", "tools", []any{"f*"}).all(), `
			META streamId
			TOOL_CALL fly
			TOOL_CALL hidden
			TOOL_CALL nosuch
			TOOL_CALL fly
			TOOL_CALL fire
			META usage stopReason
			TOOL_RESULT fly VALIDATION_INPUT
			TOOL_RESULT hidden NOT_FOUND
			TOOL_RESULT nosuch NOT_FOUND
			TOOL_RESULT fly VALIDATION_INPUT
			TOOL_RESULT fire DENIED
			TOOL_CALL fly
			META usage stopReason
			TOOL_RESULT fly {"to":"Rome"}
			TEXT done
			META usage stopReason
			END completed`)
		asked := r.asked()
		if len(asked[0].Tools) != 2 {
			t.Errorf("offered %+v", asked[0].Tools)
		}
		seen := asked[1].Messages[2:]
		for i, m := range seen {
			if m.Role != provider.RoleTool || !m.IsError || m.ToolCallID != asked[1].Messages[1].Calls[i].ID {
				t.Errorf("the failure of call %d goes to the model as %+v", i, m)
			}
		}
		if len(seen) != 5 || !strings.Contains(seen[1].Text, "fly") || strings.Contains(strings.TrimPrefix(seen[2].Text, `Tool "nosuch"`), "hidden") {
			t.Errorf("the model sees %+v", seen)
		}
	})
}

// A tool that an operator switched off is not offered, and a call of it is DISABLED
// for a loop too; one that was retired is not there.
//
// contract: W34, B54
func TestToolsThatAreSwitchedOff(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			for _, name := range []string{"on", "off", "gone"} {
				r.add(s, frames.Declaration{Name: name, Schema: anything}, after(time.Second))
			}
		})
		r.loop(loop.Config{})
		js := r.mesh.JetStream(t, "router")
		for name, setting := range map[string]string{"off": `{"disabled":true}`, "gone": `{"retired":true}`} {
			_, err := js.Publish(t.Context(), "$KV.WB_TOOLS."+name, []byte(setting))
			r.must(err)
		}
		synctest.Wait()
		r.play = script(answer("", "on {}", "off {}", "gone {}"), answer("done"))
		r.want(r.start(frames.JSON, "").all(), `
			META streamId
			TOOL_CALL on
			TOOL_CALL off
			TOOL_CALL gone
			META usage stopReason
			TOOL_RESULT off DISABLED
			TOOL_RESULT gone NOT_FOUND
			TOOL_RESULT on {}
			TEXT done
			META usage stopReason
			END completed`)
		asked := r.asked()
		if len(asked[0].Tools) != 1 || asked[0].Tools[0].Name != "on" {
			t.Errorf("offered %+v", asked[0].Tools)
		}
	})
}

// A model sees the parts of a result, and never what is for people; who watches sees
// all of it.
//
// contract: E6, E7, W41
func TestWhatAModelSeesOfAResult(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		image := frames.Part{Type: "image", MediaType: "image/png", Data: []byte{1, 2}}
		r.tools(func(s *tool.Set) {
			r.must(s.AddRaw(frames.Declaration{Name: "draw"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
				return &frames.ToolResult{
					Result: json.RawMessage(`{"n":1}`), Details: json.RawMessage(`{"secret":true}`),
					Parts: []frames.Part{{Type: "text", Text: "a dot"}, image, {Type: "resource", URI: "file:dot.svg", MediaType: "image/svg+xml", Text: "<svg/>"}},
				}, nil
			}))
			r.must(s.AddRaw(frames.Declaration{Name: "plain"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
				return &frames.ToolResult{Result: json.RawMessage(`{"n": 1}`), Details: json.RawMessage(`{"secret":true}`)}, nil
			}))
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "draw", "plain"), answer("done"))
		u := r.start(frames.JSON, "")
		u.all()
		shown := 0
		for _, f := range u.got {
			if text, _ := f.ContentJSON(); f.Type == frames.TypeToolResult && strings.Contains(string(text), `"details":{"secret":true}`) {
				shown++
			}
		}
		if shown != 2 {
			t.Errorf("details stand in %d of 2 results", shown)
		}
		seen := r.asked()[1].Messages[2:]
		want := []provider.Part{
			{Type: provider.PartText, Text: "a dot"}, {Type: provider.PartImage, MediaType: "image/png", Data: []byte{1, 2}},
			{Type: "resource", URI: "file:dot.svg", MediaType: "image/svg+xml", Text: "<svg/>"},
		}
		if diff := cmp.Diff(want, seen[0].Parts); diff != "" {
			t.Errorf("the model sees (-want +got):\n%s", diff)
		}
		if all, err := json.Marshal(seen); err != nil || strings.Contains(string(all), "secret") || seen[1].Text != `{"n":1}` {
			t.Errorf("the model sees %s, %v", all, err)
		}
	})
}

// contract: P72, P73, P78, B17, B18
// case: WS-L07
func TestRunsLimitOverTheBus(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything}, after(time.Second))
		})
		r.loop(loop.Config{})
		more := answer("", "f {}")
		r.play = script(more, more, more, more, more)
		got := r.start(frames.Msgpack, "").all()
		if n := strings.Count(strings.Join(got, "\n"), "TOOL_RESULT f {}"); n != loop3 {
			t.Errorf("%d rounds, want %d", n, loop3)
		}
		r.want(got[len(got)-3:], "TOOL_RESULT f LIMIT\nERROR LIMIT\nEND limit")
		if last := r.asked()[loop3]; len(last.Tools) != 0 {
			t.Error("the last request has tools")
		}
	})
}

// loop3 is the default of maxIterations on wb.loop.
const loop3 = 3

// contract: A21, B4, B58
// case: WS-L06
func TestAbort(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything, ExecutionMode: frames.Sequential}, after(25*time.Second))
		})
		r.loop(loop.Config{})
		r.loop(loop.Config{}) // hears the ABORT too, and is silent
		r.play = script(answer("", "f {}", "f {}", "f {}"))
		u := r.start(frames.Msgpack, "mine")
		u.until(frames.TypeMeta)
		u.until(frames.TypeMeta)
		synctest.Wait()
		if other := r.abort("me", "other"); other != "" {
			t.Errorf("an ABORT of no run is acknowledged: %s", other)
		}
		if got := r.abort("me", "mine"); got != "mine" {
			t.Errorf("acknowledged %q", got)
		}
		got := u.all()
		r.want(got[len(got)-4:], "TOOL_RESULT f CANCELLED\nTOOL_RESULT f CANCELLED\nTOOL_RESULT f CANCELLED\nEND cancelled")
		if n := len(r.asked()); n != 1 {
			t.Errorf("%d model requests", n)
		}
	})
}

// abort gives what the loop that runs it says to an ABORT; empty where none does.
func (r *rig) abort(caller, streamID string) string {
	r.t.Helper()
	f := frames.Abort(frames.WithStream(streamID))
	return r.ctl(caller, &f)
}

func (r *rig) ctl(caller string, f *frames.Frame) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	got, err := r.me.Request(ctx, r.me.Ctl(caller), f)
	if err != nil {
		return ""
	}
	id, _ := got[0].Content.Lookup("cancelling").Text()
	return id
}

func TestAbortWhileTheModelSpeaks(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		r.play = func(ctx context.Context, _ int, _ *provider.Request) ([]provider.Event, error) {
			<-time.After(time.Minute) // virtual time
			return answer("too late"), nil
		}
		u := r.start(frames.Msgpack, "mine")
		u.next()
		if got := r.abort("me", "mine"); got != "mine" {
			t.Errorf("acknowledged %q", got)
		}
		start := time.Now()
		r.want(u.all(), "META streamId\nEND cancelled")
		if took := time.Since(start); took > time.Second {
			t.Errorf("ended after %v", took)
		}
		<-time.After(2 * time.Minute) // the adapter of this test ends
	})
}

func TestCancelOfOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything}, after(25*time.Second))
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "f {}"), answer("without it, then"))
		u := r.start(frames.Msgpack, "")
		id := u.until(frames.TypeToolCall).ToolCallID
		synctest.Wait()
		f := frames.Cancel(id, "f")
		if got := r.ctl("me", &f); got != id {
			t.Errorf("acknowledged %q", got)
		}
		got := u.all()
		if last := got[len(got)-1]; last != "END completed" || !strings.Contains(strings.Join(got, "\n"), "TOOL_RESULT f CANCELLED") {
			t.Errorf("got %q", got)
		}
	})
}

func TestClientThatVanishes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ended := make(chan error, 1)
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything, TimeoutMs: new(int64)}, func(ctx context.Context, _ json.RawMessage) (any, error) {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil, context.Cause(ctx)
			})
		})
		r.loop(loop.Config{})
		r.play = script(answer("", "f {}"))
		start := frames.Start()
		data, err := frames.Encode(frames.Msgpack, append(params("model", "fake/m", "messages", goOn), &start)...)
		r.must(err)
		r.must(r.me.NATS().PublishMsg(&nats.Msg{Subject: r.me.Loop("me"), Reply: "_INBOX.me.gone", Data: data}))
		begun := time.Now()
		<-ended
		if took := time.Since(begun); took > 7*time.Second {
			t.Errorf("the tool ran %v for nobody", took)
		}
	})
}

func TestModelThatIsNotThereEndsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		r.want(r.start(frames.Msgpack, "", "model", "nosuch/m").all(), "META streamId\nERROR NOT_FOUND\nEND error")
		r.play = func(context.Context, int, *provider.Request) ([]provider.Event, error) {
			return nil, frames.NewError(frames.CodeDenied, "no key")
		}
		r.want(r.start(frames.Msgpack, "").all(), "META streamId\nERROR DENIED\nEND error")
	})
}

func TestBadRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		begin, text, deep := frames.Start(), frames.Text("hi"), frames.Start(frames.WithMeta("depth", 5))
		badID := frames.Start(frames.WithStream("a.b"))
		good := params("model", "fake/m", "messages", goOn)
		for name, c := range map[string]struct {
			fs   []*frames.Frame
			code frames.Code
			says string
		}{
			"no start":    {good, frames.CodeBadFrame, "START"},
			"text":        {append(params(), &text, &begin), frames.CodeBadFrame, "TEXT"},
			"no model":    {append(params("messages", goOn), &begin), frames.CodeValidationInput, "model"},
			"no messages": {append(params("model", "fake/m"), &begin), frames.CodeValidationInput, "messages"},
			"bad model":   {append(params("model", "m", "messages", goOn), &begin), frames.CodeValidationInput, "model"},
			"bad limit":   {append(append(params("maxIterations", -1), good...), &begin), frames.CodeValidationInput, "maxIterations"},
			"session's":   {append(append(params("maxTurns", 3), good...), &begin), frames.CodeValidationInput, "maxTurns"},
			"no value":    {append(append(params("tools", nil), good...), &begin), frames.CodeValidationInput, "tools"},
			"too deep":    {append(good[:2:2], &deep), frames.CodeLimit, "4"},
			"stream id":   {append(good[:2:2], &badID), frames.CodeBadFrame, "streamId"},
		} {
			_, err := r.me.Request(t.Context(), r.me.Loop("me"), c.fs...)
			if frames.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRunsAreBoundedForEachDepth(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{Runs: 1})
		r.play = func(context.Context, int, *provider.Request) ([]provider.Event, error) {
			<-time.After(time.Second) // virtual time
			return answer("done"), nil
		}
		first := r.start(frames.Msgpack, "a")
		first.next()
		begin, nested := frames.Start(), frames.Start(frames.WithMeta("depth", 1))
		good := params("model", "fake/m", "messages", goOn)
		if _, err := r.me.Request(t.Context(), r.me.Loop("me"), append(good[:2:2], &begin)...); frames.CodeOf(err) != frames.CodeBusy {
			t.Errorf("a second run: %v", err)
		}
		if _, err := r.me.Request(t.Context(), r.me.Loop("me"), append(good[:2:2], &nested)...); err != nil {
			t.Errorf("a nested run: %v", err)
		}
		if got := first.all(); got[len(got)-1] != "END completed" {
			t.Errorf("got %q", got)
		}
	})
}

func TestStreamIdThatRunsAlready(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.loop(loop.Config{})
		r.play = func(context.Context, int, *provider.Request) ([]provider.Event, error) {
			<-time.After(time.Second) // virtual time
			return answer("done"), nil
		}
		first := r.start(frames.Msgpack, "a")
		first.next()
		r.want(r.start(frames.Msgpack, "a").all(), "ERROR CONFLICT\nEND error")
		first.all()
		r.start(frames.Msgpack, "a").until(frames.TypeEnd) // it is free again
	})
}

func TestStopLetsRunsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything}, after(3*time.Second))
		})
		p := r.loop(loop.Config{})
		r.play = script(answer("", "f {}"), answer("done"))
		u := r.start(frames.Msgpack, "")
		u.until(frames.TypeToolCall)
		p.stop()
		if got := u.all(); got[len(got)-1] != "END completed" {
			t.Errorf("got %q", got)
		}
		if <-p.done; p.err != nil {
			t.Error(p.err)
		}
	})
}

func TestHardStopEndsRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "f", Schema: anything}, after(25*time.Second))
		})
		p := r.loop(loop.Config{})
		r.play = script(answer("", "f {}"), answer("done"))
		u := r.start(frames.Msgpack, "")
		u.until(frames.TypeToolCall)
		synctest.Wait()
		p.stop()
		synctest.Wait()
		p.kill()
		if got := u.all(); strings.Join(got[len(got)-2:], " ") != "ERROR INTERRUPTED END drained" {
			t.Errorf("got %q", got)
		}
		<-p.done
	})
}
