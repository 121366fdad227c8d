package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/openai"
)

func TestTextAndThinking(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		pieces         []string
		text, thinking string
	}{
		{"text", data(delta(`{"role":"","content":""}`), delta(`{"content":"Hel"}`), delta(`{"content":"lo"}`), finish("stop")), "Hello", ""},
		{"reasoning_content", data(delta(`{"reasoning_content":"a"}`), delta(`{"reasoning_content":"b","content":null}`), delta(`{"content":"c"}`)), "c", "ab"},
		{"reasoning", data(delta(`{"reasoning":"a"}`), delta(`{"content":"c"}`)), "c", "a"},
		{"both reasonings are one", data(delta(`{"reasoning":"a","reasoning_content":"a"}`)), "", "a"},
		{"parts", data(delta(`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`)), "ab", ""},
		{"parts with thinking", data(delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]}`)), "a", "hm"},
		{"refusal", data(delta(`{"refusal":"no"}`)), "no", ""},
		{"rune cut between events", []string{"data: " + delta("{\"content\":\"\xc3\"}") + "\n\n", "data: " + delta("{\"content\":\"\xa4.\"}") + "\n\ndata: [DONE]\n\n"}, "ä.", ""},
		{"rune never completed", data(delta("{\"content\":\"a\xc3\"}")), "a\uFFFD", ""},
		{"surrogates cut between events", data(delta(`{"content":"\ud83d"}`), delta(`{"content":"\ude00"}`)), "😀", ""},
		{"choices counted up", data(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`, `{"choices":[{"index":1,"delta":{"content":"b"}}]}`,
			`{"choices":[{"index":2,"delta":{"content":"c"}}]}`, `{"choices":[{"index":3,"delta":{"content":"d"},"finish_reason":"stop"}]}`), "abcd", ""},
		{"choices counted to one", data(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`, `{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`), "ab", ""},
		{"two choices", data(`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`,
			`{"choices":[{"index":1,"delta":{"content":"b"}}]}`, `{"choices":[{"index":2,"delta":{"content":"b"}}]}`), "a", ""},
		{"choices turn by turn", data(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`, `{"choices":[{"index":1,"delta":{"content":"x"}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"b"}}]}`, `{"choices":[{"index":1,"delta":{"content":"y"}}]}`), "ab", ""},
		{"two choices, the second first", data(`{"choices":[{"index":1,"delta":{"content":"x"}}]}`, `{"choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`{"choices":[{"index":1,"delta":{"content":"y"}}]}`, `{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}`), "ab", ""},
		{"the only choice is at 1", data(`{"choices":[{"index":1,"delta":{"content":"a"}}]}`, `{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`), "ab", ""},
		{"the only choice is at 1, long", data(append(slices.Repeat([]string{`{"choices":[{"index":1,"delta":{"content":"a"}}]}`}, 12), finish("stop"))...), strings.Repeat("a", 12), ""},
		{"choices counted up from 1", data(`{"choices":[{"index":1,"delta":{"content":"a"}}]}`, `{"choices":[{"index":2,"delta":{"content":"b"}}]}`,
			`{"choices":[{"index":3,"delta":{"content":"c"}}]}`, `{"choices":[{"index":4,"delta":{"content":"d"},"finish_reason":"stop"}]}`), "abcd", ""},
		{"chunk ids that change, unknown fields", data(`{"id":"1","choices":[{"index":0,"delta":{"content":"a","obfuscation":"zz"}}]}`, `{"id":"2","choices":[{"index":0,"delta":{"content":"b"}}]}`), "ab", ""},
		{"comments, CRLF, byte order mark", []string{"\xef\xbb\xbf: ping\r\n\r\ndata:" + delta(`{"content":"a"}`) + "\r\n\r\n: ping\r\n\r\ndata: [DONE]\r\n\r\n"}, "a", ""},
		{"no blank lines", []string{"data: " + delta(`{"content":"a"}`) + "\ndata: " + delta(`{"content":"b"}`) + "\ndata: [DONE]\n"}, "ab", ""},
		{"no [DONE], but a finish_reason", []string{"data: " + delta(`{"content":"a"}`) + "\n\ndata: " + finish("stop") + "\n\n"}, "a", ""},
		{"no [DONE], no last blank line", []string{"data: " + delta(`{"content":"a"}`) + "\n\ndata: " + finish("stop")}, "a", ""},
		{"nothing but [DONE]", data(), "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := mustTurn(t, tt.pieces...)
			var thinking strings.Builder
			for _, block := range got.Thinking {
				thinking.WriteString(block.Text)
			}
			if got.Text != tt.text || thinking.String() != tt.thinking {
				t.Errorf("text %q, thinking %q; want %q, %q", got.Text, thinking.String(), tt.text, tt.thinking)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	full := `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}`
	tests := []struct {
		name, usage string
		want        provider.Usage
	}{
		{"full", full, provider.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15, CachedTokens: 4, ReasoningTokens: 2}},
		{"no total", `{"prompt_tokens":1,"completion_tokens":2.0}`, provider.Usage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3}},
		{"nulls", `{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":null}`, provider.Usage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3}},
		{"cost", `{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"cost":0.0012504}`,
			provider.Usage{InputTokens: 1, OutputTokens: 1, TotalTokens: 2, CostMicros: 1250}},
		{"odd cost", `{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"cost":{"usd":1}}`, provider.Usage{InputTokens: 1, OutputTokens: 1, TotalTokens: 2}},
		{"cache hit", `{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_cache_hit_tokens":8}`, provider.Usage{InputTokens: 9, OutputTokens: 1, TotalTokens: 10, CachedTokens: 8}},
	}
	for _, tt := range tests {
		for place, chunks := range map[string][]string{
			"own chunk":      {`{"choices":[],"usage":` + tt.usage + `}`, `{"choices":[],"usage":null}`, `{"choices":[],"usage":{}}`, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`},
			"in a choice":    {`{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":` + tt.usage + `}]}`},
			"after an older": {`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":100,"total_tokens":200}}`, `{"choices":[],"usage":` + tt.usage + `}`},
		} {
			if got := mustTurn(t, data(chunks...)...); got.Stop.Usage != tt.want {
				t.Errorf("%s, %s: %+v", tt.name, place, got.Stop.Usage)
			}
		}
	}
}

// A server that does not stream answers with one completion.
func TestWholeCompletion(t *testing.T) {
	t.Parallel()
	const body = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	})
	got, err := provider.Collect(s.provider().Stream(t.Context(), user("hi")))
	if err != nil {
		t.Fatal(err)
	}
	if got.Text != "a" || calls(got) != "c f {}" || got.Stop.Usage.TotalTokens != 3 {
		t.Errorf("turn %+v", got)
	}
}

func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	head := "data: " + delta(`{"content":"a"}`) + "\n\n"
	tests := []struct {
		name   string
		pieces []string
		code   frames.Code
		says   string
	}{
		{"cut after a chunk", []string{head}, frames.CodeNoResult, "before the answer was complete"},
		{"cut inside an event", []string{head, `data: {"choices":[{"ind`}, frames.CodeNoResult, "inside an event"},
		{"empty", []string{""}, frames.CodeNoResult, "before the answer was complete"},
		{"not JSON", []string{head, "data: hello\n\n"}, frames.CodeNoResult, "not JSON"},
		{"not a chunk", []string{"data: {\"choices\":7}\n\n"}, frames.CodeNoResult, "not in the form"},
		{"error object", []string{head, `data: {"error":{"message":"boom","type":"server_error","code":null}}` + "\n\n"}, frames.CodeUnavailable, "boom"},
		{"error text", []string{head, `data: {"error":"boom"}` + "\n\n"}, frames.CodeUnavailable, "boom"},
		{"error event", []string{"event: error\ndata: {\"message\":\"boom\"}\n\n"}, frames.CodeUnavailable, "boom"},
		{"error as object", []string{`data: {"object":"error","message":"too long: maximum context length","type":"BadRequestError","code":400}` + "\n\n"}, frames.CodeLimit, "does not fit"},
		{"error rate", []string{`data: {"error":{"message":"slow","code":"rate_limit_exceeded"}}` + "\n\n"}, frames.CodeBusy, "slow"},
		{"error code as number", []string{`data: {"error":{"message":"who","code":401}}` + "\n\n"}, frames.CodeDenied, "who"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := turn(t, tt.pieces...)
			wantError(t, err, tt.code, tt.says)
			if len(got.Calls) > 0 {
				t.Errorf("calls %+v", got.Calls)
			}
		})
	}
}

