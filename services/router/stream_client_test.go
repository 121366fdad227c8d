package router_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/services/router"
)

func (w *world) client() *client.Client {
	w.t.Helper()
	conn, err := bus.New(w.mesh.Connect(w.t, "me"), "me")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(conn.Close)
	return client.New(conn)
}

// A router that dies while arguments come costs a second sending, not the call.
//
// contract: P53
func TestAnotherRouterTakesTheWholeCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s, err := w.client().OpenCall(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write([]byte(`{"a":`))
		w.route(router.Config{})
		w.router.holdsNothing()
		_, _ = s.Write([]byte(`1}`))
		res, err := s.Finish(t.Context())
		if err != nil || res.Err != nil || string(res.Result) != `{"a":1}` {
			t.Errorf("%+v, %v", res, err)
		}
	}, anything)
}

// However calls are cut and interleaved, each gets what its text means whole.
//
// contract: P57, P62, P63
func TestAnyStreamGivesTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client()
		texts := []string{
			`{"a":"é😀"}`, "```json\n{\"a\":[1,],}\n```", `"{\"a\":1}"`, ``, `{"a":`, `[]`, `{"a":1,"a":2}`, "{\"a\":\"x\ny\"}", "{\"a\":\"\xf0\x9f\"}",
		}
		whole := map[string]string{}
		for _, text := range texts {
			res, err := c.Call(t.Context(), "echo", json.RawMessage(text))
			if err != nil {
				t.Fatal(err)
			}
			whole[text] = said(res)
		}
		for seed := range uint64(60) {
			random := rand.New(rand.NewPCG(seed, 1))
			some := make([]string, 1+random.IntN(3))
			for i := range some {
				some[i] = texts[random.IntN(len(texts))]
			}
			for i, got := range w.interleaved(c, random, some) {
				want(t, fmt.Sprintf("seed %d: %q", seed, some[i]), got, whole[some[i]])
			}
		}
	}, anything)
}

// interleaved calls echo with each text, cut and interleaved at random.
func (w *world) interleaved(c *client.Client, random *rand.Rand, texts []string) []string {
	w.t.Helper()
	calls, rest := make([]*client.StreamedCall, len(texts)), slices.Clone(texts)
	for i := range calls {
		var err error
		if calls[i], err = c.OpenCall(w.t.Context(), "echo"); err != nil {
			w.t.Fatal(err)
		}
	}
	write := func(i, n int) {
		if _, err := calls[i].Write([]byte(rest[i][:n])); err != nil {
			w.t.Fatal(err)
		}
		rest[i] = rest[i][n:]
	}
	for range 5 * len(texts) {
		i := random.IntN(len(texts))
		write(i, random.IntN(len(rest[i])+1))
	}
	out := make([]string, len(texts))
	for i, call := range calls {
		write(i, len(rest[i]))
		res, err := call.Finish(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		out[i] = said(res)
	}
	return out
}

func said(res *frames.ToolResult) string {
	if res.Err != nil {
		return string(res.Err.Code) + " " + res.Err.Reason
	}
	return fmt.Sprintf("%s %x", res.Result, res.Metadata.Get("repairs"))
}
