package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/router"
)

// openedCall is a call whose arguments a test sends by hand.
type openedCall struct {
	w    *world
	nc   *nats.Conn
	id   string
	sink string
	seq  int
}

// open opens a call as me; more are fields of the frame.
func (w *world) open(name, id string, more ...string) *openedCall {
	w.t.Helper()
	return w.openAs(w.me, "me", name, id, more...)
}

func (w *world) openAs(nc *nats.Conn, who, name, id string, more ...string) *openedCall {
	w.t.Helper()
	fields := append([]string{`"type":"TOOL_CALL"`, `"toolCallId":"` + id + `"`, `"metadata":{"streaming":true}`}, more...)
	all := w.send(nc, "wb.call."+who+"."+name, "{"+strings.Join(fields, ",")+"}").read()
	if len(all) != 2 || all[0].Type != frames.TypeMeta || all[0].ToolCallID != id {
		w.t.Fatalf("opened with %v", all)
	}
	sink, _ := all[0].Content.Lookup("sink").Text()
	if !strings.HasPrefix(sink, "wb.sink."+who+".") {
		w.t.Fatalf("the sink is %q", sink)
	}
	return &openedCall{w: w, nc: nc, id: id, sink: sink}
}

// piece publishes the next piece.
func (o *openedCall) piece(text string) {
	o.w.t.Helper()
	o.seq++
	f := frames.ArgumentPiece(o.id, uint64(o.seq), []byte(text))
	if err := o.nc.Publish(o.sink, []byte(pack(o.w.t, f))); err != nil {
		o.w.t.Fatal(err)
	}
}

// closed sends the closing META, in JSON.
func (o *openedCall) closed(more ...string) *exchange {
	o.w.t.Helper()
	fields := append([]string{`"type":"META"`, `"toolCallId":"` + o.id + `"`, `"metadata":{"toolComplete":true}`}, more...)
	return o.w.send(o.nc, o.sink, "{"+strings.Join(fields, ",")+"}")
}

// echo serves a tool that gives its arguments back, as the bytes that they were.
func echo(w *world, name, schema string) {
	d := frames.Declaration{Name: name, Schema: []byte(schema)}
	w.serve(name, set(w.t, d, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
		return &frames.ToolResult{Result: c.Arguments}, nil
	}))
}

func anything(w *world) { echo(w, "echo", `{"type":"object"}`) }

// contract: P53, P55, P56, P57, P58
func TestStreamedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open("echo", "c-1")
		for _, piece := range []string{`{"a`, ``, `":1.`, `0}`} {
			c.piece(piece)
		}
		f, res := c.closed().result()
		want(t, "error", res.Err, nil)
		want(t, "result", string(res.Result), `{"a":1.0}`)
		want(t, "id and tool", []string{f.ToolCallID, f.Name}, []string{"c-1", "echo"})
		want(t, "repairs", f.Metadata.Get("repairs"), nil)

		err := c.closed().failure(frames.CodeConflict) // it is forgotten
		want(t, "reason", err.Reason, "not_open")
		_, res = w.call("echo", `{"whole":1}`, `"toolCallId":"c-1"`).result()
		want(t, "the id is free", string(res.Result), `{"whole":1}`)
		w.router.holdsNothing()
	}, anything)
}

// The call's id may stand in the metadata of each of its frames.
func TestStreamedCallNamedInMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all := w.send(w.me, "wb.call.me.echo", `{"type":"TOOL_CALL","metadata":{"streaming":true,"toolCallId":"c-1"}}`).read()
		want(t, "opened", all[0].ToolCallID, "c-1")
		sink, _ := all[0].Content.Lookup("sink").Text()
		w.send(w.me, sink, `{"type":"TEXT","seq":1,"metadata":{"toolArgStream":true,"toolCallId":"c-1"},"content":{"text":"{}"}}`).read()
		f, res := w.send(w.me, sink, `{"type":"META","metadata":{"toolComplete":true,"toolCallId":"c-1"}}`).result()
		want(t, "result", string(res.Result), `{}`)
		want(t, "id", f.ToolCallID, "c-1")
		w.send(w.me, "wb.call.me.echo", `{"type":"TOOL_CALL","metadata":{"streaming":true,"toolCallId":"c 1"}}`).failure(frames.CodeBadFrame)
	}, anything)
}