// A stream that breaks off gives no call, even if its text is whole already.
func TestBrokenStreamHasNoCalls(t *testing.T) {
	t.Parallel()
	got, err := turn(t, "data: "+delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}`)+"\n\n")
	wantError(t, err, frames.CodeNoResult, "")
	if e := frames.AsError(err); !e.Retryable || e.Effect != frames.EffectNone {
		t.Errorf("retryable %v, effect %s", e.Retryable, e.Effect)
	}
	if len(got.Calls) != 0 {
		t.Errorf("calls %+v", got.Calls)
	}
}

func wantError(t *testing.T, err error, code frames.Code, says string) {
	t.Helper()
	var e *frames.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want %s", err, err, code)
	}
	if e.Code != code || !strings.Contains(e.Message, says) {
		t.Errorf("error %v, want %s with %q", err, code, says)
	}
	if len(e.Message) > 1000 || strings.Contains(e.Message, "sk-secret") {
		t.Errorf("message %q is too long or holds the key", e.Message)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	long := data(delta(`{"content":%q}`, strings.Repeat("x", 5000)), finish("stop"))
	for name, change := range map[string]func(*openai.Config){
		"response over the limit of 4000": func(c *openai.Config) { c.MaxResponseBytes = 4000 },
		"event over the limit of 3000":    func(c *openai.Config) { c.MaxEventBytes = 3000 },
	} {
		_, err := provider.Collect(fake(t, long, change).Stream(t.Context(), user("hi")))
		wantError(t, err, frames.CodeTooLarge, name)
	}
	just := func(c *openai.Config) { c.MaxResponseBytes = int64(len(strings.Join(long, ""))) }
	if _, err := provider.Collect(fake(t, long, just).Stream(t.Context(), user("hi"))); err != nil {
		t.Errorf("a response of just the limit: %v", err)
	}
}

func TestArgumentsOverTheInlineLimit(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("x", 1<<20)
	chunks := []string{delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\""}}]}`)}
	for range 5 {
		chunks = append(chunks, delta(`{"tool_calls":[{"index":0,"function":{"arguments":%q}}]}`, piece))
	}
	got, err := provider.Collect(fake(t, data(append(chunks, finish("tool_calls"))...)).Stream(t.Context(), user("hi")))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Calls) != 1 || got.Calls[0].Invalid == nil || got.Calls[0].Invalid.Code != frames.CodeTooLarge {
		t.Errorf("call %v", got.Calls[0].Invalid)
	}
}

