package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a chat completions endpoint that answers each request with pieces
// of bytes, each in a write of its own.
type server struct {
	t      *testing.T
	url    string
	mu     sync.Mutex
	bodies [][]byte
	heads  []http.Header
}

func serve(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	s := &server{t: t}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.record(r)
		answer(w, r)
	}))
	t.Cleanup(ts.Close)
	s.url = ts.URL
	return s
}

func (s *server) record(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, body)
	s.heads = append(s.heads, r.Header.Clone())
}

// body gives the last request as a generic value.
func (s *server) body() map[string]any {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bodies) == 0 {
		s.t.Fatal("no request came")
	}
	var v map[string]any
	if err := json.Unmarshal(s.bodies[len(s.bodies)-1], &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// provider gives a provider for the server, closed at the end of the test.
func (s *server) provider(change ...func(*openai.Config)) *openai.Provider {
	s.t.Helper()
	cfg := openai.Config{BaseURL: s.url + "/v1", APIKey: "sk-secret-1234"}
	for _, c := range change {
		c(&cfg)
	}
	return newProvider(s.t, cfg)
}

func newProvider(t *testing.T, cfg openai.Config) *openai.Provider {
	t.Helper()
	p, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// sseAnswer streams pieces, each flushed.
func sseAnswer(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range pieces {
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	}
}

// data writes chunks as events, with [DONE] last.
func data(chunks ...string) []string {
	var out []string
	for _, c := range append(chunks, "[DONE]") {
		out = append(out, "data: "+c+"\n\n")
	}
	return out
}

// delta writes a chunk of choice 0.
func delta(format string, args ...any) string {
	return `{"choices":[{"index":0,"delta":` + fmt.Sprintf(format, args...) + `}]}`
}

func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func user(text string) *provider.Request {
	return &provider.Request{Model: "m", Messages: []provider.Message{{Role: provider.RoleUser, Text: text}}}
}

// turn runs a request against pieces that a server streams.
func turn(t *testing.T, pieces ...string) (*provider.Turn, error) {
	t.Helper()
	s := serve(t, sseAnswer(pieces...))
	return provider.Collect(s.provider().Stream(context.Background(), user("hi")))
}

func mustTurn(t *testing.T, pieces ...string) *provider.Turn {
	t.Helper()
	got, err := turn(t, pieces...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// calls writes calls as "id name arguments", one a line; an invalid one has its
// reason instead of arguments.
func calls(t *provider.Turn) string {
	var lines []string
	for _, c := range t.Calls {
		text := c.Arguments
		if c.Invalid != nil {
			text = "!" + c.Invalid.Reason
		}
		lines = append(lines, c.ID+" "+c.Name+" "+text)
	}
	return strings.Join(lines, "\n")
}