// Pieces of several calls interleave, of one stream and of several, in one message
// and in many.
//
// contract: P62, P63
func TestStreamedCallsInterleave(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		names := []string{"echo", "shout", "echo"}
		var calls []*openedCall
		for i, name := range names {
			calls = append(calls, w.open(name, fmt.Sprint("c-", i), fmt.Sprintf(`"streamId":"s-%d"`, i/2)))
		}
		for _, piece := range []string{`{`, `"text":`, `"N"`, `}`} {
			for i, c := range slices.Backward(calls) {
				c.piece(strings.ReplaceAll(piece, "N", fmt.Sprint(i)))
			}
		}
		more := calls[1]
		closing := []frames.Frame{frames.ArgumentPiece(more.id, 5, []byte(" ")), frames.ArgumentPiece(more.id, 5, []byte("x")), frames.CloseCall(more.id, 6)}
		_, res := w.send(w.me, more.sink, pack(t, closing...)).result()
		want(t, "of a plain tool", string(res.Result), `{"said":"1"}`)
		for i, c := range calls {
			if i == 1 {
				continue
			}
			_, res := c.closed().result()
			want(t, c.id, string(res.Result), fmt.Sprintf(`{"text":"%d"}`, i))
		}
	}, anything, func(w *world) {
		w.plain("shout", `{"name":"shout","encodings":["json"]}`, func(m *nats.Msg) {
			var call struct {
				Content struct {
					Arguments struct {
						Text string `json:"text"`
					} `json:"arguments"`
				} `json:"content"`
			}
			if err := json.Unmarshal(m.Data, &call); err != nil {
				t.Errorf("call %q: %v", m.Data, err)
			}
			_ = m.Respond([]byte(`{"type":"TOOL_RESULT","content":{"result":{"said":"` + call.Content.Arguments.Text + `"}}}{"type":"END"}`))
		})
	})
}

// A streamed call that cannot run has its error as a whole one has, and is
// forgotten.
//
// contract: P58, P60, B15
func TestStreamedCallsThatCannotRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			name   string
			pieces []string
			code   frames.Code
			says   string
		}{
			{"nosuch", []string{`{}`}, frames.CodeNotFound, "not found"},
			{"read_file", []string{`{"path"`, `:7}`}, frames.CodeValidationInput, "/path"},
			{"read_file", []string{`{"path":`, ` oops}`}, frames.CodeValidationInput, "at byte 9"},
			{"read_file", []string{`[]`}, frames.CodeValidationInput, "an array"},
			{"fails", nil, frames.CodeExecution, "no luck"},
		} {
			c := w.open(tt.name, "c-1")
			for _, piece := range tt.pieces {
				c.piece(piece)
			}
			err := c.closed().failure(tt.code)
			if !strings.Contains(err.Message, tt.says) {
				t.Errorf("%s %v: %s", tt.name, tt.pieces, err.Message)
			}
			c.closed().failure(frames.CodeConflict)
		}
		w.router.holdsNothing()
	}, readFile, func(w *world) {
		w.serve("fails", set(w.t, frames.Declaration{Name: "fails"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			return nil, frames.NewError(frames.CodeExecution, "no luck")
		}))
	})
}

// Who is asked for a piece answers it; who is not tells at the close.
//
// contract: P57
func TestPiecesOfAStreamedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		say := func(c *openedCall, seq int, text string) *exchange {
			return w.send(w.me, c.sink, fmt.Sprintf(
				`{"type":"TEXT","toolCallId":%q,"seq":%d,"metadata":{"toolArgStream":true},"content":{"text":%q}}`, c.id, seq, text))
		}
		c := w.open("echo", "c-1")
		for seq, text := range []string{`{"a":1`, `}`} {
			all := say(c, seq+1, text).read()
			n, _ := all[0].Content.Lookup("received").Int64()
			want(t, "acknowledged", n, int64(seq+1))
		}
		say(c, 1, "again").read()
		_, res := c.closed(`"seq":3`).result()
		want(t, "result", string(res.Result), `{"a":1}`)

		c = w.open("echo", "c-2")
		err := say(c, 2, "{}").failure(frames.CodeBadFrame)
		want(t, "reason", err.Reason, "arguments_gap")
		c.closed().failure(frames.CodeConflict)

		c, other := w.open("echo", "c-2"), w.open("echo", "c-5")
		both := pack(t, frames.ArgumentPiece("c-2", 7, []byte("{")), frames.ArgumentPiece("c-5", 1, []byte("{}")))
		w.send(w.me, c.sink, both).failure(frames.CodeBadFrame)
		_, res = other.closed().result() // what is wrong with one call is not the other's
		want(t, "of the other", string(res.Result), `{}`)

		c = w.open("echo", "c-3")
		c.piece("{")
		c.seq++ // one is lost
		c.piece("}")
		c.piece("more")
		err = c.closed().failure(frames.CodeBadFrame)
		want(t, "reason", err.Reason, "arguments_gap")
		c.closed().failure(frames.CodeConflict)

		c = w.open("echo", "c-4")
		c.piece("{}")
		err = c.closed(`"seq":3`).failure(frames.CodeBadFrame) // the last is lost
		want(t, "reason", err.Reason, "arguments_gap")
	}, anything)
}

