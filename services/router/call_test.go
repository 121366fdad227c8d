package router_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// readFile stands for a tool with a schema on both sides.
func readFile(w *world) {
	type in struct {
		Path string `json:"path"`
	}
	type out struct {
		Text string `json:"text"`
	}
	s := tool.NewSet("files")
	if err := tool.Add(s, "read_file", func(_ context.Context, i in) (out, error) {
		return out{"text of " + i.Path}, nil
	}); err != nil {
		w.t.Fatal(err)
	}
	w.serve("files", s)
}

// The line that a plain client sends by hand.
//
// contract: W13, W14, P49, P16
func TestCallInJSON(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		x := w.send(w.me, "wb.call.me.read_file", `{"type":"TOOL_CALL","content":{"arguments":{"path":"README.md"}}}`)
		f, res := x.result()
		want(t, "result", string(res.Result), `{"text":"text of README.md"}`)
		want(t, "error", res.Err, nil)
		want(t, "who ran it", res.Instance, "files")
		want(t, "attempts", res.Attempts, 1)
		want(t, "the call has an id", frames.ValidName(f.ToolCallID), true)
		want(t, "tool", f.Name, "read_file")
		want(t, "messages", len(x.raw), 1)
		if !strings.Contains(x.raw[0], `"result":{"text":"text of README.md"}`) {
			t.Errorf("answer %s", x.raw[0])
		}
	}, readFile)
}

// contract: P55, A28, G42
func TestCallInMsgpack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		call := frames.Call("read_file", []byte(`{"path":"a"}`), frames.WithCall("c-1", "read_file"))
		x := w.send(w.me, "wb.call.me.read_file", pack(t, call))
		f, res := x.result()
		want(t, "error", res.Err, nil)
		want(t, "result", string(res.Result), `{"text":"text of a"}`)
		want(t, "id", f.ToolCallID, "c-1")
		want(t, "encoding", frames.Detect([]byte(x.raw[0])), frames.Msgpack)
	}, readFile)
}

// A tool that is not written with an SDK answers with one message of JSON.
//
// contract: A2, A25, A26
func TestPlainTool(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, res := w.call("shout", `{"text":"hi"}`).result()
		want(t, "result", string(res.Result), `{"said":"HI"}`)
		want(t, "error", res.Err, nil)
	}, func(w *world) {
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
			said := strings.ToUpper(call.Content.Arguments.Text)
			_ = m.Respond([]byte(`{"type":"TOOL_RESULT","content":{"result":{"said":"` + said + `"}}}{"type":"END","content":{"reason":"completed"}}`))
		})
	})
}

// contract: W15, W16, S8, A27, P50
func TestUnknownTool(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := w.call("read_fiel", `{}`).failure(frames.CodeNotFound)
		want(t, "message", err.Message, `Tool "read_fiel" not found`)
		want(t, "for a model", err.LLMMessage, `Tool "read_fiel" not found. Available tools: read_file. Use one of them.`)
		want(t, "retryable", err.Retryable, true)
		want(t, "effect", err.Effect, frames.EffectNone)
	}, readFile)
}

// contract: W18, S10, W15
func TestArgumentsThatDoNotFit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := w.call("read_file", `{"path":7}`).failure(frames.CodeValidationInput)
		want(t, "retryable", err.Retryable, true)
		want(t, "effect", err.Effect, frames.EffectNone)
		if len(err.Issues) != 1 || err.Issues[0].Path != "/path" || err.Issues[0].Expected != "string" || err.Issues[0].Got == "" {
			t.Errorf("issues %+v", err.Issues)
		}
		if !strings.Contains(err.LLMMessage, "\n  - /path: ") {
			t.Errorf("for a model: %s", err.LLMMessage)
		}
		for _, args := range []string{`[]`, `"text"`, `7`, `{"path":"a","more":1}`} {
			w.call("read_file", args).failure(frames.CodeValidationInput)
		}
		call := frames.Call("read_file", []byte(`{"path":`))
		err = w.send(w.me, "wb.call.me.read_file", pack(t, call)).failure(frames.CodeValidationInput)
		if len(err.Issues) == 0 {
			t.Errorf("arguments that do not parse: %+v", err)
		}
	}, readFile)
}

func TestUnreadableCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		one := pack(t, frames.Call("read_file", []byte(`{"path":"a"}`)))
		for what, data := range map[string]string{
			"empty":             "",
			"broken JSON":       `{"type":"TOOL_CALL","content":`,
			"no frame":          "\xc1",
			"gigabytes":         "\xdf\xff\xff\xff\xff\x00",
			"deep":              strings.Repeat("\x91", 200),
			"a tail":            one + "x",
			"unknown type":      `{"type":"NEW"}`,
			"another type":      `{"type":"TEXT","content":{"text":"hi"}}`,
			"two calls":         one + one,
			"another name":      `{"type":"TOOL_CALL","name":"write_file","content":{"arguments":{}}}`,
			"a bad id":          `{"type":"TOOL_CALL","toolCallId":"a.b","content":{"arguments":{}}}`,
			"streamed, whole":   `{"type":"TOOL_CALL","metadata":{"streaming":true},"content":{"arguments":{"path":"a"}}}`,
			"a bad stream":      `{"type":"TOOL_CALL","streamId":"a b","metadata":{"streaming":true}}`,
			"another protocol":  `{"v":9,"type":"TOOL_CALL"}`,
			"keys of one name":  `{"type":"TOOL_CALL","type":"TOOL_CALL"}`,
			"no text":           pack(t, frames.NewFrame(frames.TypeToolCall, map[string]any{"argumentsJson": 7}))[:10],
			"frames of nothing": "{}",
		} {
			err := w.send(w.me, "wb.call.me.read_file", data).failure(frames.CodeBadFrame)
			if err.Message == "" || err.Retryable || err.Effect != frames.EffectNone {
				t.Errorf("%s: %+v", what, err)
			}
		}
		err := w.send(w.me, "wb.call.me.read_file", `{"type":"NEW"}`).failure(frames.CodeBadFrame)
		want(t, "of an unknown type", err.Message, "Unknown frame type: NEW")
		err = w.send(w.me, "wb.call.me.read_file", `{"type":"TEXT"}`).failure(frames.CodeBadFrame)
		want(t, "of a type that is not for calls", err.Message, "Unknown frame type: TEXT")
	}, readFile)
}

func TestUnknownFrameBesideACall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, res := w.send(w.me, "wb.call.me.read_file",
			`{"type":"NEW"}{"type":"TOOL_CALL","unknown":1,"content":{"arguments":{"path":"a"}}}{"type":"META"}`).result()
		want(t, "error", res.Err, nil)
	}, readFile)
}

func TestCallThatIsTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		limit := frames.InlineLimit(w.me.MaxPayload())
		args := `{"path":"` + strings.Repeat("x", limit) + `"}`
		err := w.send(w.me, "wb.call.me.read_file", pack(t, frames.Call("read_file", []byte(args)))).failure(frames.CodeTooLarge)
		if !strings.Contains(err.Message, "the limit is 4194304") || err.Effect != frames.EffectNone {
			t.Errorf("%+v", err)
		}
	}, readFile)
}

// What a service would write where the caller may not is dropped.
func TestReplySubjectOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, reply := range []string{"wb.in.me.s1", "_INBOX.you.x", "_INBOX.me", ""} {
			m := &nats.Msg{Subject: "wb.call.me.read_file", Reply: reply, Data: []byte(`{"type":"TOOL_CALL"}`)}
			if err := w.me.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		w.flush(w.me)
		w.call("read_file", `{"path":"a"}`).result()                         // is behind them in the queue
		want(t, "logged", w.log.take(), []string{"refused a reply subject"}) // a line a second at most
	}, readFile)
}

// What nobody can confirm is denied, but only what could run otherwise.
//
// contract: S14
func TestConfirmationIsDenied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.call("pays", `{}`).failure(frames.CodeNotFound)
		w.call("pay", `{"sum":1}`).failure(frames.CodeValidationInput)
		err := w.call("pay", `{}`).failure(frames.CodeDenied)
		want(t, "reason", err.Reason, "approval_required")
		want(t, "retryable", err.Retryable, false)
	}, func(w *world) {
		d := frames.Declaration{Name: "pay", Schema: []byte(`{"type":"object","additionalProperties":false}`), Annotations: frames.Annotations{RequiresConfirmation: true}}
		w.serve("pay", set(w.t, d, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			w.t.Error("it ran")
			return nil, nil
		}))
	})
}

