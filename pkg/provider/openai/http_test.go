package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/openai"
)

func TestStatusCodes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		status    int
		body      string
		header    string
		code      frames.Code
		reason    string
		retryable bool
		says      string
	}{
		{"bad key", 401, `{"error":{"message":"Incorrect API key provided: sk-secret-1234","code":"invalid_api_key"}}`, "", frames.CodeDenied, "", false, "OPENAI_API_KEY"},
		{"forbidden", 403, `{"error":"no"}`, "", frames.CodeDenied, "", false, "no"},
		{"unpaid", 402, ``, "", frames.CodeDenied, "", false, "402"},
		{"no model", 404, `{"error":{"message":"The model 'm' does not exist","code":"model_not_found"}}`, "", frames.CodeNotFound, "model_not_found", true, `no model "m"`},
		{"no path", 404, `404 page not found`, "", frames.CodeNotFound, "model_not_found", true, "/v1/chat/completions"},
		{"no model by 400", 400, `{"error":{"message":"model m not found"}}`, "", frames.CodeNotFound, "model_not_found", true, `no model "m"`},
		{"rate", 429, `{"error":{"message":"slow down"}}`, "7", frames.CodeBusy, "rate_limit", true, "slow down"},
		{"quota", 429, `{"error":{"message":"pay","code":"insufficient_quota"}}`, "", frames.CodeBusy, "insufficient_quota", false, "pay"},
		{"context by code", 400, `{"error":{"message":"long","code":"context_length_exceeded"}}`, "", frames.CodeLimit, "context_length", false, "does not fit"},
		{"context by words", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens."}`, "", frames.CodeLimit, "context_length", false, "4096"},
		{"body too large", 413, `<html>`, "", frames.CodeLimit, "context_length", false, "does not fit"},
		{"bad request", 400, `{"error":{"message":"bad schema"}}`, "", frames.CodeValidationInput, "request_refused", false, "bad schema"},
		{"unprocessable", 422, `{"detail":"field required"}`, "", frames.CodeValidationInput, "request_refused", false, "field required"},
		{"internal", 500, `oops`, "", frames.CodeUnavailable, "", true, "oops"},
		{"overloaded", 503, ``, "2", frames.CodeUnavailable, "", true, "503"},
		{"gateway page", 502, "<html>\n<body>" + strings.Repeat("bad gateway ", 1000), "", frames.CodeUnavailable, "", true, "<html> <body>bad gateway"},
		{"timeout", 408, ``, "", frames.CodeUnavailable, "", true, "408"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := provider.Collect(s.provider().Stream(t.Context(), user("hi")))
			wantError(t, err, tt.code, tt.says)
			e := frames.AsError(err)
			if e.Reason != tt.reason || e.Retryable != tt.retryable {
				t.Errorf("reason %q, retryable %v", e.Reason, e.Retryable)
			}
			if wait := e.RetryAfter.String(); tt.header != "" && wait != tt.header+"s" {
				t.Errorf("retry after %s, want %ss", wait, tt.header)
			}
		})
	}
}

func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key, value string
		low, high  time.Duration
	}{
		{"Retry-After", "1.5", 1500 * time.Millisecond, 1500 * time.Millisecond},
		{"Retry-After-Ms", "250", 250 * time.Millisecond, 250 * time.Millisecond},
		{"Retry-After", time.Now().Add(30 * time.Minute).UTC().Format(http.TimeFormat), 25 * time.Minute, 30 * time.Minute},
		{"Retry-After", "99999999999", time.Hour, time.Hour},
		{"Retry-After", "-5", 0, 0},
		{"Retry-After", "soon", 0, 0},
		{"Retry-After", "NaN", 0, 0},
	} {
		p := transport(t, func(*http.Request) (*http.Response, error) {
			resp := answerWith(http.StatusTooManyRequests, "text/plain", io.NopCloser(strings.NewReader("")))
			resp.Header.Set(tt.key, tt.value)
			return resp, nil
		})
		_, err := provider.Collect(p.Stream(t.Context(), user("hi")))
		if got := frames.AsError(err).RetryAfter; got < tt.low || got > tt.high {
			t.Errorf("%s %s: %s", tt.key, tt.value, got)
		}
	}
}

func TestNoKey(t *testing.T) {
	t.Parallel()
	p := newProvider(t, openai.Config{HTTPClient: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("a request went out")
		return nil, errors.New("no")
	})}})
	_, err := provider.Collect(p.Stream(t.Context(), user("hi")))
	wantError(t, err, frames.CodeDenied, "OPENAI_API_KEY")
}

func TestKeyIsNotNeededElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t, sseAnswer(data(finish("stop"))...))
	if _, err := provider.Collect(s.provider(func(c *openai.Config) { c.APIKey = "" }).Stream(t.Context(), user("hi"))); err != nil {
		t.Fatal(err)
	}
	if got := s.heads[0].Get("Authorization"); got != "" {
		t.Errorf("authorization %q", got)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, openai.Config{BaseURL: "http://" + addr + "/v1?secret=sk-secret", APIKey: "sk-secret-1234"})
	_, err = provider.Collect(p.Stream(t.Context(), user("hi")))
	wantError(t, err, frames.CodeUnavailable, "cannot reach http://"+addr+"/v1/chat/completions: connection refused")
	if !frames.AsError(err).Retryable {
		t.Error("not retryable")
	}
}

// Words of a transport that hold the key or never end stay out of the error.
func TestTransportErrorIsCleaned(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial sk-secret-1234\n" + strings.Repeat("x", 5000))
	p := transport(t, func(*http.Request) (*http.Response, error) { return nil, cause },
		func(c *openai.Config) { c.APIKey = "sk-secret-1234" })
	_, err := provider.Collect(p.Stream(t.Context(), user("hi")))
	wantError(t, err, frames.CodeUnavailable, "dial [key] xxx")
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
}

// The connection breaks in the middle of the stream.
func TestConnectionBreaks(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sseAnswer("data: "+delta(`{"content":"a"}`)+"\n\n")(w, r)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	})
	got, err := provider.Collect(s.provider().Stream(t.Context(), user("hi")))
	wantError(t, err, frames.CodeNoResult, "broke off")
	if got.Text != "a" {
		t.Errorf("text %q", got.Text)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.url+"/v1/chat/completions", status)
		})
		_, err := provider.Collect(s.provider().Stream(t.Context(), user("hi")))
		wantError(t, err, frames.CodeUnavailable, "redirects")
		if frames.AsError(err).Retryable {
			t.Errorf("%d: retryable", status)
		}
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d requests went to the other host", n)
	}
}

func TestRedirectAtTheSameHost(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/") {
			http.Redirect(w, r, r.URL.Path+"/", http.StatusPermanentRedirect)
			return
		}
		sseAnswer(data(delta(`{"content":"a"}`), finish("stop"))...)(w, r)
	})
	got, err := provider.Collect(s.provider().Stream(t.Context(), user("hi")))
	if err != nil || got.Text != "a" {
		t.Errorf("text %q, error %v", got.Text, err)
	}
	if diff := cmp.Diff(string(s.bodies[0]), string(s.bodies[1])); diff != "" {
		t.Errorf("bodies differ:\n%s", diff)
	}
}

func TestWebPage(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html><body>hi</body></html>") })
	_, err := provider.Collect(s.provider().Stream(t.Context(), user("hi")))
	wantError(t, err, frames.CodeNoResult, "check the base URL")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]openai.Config{
		"BaseURL is not an http":    {BaseURL: "ftp://x"},
		"BaseURL is not a URL":      {BaseURL: "http://[::1"},
		"BaseURL holds credentials": {BaseURL: "https://user:sk-secret@x/v1"},
		"APIKey holds":              {APIKey: "sk-secret\nX: y"},
		"MaxResponseBytes":          {MaxResponseBytes: -1},
		"MaxEventBytes":             {MaxEventBytes: -1},
	} {
		_, err := openai.New(cfg)
		wantError(t, err, frames.CodeValidationInput, field)
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"":                                     "https://api.openai.com/v1/chat/completions",
		"http://h:1/v1/":                       "http://h:1/v1/chat/completions",
		"http://h":                             "http://h/chat/completions",
		"http://h/v1/chat/completions":         "http://h/v1/chat/completions",
		"https://h/openai/d/x?api-version=1#f": "https://h/openai/d/x/chat/completions?api-version=1",
	} {
		var got string
		p := transport(t, func(r *http.Request) (*http.Response, error) {
			got = r.URL.String()
			return nil, errors.New("no")
		}, func(c *openai.Config) { c.BaseURL, c.APIKey = base, "k" })
		_, err := provider.Collect(p.Stream(t.Context(), user("hi")))
		shown, _, _ := strings.Cut(want, "?")
		if got != want || err == nil || !strings.Contains(err.Error(), shown) {
			t.Errorf("%q: %q, error %v", base, got, err)
		}
	}
}