// contract: B15
func TestStreamedCallThatIsTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		limit := frames.InlineLimit(w.me.MaxPayload())
		c := w.open("echo", "c-1")
		half := strings.Repeat(" ", limit/2)
		c.piece(half)
		c.piece(half)
		c.piece("{}")
		err := c.closed().failure(frames.CodeTooLarge)
		if !strings.Contains(err.Message, fmt.Sprint(limit)) || err.Effect != frames.EffectNone {
			t.Errorf("%+v", err)
		}
		c.closed().failure(frames.CodeConflict)
	}, anything)
}

func TestTooManyStreamedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		open := func(i int) *exchange {
			return w.send(w.me, "wb.call.me.echo", fmt.Sprintf(`{"type":"TOOL_CALL","toolCallId":"c-%d","metadata":{"streaming":true}}`, i))
		}
		for i := range 256 {
			open(i).read()
		}
		err := open(256).failure(frames.CodeBusy)
		if err.Reason != "busy" || err.RetryAfter == 0 || err.Effect != frames.EffectNone {
			t.Errorf("%+v", err)
		}
		you := w.mesh.Connect(t, "you")
		other := w.openAs(you, "you", "echo", "c-1") // has room of its own
		other.piece("{}")
		other.closed().result()
	}, anything)
}

// A client that vanishes leaves nothing behind, whatever it had sent.
//
// contract: P56
func TestStreamedCallOfAClientThatVanishes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open("echo", "c-1")
		c.piece(`{"a":`)
		<-time.After(9 * time.Minute)
		w.call("echo", `{}`, `"toolCallId":"c-1"`).failure(frames.CodeConflict) // it is open
		<-time.After(time.Minute + 10*time.Second)
		_, res := w.call("echo", `{}`, `"toolCallId":"c-1"`).result()
		want(t, "the id is free", res.Err, nil)
		err := c.closed().failure(frames.CodeConflict)
		want(t, "reason", err.Reason, "not_open")
		w.router.holdsNothing()
	}, anything)
}

// contract: P56
func TestDeadlineOfAStreamedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		anything(w)
		w.router = w.route(router.Config{StreamLimit: 3 * time.Second})
		c := w.open("echo", "c-1")
		c.piece("{}")
		<-time.After(3 * time.Second) // before the next look for calls that are late
		err := c.closed().failure(frames.CodeTimeout)
		want(t, "reason", err.Reason, "arguments_timeout")
		want(t, "effect", err.Effect, frames.EffectNone)
	})
}

// A call is its caller's: nobody else writes to it, ends it, or learns of it.
//
// contract: P59
func TestStreamedCallOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		you := w.mesh.Connect(t, "you")
		mine := w.open("echo", "c-1", `"streamId":"s"`)
		mine.piece(`{"a":`)
		theirs := &openedCall{w: w, nc: you, id: "c-1", sink: strings.Replace(mine.sink, ".me.", ".you.", 1)}
		theirs.piece(`2}`)
		theirs.closed().failure(frames.CodeConflict)
		want(t, "END", len(w.send(you, theirs.sink, `{"type":"END","streamId":"s"}`).read()), 1)
		w.send(you, theirs.sink, `{"type":"META","streamId":"s","metadata":{"stopReason":"length"}}`).read()
		same := w.openAs(you, "you", "echo", "c-1") // an id is a caller's own
		same.piece(`{"b":2}`)
		mine.piece(`1}`)
		_, res := mine.closed().result()
		want(t, "mine", string(res.Result), `{"a":1}`)
		_, res = same.closed().result()
		want(t, "theirs", string(res.Result), `{"b":2}`)
	}, anything)
}