// contract: W19, S11
func TestResultThatDoesNotFitItsSchema(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, name := range []string{"sdk", "plain"} {
			err := w.call(name, `{}`).failure(frames.CodeValidationOutput)
			want(t, name+": retryable", err.Retryable, false)
			want(t, name+": effect", err.Effect, frames.EffectDone)
			if !strings.Contains(err.LLMMessage, "at fault") {
				t.Errorf("%s: for a model: %s", name, err.LLMMessage)
			}
		}
	}, func(w *world) {
		out := `{"type":"object","required":["n"]}`
		w.serve("sdk", set(w.t, frames.Declaration{Name: "sdk", OutputSchema: []byte(out)}, gives(`{}`)))
		w.plain("plain", `{"name":"plain","outputSchema":`+out+`}`, func(m *nats.Msg) {
			_ = m.Respond([]byte(`{"type":"TOOL_RESULT","content":{"result":{}}}{"type":"END"}`))
		})
	})
}

// A result may be as long as the limit says; in the caller's encoding it may be
// longer than a message.
func TestResultThatIsTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, name := range []string{"inline", "encoded"} {
			err := w.call(name, `{}`).failure(frames.CodeTooLarge)
			want(t, name+": effect", err.Effect, frames.EffectDone)
		}
		_, res := w.send(w.me, "wb.call.me.encoded", pack(t, frames.Call("encoded", nil))).result()
		want(t, "in msgpack", res.Err, nil)
	}, func(w *world) {
		limit := frames.InlineLimit(w.me.MaxPayload())
		w.plain("inline", `{"name":"inline"}`, func(m *nats.Msg) {
			long := `"` + strings.Repeat("x", limit) + `"`
			_ = m.Respond([]byte(pack(t, frames.Result(&frames.ToolResult{Result: []byte(long)}), frames.End("completed"))))
		})
		parts := []frames.Part{{Type: "text", Text: strings.Repeat("\x01", limit-100)}} // six bytes each in JSON
		w.serve("encoded", set(w.t, frames.Declaration{Name: "encoded"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			return &frames.ToolResult{Parts: parts}, nil
		}))
	})
}

// contract: W20, S7, S12, A10, W15
func TestTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		err := w.call("slow", `{}`, `"toolCallId":"c-1"`).failure(frames.CodeTimeout)
		want(t, "answered after", time.Since(start), 700*time.Millisecond)
		want(t, "message", err.Message, "Tool slow timed out after 700ms")
		want(t, "retry after", err.RetryAfter, 700*time.Millisecond)
		want(t, "retryable", err.Retryable, false)
		want(t, "effect", err.Effect, frames.EffectUnknown)
		want(t, "the tool was told", <-w.ended, "c-1")

		start = time.Now()
		err = w.call("slow", `{}`, `"metadata":{"timeoutMs":100}`).failure(frames.CodeTimeout)
		want(t, "a shorter one is answered after", time.Since(start), 100*time.Millisecond)
		want(t, "message", err.Message, "Tool slow timed out after 100ms")
		<-w.ended
		start = time.Now()
		w.call("slow", `{}`, `"metadata":{"timeoutMs":100000}`).failure(frames.CodeTimeout)
		want(t, "a longer one is answered after", time.Since(start), 700*time.Millisecond)
		<-w.ended
		err = w.call("again", `{}`).failure(frames.CodeTimeout)
		want(t, "retryable where replay is safe", err.Retryable, true)
		<-w.ended
	}, func(w *world) {
		ms := int64(700)
		s := set(w.t, frames.Declaration{Name: "slow", TimeoutMs: &ms}, untilStopped(w.ended))
		add(w.t, s, frames.Declaration{Name: "again", TimeoutMs: &ms, Replay: frames.ReplaySafe}, untilStopped(w.ended))
		w.serve("a", s)
	})
}

// contract: A3, A4, W6
func TestDefaultTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		err := w.call("mute", `{}`).failure(frames.CodeTimeout)
		want(t, "answered after", time.Since(start), 30*time.Second)
		want(t, "message", err.Message, "Tool mute timed out after 30000ms")
		want(t, "retry after", err.RetryAfter, 5*time.Second)
	}, func(w *world) { w.plain("mute", `{"name":"mute"}`, func(*nats.Msg) {}) })
}