// contract: P67, P66
func TestRequestBody(t *testing.T) {
	t.Parallel()
	strict := true
	req := &provider.Request{
		Model:    "m/with/slashes",
		Messages: []provider.Message{{Role: provider.RoleSystem, Text: "be <brief>"}, {Role: provider.RoleUser, Text: "hi"}},
		Tools: []provider.Tool{
			{Name: "f", Description: "d", Schema: json.RawMessage(`{"type":"object","properties":{"z":{"type":"integer","maximum":9007199254740993},"a":{"type":"string"}}}`), Strict: &strict},
			{Name: "g"},
		},
		ToolChoice: provider.ToolChoice{Mode: provider.ChoiceTool, Name: "f"},
		Settings:   map[string]json.RawMessage{"temperature": json.RawMessage("0.10"), "maxTokens": json.RawMessage("5"), "topP": json.RawMessage("1"), "x_own": json.RawMessage(`{"a":1}`)},
	}
	s := serve(t, sseAnswer(data(finish("stop"))...))
	if _, err := provider.Collect(s.provider().Stream(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	const want = `{"max_tokens":5,"messages":[{"role":"system","content":"be <brief>"},{"role":"user","content":"hi"}],"model":"m/with/slashes",` +
		`"stream":true,"stream_options":{"include_usage":true},"temperature":0.10,"tool_choice":{"function":{"name":"f"},"type":"function"},` +
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"z":{"type":["integer","null"],"maximum":9007199254740993},"a":{"type":["string","null"]}},"required":["z","a"],"additionalProperties":false},"strict":true}},` +
		`{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],"top_p":1,"x_own":{"a":1}}`
	if diff := cmp.Diff(want, strings.TrimSpace(string(s.bodies[0]))); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got := s.heads[0].Get("Authorization"); got != "Bearer sk-secret-1234" {
		t.Errorf("authorization %q", got)
	}
}

// contract: P67
func TestToolChoices(t *testing.T) {
	t.Parallel()
	tools := []provider.Tool{{Name: "f"}}
	for mode, want := range map[provider.ChoiceMode]any{"": nil, provider.ChoiceAuto: "auto", provider.ChoiceNone: "none", provider.ChoiceRequired: "required"} {
		body := sent(t, &provider.Request{Model: "m", Tools: tools, ToolChoice: provider.ToolChoice{Mode: mode}})
		if body["tool_choice"] != want {
			t.Errorf("%q: %v", mode, body["tool_choice"])
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	for says, req := range map[string]*provider.Request{
		"no model is named":      {},
		`setting "stream"`:       {Model: "m", Settings: map[string]json.RawMessage{"stream": json.RawMessage("false")}},
		"is not JSON":            {Model: "m", Settings: map[string]json.RawMessage{"x": json.RawMessage("{")}},
		"not among":              {Model: "m", Tools: []provider.Tool{{Name: "f"}}, ToolChoice: provider.ToolChoice{Mode: provider.ChoiceTool, Name: "g"}},
		"the schema is not JSON": {Model: "m", Tools: []provider.Tool{{Name: "f", Schema: json.RawMessage("{")}}},
	} {
		_, err := provider.Collect(fake(t, nil).Stream(t.Context(), req))
		if frames.CodeOf(err) != frames.CodeValidationInput && frames.CodeOf(err) != frames.CodeNotFound || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	png := provider.Part{Type: provider.PartImage, MediaType: "image/png", Data: []byte{1, 2, 3}}
	link := provider.Part{Type: provider.PartImage, URI: "https://x/y.png"}
	text := provider.Part{Type: provider.PartText, Text: "a"}
	wav := provider.Part{Type: provider.PartAudio, MediaType: "audio/wav", Data: []byte{4}}
	file := provider.Part{Type: provider.PartResource, Name: "r.txt", URI: "file:r.txt"}
	list := sentMessages(t, []provider.Message{
		{Role: provider.RoleUser, Parts: []provider.Part{text, text}},
		{Role: provider.RoleUser, Parts: []provider.Part{text, png, link, wav, file}},
		{Role: provider.RoleAssistant, Text: "t", Thinking: []provider.Thinking{{Text: "hm"}}, Calls: []provider.Call{{ID: "c1", Name: "f", Arguments: `{"n":9007199254740993}`}, {ID: "c2", ModelID: strings.Repeat("x", 60), Name: "g"}}},
		{Role: provider.RoleTool, ToolCallID: "c1", Parts: []provider.Part{text, png}},
		{Role: provider.RoleTool, ToolCallID: "c2"},
	}, func(c *openai.Config) { c.ReplayThinking = true })
	id := at(list, 2, "tool_calls", 1, "id")
	want := []any{
		map[string]any{"role": "user", "content": "a\na"},
		map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "text", "text": "a"},
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64,AQID"}},
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": "https://x/y.png"}},
			map[string]any{"type": "input_audio", "input_audio": map[string]any{"data": "BA==", "format": "wav"}},
			map[string]any{"type": "text", "text": "[resource r.txt file:r.txt]"},
		}},
		map[string]any{"role": "assistant", "content": "t", "reasoning_content": "hm", "tool_calls": []any{
			map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "f", "arguments": `{"n":9007199254740993}`}},
			map[string]any{"id": id, "type": "function", "function": map[string]any{"name": "g", "arguments": "{}"}},
		}},
		map[string]any{"role": "tool", "content": "a\n[image image/png, 3 bytes]", "tool_call_id": "c1"},
		map[string]any{"role": "tool", "content": "", "tool_call_id": id},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if s, _ := id.(string); s == "" || len(s) > 40 {
		t.Errorf("long id went out as %q", s)
	}
}