// contract: P59, F5
func TestWhatMayNotBeSentToASink(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open("echo", "c-1")
		const piece = `{"type":"TEXT","toolCallId":"c-1","metadata":{"toolArgStream":true},"content":{"text":"x"}}`
		const closing = `{"type":"META","toolCallId":"c-1","metadata":{"toolComplete":true}}`
		for what, data := range map[string]string{
			"META of a state":      `{"type":"META","toolCallId":"c-1","metadata":{"durability":{"restoreState":{"pendingToolCalls":{}}}}}`,
			"empty META":           `{"type":"META"}`,
			"META beside a piece":  piece + `{"type":"META","content":{"usage":{}}}`,
			"no META that is true": `{"type":"META","toolCallId":"c-1","metadata":{"toolComplete":"yes"}}`,
			"plain TEXT":           `{"type":"TEXT","toolCallId":"c-1","content":{"text":"x"}}`,
			"a piece of no call":   `{"type":"TEXT","metadata":{"toolArgStream":true},"content":{"text":"x"}}`,
			"a piece without text": `{"type":"TEXT","toolCallId":"c-1","metadata":{"toolArgStream":true}}`,
			"a close of no call":   `{"type":"META","metadata":{"toolComplete":true}}`,
			"a bad id":             `{"type":"META","toolCallId":"a b","metadata":{"toolComplete":true}}`,
			"two closes":           closing + closing,
			"a piece behind":       closing + piece,
			"another type":         `{"type":"TOOL_CALL","toolCallId":"c-1"}`,
			"unknown type":         `{"type":"NEW"}`,
			"unreadable":           "\xc1",
		} {
			err := w.send(w.me, c.sink, data).failure(frames.CodeBadFrame)
			if err.Message == "" {
				t.Errorf("%s: %+v", what, err)
			}
		}
		err := w.send(w.me, c.sink, `{"type":"START"}`).failure(frames.CodeBadFrame)
		want(t, "of another type", err.Message, "Unknown frame type: START")
		c.piece(`{"untouched":true}`)
		_, res := c.closed().result()
		want(t, "nothing of it was acted on", string(res.Result), `{"untouched":true}`)
	}, anything)
}

// contract: B15
func TestEndWithOpenCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, other := w.open("echo", "a", `"streamId":"s"`), w.open("echo", "b", `"streamId":"s"`), w.open("echo", "c")
		a.piece(`{"a":1}`)
		b.piece(`{`)
		w.send(w.me, a.sink, `{"type":"END"}`).failure(frames.CodeBadFrame) // of which stream?
		all := w.send(w.me, a.sink, `{"type":"END","streamId":"s"}`).read()
		if len(all) != 3 || all[2].Reason() != frames.EndError {
			t.Fatalf("got %v", all)
		}
		for i, id := range []string{"a", "b"} {
			res, err := all[i].Result()
			if err != nil || all[i].ToolCallID != id || res.Err == nil || res.Err.Code != frames.CodeValidationInput || res.Err.Reason != "arguments_incomplete" {
				t.Errorf("%s: %+v, %v", id, res, err)
			}
		}
		a.closed().failure(frames.CodeConflict)
		other.piece("{}")
		all = w.send(w.me, other.sink, `{"type":"END"}`).read() // the only one
		want(t, "frames", len(all), 2)
		all = w.send(w.me, other.sink, `{"type":"END","streamId":"s"}`).read() // nothing is open
		want(t, "frames", len(all), 1)
	}, anything)
}

// contract: A21
func TestCancelWhileArgumentsCome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open("echo", "c-1")
		c.piece(`{}`)
		acks := w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-1"}`).read()
		want(t, "acknowledged", len(acks), 2)
		c.piece(` `)
		err := c.closed().failure(frames.CodeCancelled)
		want(t, "effect", err.Effect, frames.EffectNone)
		want(t, "for a model", err.LLMMessage, "Tool echo was cancelled. It did not run.")
	}, anything)
}

// A closing message that asks for no answer runs nothing: nobody would hear the
// result.
func TestCloseWithoutAReply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open("echo", "c-1")
		c.piece(`{}`)
		if err := w.me.Publish(c.sink, []byte(pack(t, frames.CloseCall("c-1", 2)))); err != nil {
			t.Fatal(err)
		}
		c.closed().failure(frames.CodeConflict)
		want(t, "logged", len(w.log.take()), 1)
	}, anything)
}

// While it runs, a streamed call is like any other: progress, CANCEL, drain.
func TestStreamedCallRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open("slow", "c-1")
		x := c.closed()
		synctest.Wait() // until it runs
		w.call("slow", `{}`, `"toolCallId":"c-1"`).failure(frames.CodeConflict)
		<-time.After(6 * time.Second)
		want(t, "it ticks", x.next()[0].Type, frames.TypeTick)
		w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-1"}`).read()
		x.failure(frames.CodeCancelled)
		<-w.ended
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "slow"}, untilStopped(w.ended)))
	})
}

// A router that stops takes no more pieces: who closes the call sees it at once.
//
// contract: P53
func TestRouterGoesWhileArgumentsCome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open("echo", "c-1")
		c.piece(`{}`)
		w.router.holdsNothing()
		x := c.closed()
		m := <-x.got
		want(t, "status", m.Header.Get("Status"), "503")
	}, anything)
}