// contract: W21, P51
func TestToolThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := w.call("fails", `{}`).failure(frames.CodeExecution)
		want(t, "message", err.Message, "no such row")
		want(t, "reason", err.Reason, "missing")
		want(t, "retryable", err.Retryable, true)
		want(t, "effect", err.Effect, frames.EffectDone)
		err = w.call("panics", `{}`).failure(frames.CodeExecution)
		if strings.Contains(err.LLMMessage, "goroutine") {
			t.Errorf("for a model: %s", err.LLMMessage)
		}
	}, func(w *world) {
		s := set(w.t, frames.Declaration{Name: "fails"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) {
			return nil, frames.NewError(frames.CodeExecution, "no such row").With(func(e *frames.Error) {
				e.Reason, e.Retryable, e.Effect = "missing", true, frames.EffectDone
			})
		})
		add(w.t, s, frames.Declaration{Name: "panics"}, func(context.Context, *tool.Call) (*frames.ToolResult, error) { panic("boom") })
		w.serve("a", s)
	})
}

// contract: A7, A8, A9, A11, A33
func TestAnswersOfAPlainTool(t *testing.T) {
	const end = `{"type":"END","content":{"reason":"completed"}}`
	result := func(content string) string { return `{"type":"TOOL_RESULT","content":` + content + `}` }
	answers := map[string]struct{ answer, result, code string }{
		"falsy":       {result(`{"result":0}`) + end, `0`, ""},
		"null":        {result(`{"result":null}`) + end, `null`, ""},
		"none":        {result(`{}`) + end, `{}`, ""},
		"twice":       {result(`{"result":1}`) + result(`{"result":2}`) + end, `1`, ""},
		"behind_end":  {result(`{"result":1}`) + end + result(`{"result":2}`) + end, `1`, ""},
		"own_success": {result(`{"result":{"success":false,"error":"x"}}`) + end, `{"success":false,"error":"x"}`, ""},
		"failed":      {result(`{"isError":true,"error":{"code":"EXECUTION","message":"no"},"result":{"exitCode":1}}`) + end, `{"exitCode":1}`, "EXECUTION"},
		"error":       {`{"type":"ERROR","content":{"code":"NOT_FOUND","message":"no"}}` + end, ``, "NOT_FOUND"},
		"only_end":    {end, ``, "NO_RESULT"},
		"garbage":     {"\xc1", ``, "NO_RESULT"},
		"unknown":     {`{"type":"NEW"}` + result(`{"result":1}`) + end, `1`, ""},
		"gap":         {strings.Replace(result(`{"result":1}`), "{", `{"seq":2,`, 1) + end, ``, "NO_RESULT"},
	}
	inBubble(t, func(t *testing.T, w *world) {
		for name, a := range answers {
			_, res := w.call(name, `{}`).result()
			code := ""
			if res.Err != nil {
				code = string(res.Err.Code)
			}
			want(t, name+": code", code, a.code)
			want(t, name+": result", string(res.Result), a.result)
		}
	}, func(w *world) {
		for name, a := range answers {
			w.plain(name, `{"name":"`+name+`"}`, func(m *nats.Msg) { _ = m.Respond([]byte(a.answer)) })
		}
	})
}

func TestSameIdTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		first := w.call("slow", `{}`, `"toolCallId":"c-1"`)
		<-time.After(time.Second)
		w.call("slow", `{}`, `"toolCallId":"c-1"`).failure(frames.CodeConflict)
		you := w.mesh.Connect(t, "you")
		other := w.send(you, "wb.call.you.echo", `{"type":"TOOL_CALL","toolCallId":"c-1"}`) // an id is a caller's own
		_, res := other.result()
		want(t, "of another caller", res.Err, nil)
		want(t, "cancelled", len(w.send(w.me, "wb.ctl.me", `{"type":"CANCEL","toolCallId":"c-1"}`).read()), 2)
		first.failure(frames.CodeCancelled)
		<-w.ended
	}, func(w *world) {
		s := set(w.t, frames.Declaration{Name: "slow"}, untilStopped(w.ended))
		add(w.t, s, frames.Declaration{Name: "echo"}, gives(`{}`))
		w.serve("a", s)
	})
}
