package loop_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/loop"
)

// speaks serves the provider other, which answers its first request with the
// frames and each later one with a text.
func (r *rig) speaks(answer ...frames.Frame) {
	r.t.Helper()
	var asked atomic.Int32
	conn := r.connect("llm")
	_, err := conn.Handle(r.t.Context(), conn.LLM("other"), bus.QueueLLM, func(_ context.Context, q *bus.Request) {
		if asked.Add(1) > 1 {
			_ = q.End(frames.EndCompleted, frames.Text("done"), stopped("stop"))
			return
		}
		for _, f := range answer {
			_ = q.Send(f)
		}
		_ = q.End(frames.EndCompleted)
	})
	r.must(err)
	r.must(conn.Flush(r.t.Context()))
}

func stopped(reason string) frames.Frame { return frames.Meta(map[string]any{"stopReason": reason}) }

func piece(id, text string) frames.Frame { return frames.ArgumentPiece(id, 0, []byte(text)) }

func repairsOf(v frames.Raw) (out []string) {
	for item := range v.Items() {
		name, _ := item.Text()
		out = append(out, name)
	}
	return out
}

// An adapter may send calls in pieces that interleave, beside whole ones; they run
// in the model's order with the arguments that the text means.
//
// contract: P57, P61, P63
func TestModelThatStreamsItsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "fast", ExecutionMode: frames.Sequential, Schema: json.RawMessage(`{"type":"object","properties":{"l":{"type":"array"}}}`)},
				func(_ context.Context, args json.RawMessage) (any, error) { return args, nil })
		})
		r.loop(loop.Config{})
		r.speaks(
			frames.OpenCall("fast", "a"), piece("a", `{"t":"`+"\xc3"), frames.OpenCall("fast", "b"), piece("b", "```json\n{\"l\":"),
			frames.Call("fast", []byte(`{"whole":true}`)), piece("a", "\xa4"), piece("b", "\"[1]\",}\n"), frames.CloseCall("c", 0, frames.WithMeta("toolComplete", false)),
			piece("b", "```"), frames.CloseCall("b", 0), piece("a", `"}`), frames.CloseCall("a", 0), stopped("tool-calls"),
		)
		u := r.start(frames.Msgpack, "", "model", "other/m")
		r.want(u.all(), `
			META streamId
			TOOL_CALL fast
			TOOL_CALL fast
			TOOL_CALL fast
			META usage stopReason
			TOOL_RESULT fast {"t":"ä"}
			META fast repairs
			TOOL_RESULT fast {"l":[1]}
			TOOL_RESULT fast {"whole":true}
			TEXT done
			META usage stopReason
			END completed`)
		want := []string{"code_fence", "trailing_comma", "nested_json_string"}
		for _, f := range u.got {
			got := repairsOf(f.Metadata.Get("repairs"))
			if f.Type == frames.TypeMeta {
				got = repairsOf(f.Content.Lookup("repairs"))
			}
			if got != nil && !slices.Equal(got, want) {
				t.Errorf("%s: repairs %v", f.Type, got)
			}
		}
	})
}

// The text of a call that is not whole never runs, and its error goes back to the
// model; the other calls of the turn run, unless the whole turn was cut off.
//
// contract: B15, P58
// case: WS-R01, WS-R02
func TestModelWhoseCallsAreCutOff(t *testing.T) {
	whole := []frames.Frame{frames.OpenCall("fast", "a"), piece("a", `{}`), frames.CloseCall("a", 0)}
	cut := []frames.Frame{frames.OpenCall("fast", "b"), piece("b", `{"command":"rm -rf build`)}
	closed := append(slices.Clone(cut), frames.CloseCall("b", 0))
	for name, c := range map[string]struct {
		calls        []frames.Frame
		stop, reason string
		runs         int32
	}{
		"length":              {slices.Concat(whole, cut), "length", "arguments_truncated", 0},
		"by luck":             {whole, "length", "arguments_truncated", 0},
		"never closed":        {slices.Concat(whole, cut), "tool-calls", "arguments_incomplete", 1},
		"closed all the same": {slices.Concat(whole, closed), "stop", "arguments_incomplete", 1},
		"whole, never closed": {whole[:2], "tool-calls", "arguments_incomplete", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var runs atomic.Int32
				r.tools(func(s *tool.Set) {
					r.add(s, frames.Declaration{Name: "fast", Schema: anything}, func(context.Context, json.RawMessage) (any, error) {
						return runs.Add(1), nil
					})
				})
				r.loop(loop.Config{})
				r.speaks(append(slices.Clone(c.calls), stopped(c.stop))...)
				u := r.start(frames.Msgpack, "", "model", "other/m")
				u.all()
				told := ""
				for _, f := range u.got {
					if res, err := f.Result(); err == nil && f.Type == frames.TypeToolResult && res.Err != nil {
						told = res.Err.Reason
					}
				}
				if runs.Load() != c.runs || told != c.reason {
					t.Errorf("ran %d times, told %q", runs.Load(), told)
				}
			})
		})
	}
}

// The repairs of a session's call stand in its durable result.
//
// contract: P61
func TestRepairsOfASession(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.tools(func(s *tool.Set) {
			r.add(s, frames.Declaration{Name: "fast", Schema: anything}, func(_ context.Context, args json.RawMessage) (any, error) { return args, nil })
		})
		r.loop(loop.Config{})
		r.play = script(answer("", `fast {"n":[1,],}`), answer("done"))
		h := r.session("s1")
		h.say("go")
		h.await("META idle 1", 1)
		h.settled()
		found := false
		for _, f := range h.durable() {
			if f.Type == frames.TypeToolResult {
				found = slices.Equal(repairsOf(f.Metadata.Get("repairs")), []string{"trailing_comma"})
			}
		}
		if !found {
			t.Errorf("no repairs in %v", h.durable())
		}
		if m := r.asked()[1].Messages; m[len(m)-1].Role != provider.RoleTool || m[len(m)-2].Calls[0].Arguments != `{"n":[1]}` {
			t.Errorf("the model reads %+v", m)
		}
	})
}
