package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/router"
)

// Calls at once, more than run: each is answered once, with its own result.
func TestManyCallsOfOneClient(t *testing.T) {
	const calls, slots = 500, 8
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client()
		var wg sync.WaitGroup
		var mu sync.Mutex
		answered, busy := map[string]int{}, 0
		for i := range calls {
			wg.Go(func() {
				res, err := c.Call(t.Context(), "work", map[string]int{"n": i})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Errorf("%d: %v", i, err)
				case res.Err != nil && res.Err.Code == frames.CodeBusy:
					busy++
				case res.Err != nil || string(res.Result) != fmt.Sprintf(`{"n":%d}`, i):
					t.Errorf("%d was answered %s, %v", i, res.Result, res.Err)
				default:
					answered[string(res.Result)]++
				}
			})
		}
		wg.Wait()
		if len(answered)+busy != calls || len(answered) == 0 {
			t.Errorf("%d answered, %d busy, of %d", len(answered), busy, calls)
		}
	}, func(w *world) {
		w.serve("a", set(w.t, frames.Declaration{Name: "work", Concurrency: slots}, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
			<-time.After(10 * time.Millisecond)
			return &frames.ToolResult{Result: c.Arguments}, nil
		}))
	})
}

// A program that speaks the protocol alone is a tool by its subject: its output
// comes as it runs, and its time-out is the declared one, as that of any tool.
//
// contract: A15, A25, A26
func TestCallOfAPlainProgram(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client()
		var got []string
		for f, err := range c.CallStream(t.Context(), "plain", map[string]int{"x": 1}) {
			if err != nil {
				t.Fatal(err)
			}
			res, _ := f.Result()
			if f.Type != frames.TypeToolResult {
				res = &frames.ToolResult{}
			}
			got = append(got, strings.TrimSpace(fmt.Sprint(f.Type, " ", f.Text(), " ", string(res.Result))))
		}
		want(t, "frames", got, []string{"TEXT half", `TOOL_RESULT  {"x":1}`})
		for _, name := range []string{"silent", "sdk"} {
			start := time.Now()
			res, err := c.Call(t.Context(), name, nil)
			if err != nil || res.Err == nil {
				t.Fatalf("%s: %+v, %v", name, res, err)
			}
			want(t, name, []string{string(res.Err.Code), res.Err.Message}, []string{"TIMEOUT", "Tool " + name + " timed out after 1000ms"})
			want(t, name, time.Since(start).Round(time.Second), time.Second)
		}
		res, err := c.Call(t.Context(), "silent", nil, client.WithTimeout(200*time.Millisecond))
		if err != nil || res.Err == nil || res.Err.Message != "Tool silent timed out after 200ms" {
			t.Errorf("shortened: %+v, %v", res, err)
		}
		<-time.After(time.Second)
	}, func(w *world) {
		ended := make(chan string, 4)
		w.serve("a", set(w.t, frames.Declaration{Name: "sdk", TimeoutMs: new(int64(1000))}, untilStopped(ended)))
		w.plain("silent", `{"name":"silent","timeoutMs":1000}`, func(*nats.Msg) {})
		w.plain("plain", `{"name":"plain"}`, func(m *nats.Msg) {
			_ = m.Respond([]byte(`{"type":"TEXT","content":{"text":"half"},"metadata":{"stream":"stdout"}}`))
			_ = m.Respond([]byte(`{"type":"TOOL_RESULT","content":{"result":{"x":1}}}{"type":"END","content":{"reason":"completed"}}`))
		})
	})
}

// Output that comes faster than it is read is held, within a bound, and never
// multiplied.
func TestOutputOfManyMegabytes(t *testing.T) {
	const chunk, chunks = 32 << 10, 320 // 10 MB
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		text, err := json.Marshal(strings.Repeat("x", chunk))
		if err != nil {
			t.Fatal(err)
		}
		w.plain("flood", `{"name":"flood"}`, func(m *nats.Msg) {
			for range chunks {
				_ = m.Respond([]byte(`{"type":"TEXT","content":{"text":` + string(text) + `}}`))
			}
			_ = m.Respond([]byte(`{"type":"TOOL_RESULT","content":{"result":1}}{"type":"END","content":{"reason":"completed"}}`))
		})
		w.router = w.route(router.Config{})
		before := heap()
		size, most, first := 0, int64(0), true
		for f, err := range w.client().CallStream(t.Context(), "flood", nil) {
			if err != nil {
				t.Fatal(err)
			}
			if first {
				synctest.Wait() // all of it has come
				most, first = heap()-before, false
			}
			size += len(f.Text())
		}
		if size != chunk*chunks {
			t.Errorf("read %d bytes of %d", size, chunk*chunks)
		}
		if most > 64<<20 {
			t.Errorf("held %d bytes for %d", most, chunk*chunks)
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