// Leaving the range ends the request at the server.
func TestLeavingTheRangeEndsTheRequest(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sseAnswer("data: "+delta(`{"content":"a"}`)+"\n\n")(w, r)
		<-r.Context().Done()
		close(gone)
	})
	p := s.provider()
	for event, err := range p.Stream(context.Background(), user("hi")) {
		if diff := cmp.Diff(provider.Event(provider.Text{Text: "a"}), event); diff != "" || err != nil {
			t.Errorf("event %v, error %v", event, err)
		}
		break
	}
	<-gone
}

func TestCancelAndDeadline(t *testing.T) {
	t.Parallel()
	for code, end := range map[frames.Code]func(context.Context) (context.Context, context.CancelFunc){
		frames.CodeCancelled: context.WithCancel,
		frames.CodeTimeout: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := end(t.Context())
			defer cancel()
			var err error
			for event, e := range hanging(t, 0).Stream(ctx, user("hi")) {
				if err = e; event != nil && code == frames.CodeCancelled {
					cancel()
				}
			}
			wantError(t, err, code, "")
		})
	}
}

// A cause that is an error of ours is what the reader gets.
func TestCancelWithCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(frames.NewError(frames.CodeInterrupted, "the process stops"))
		_, err := provider.Collect(hanging(t, 0).Stream(ctx, user("hi")))
		wantError(t, err, frames.CodeInterrupted, "the process stops")
	})
}

func TestSilentServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := provider.Collect(hanging(t, 0).Stream(t.Context(), user("hi")))
		wantError(t, err, frames.CodeTimeout, "nothing came from http://model.test/v1/chat/completions for 5m0s")
		if took := time.Since(start); took != 5*time.Minute {
			t.Errorf("took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
		defer cancel()
		_, err := provider.Collect(hanging(t, -1).Stream(ctx, user("hi")))
		wantError(t, err, frames.CodeTimeout, "deadline")
	})
}

// A reader that takes its time is not the server's silence.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fake(t, data(delta(`{"content":"a"}`), delta(`{"content":"b"}`), finish("stop")))
		for _, err := range p.Stream(t.Context(), user("hi")) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
	})
}

// hanging gives a provider whose server says "a" and then nothing.
func hanging(t *testing.T, idle time.Duration) *openai.Provider {
	return transport(t, func(r *http.Request) (*http.Response, error) {
		in, out := io.Pipe()
		go func() {
			_, _ = io.WriteString(out, "data: "+delta(`{"content":"a"}`)+"\n\n")
			<-r.Context().Done()
			_ = out.CloseWithError(r.Context().Err())
		}()
		return answerWith(http.StatusOK, "text/event-stream", in), nil
	}, func(c *openai.Config) { c.IdleTimeout = idle })
}

func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		strings.Join(data(delta(`{"content":"a"}`), finish("stop")), ""),
		strings.Join(data(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"\\ud83d"}}]}`)), ""),
		strings.Join(data(delta(`{"content":[{"type":"text","text":"\ud83d"}],"tool_calls":{}}`), `{"error":{}}`), ""),
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":{}}}]}}]}\ndata: [DONE]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wire string) {
		got, err := provider.Collect(fake(t, []string{wire}).Stream(t.Context(), user("hi")))
		if err != nil && !frames.CodeOf(err).Valid() {
			t.Fatalf("error %v", err)
		}
		for _, c := range got.Calls {
			if c.Invalid == nil && (!json.Valid([]byte(c.Arguments)) || c.Name == "") {
				t.Fatalf("call %+v", c)
			}
			if again := provider.NewToolCall(c.ID, c.Name, c.Arguments, got.Stop.Reason); (again.Invalid == nil) != (c.Invalid == nil) && c.Invalid.Code != frames.CodeTooLarge {
				t.Fatalf("call %+v is judged otherwise the second time", c)
			}
		}
	})
}
