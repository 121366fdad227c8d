package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: A20, A36
func TestTrace(t *testing.T) {
	t.Parallel()
	tr := client.NewTrace(3)
	call := func(id string) *frames.Frame {
		f := frames.Call("f", []byte(`{"id":"`+id+`"}`), frames.WithCall(id, "f"))
		return &f
	}
	result := func(id, text string) *frames.Frame {
		f := frames.Result(&frames.ToolResult{Result: []byte(text)}, frames.WithCall(id, "f"))
		return &f
	}
	for i := range 5 {
		tr.Add(call(fmt.Sprint("c", i)))
	}
	tr.Add(call("c4")) // again
	tr.Add(result("c3", "1"))
	tr.Add(result("c3", "2"))
	tr.Add(result("c0", "0")) // is not kept any more
	failed := frames.FailedResult(frames.NewError(frames.CodeTimeout, "late"), frames.WithCall("c4", "f"))
	tr.Add(&failed)
	text := frames.Text("no call")
	tr.Add(&text)
	var got []string
	for _, c := range tr.Calls() {
		switch {
		case c.Result == nil:
			got = append(got, c.ID+" runs "+string(c.Arguments))
		case c.Result.Err != nil:
			got = append(got, c.ID+" "+string(c.Result.Err.Code))
		default:
			got = append(got, c.ID+" "+string(c.Result.Result))
		}
	}
	if s := strings.Join(got, ", "); s != `c2 runs {"id":"c2"}, c3 1, c4 TIMEOUT` {
		t.Errorf("got %s", s)
	}
	if tr.Clear(); len(tr.Calls()) != 0 {
		t.Error("not cleared")
	}
}

// Every reader of a session hears of the model's text and of results: the one that
// drives it, others of its caller, those that come late, and those that watch all.
//
// contract: A18, A22, B56, G1, G3
func TestReadersOfASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.harness()
		w.loop()
		w.counting("look", 0)
		w.play = rounds(says("let me look", "look"), says("well"))
		watched := make(chan string, 1)
		other := w.dial()
		go func() {
			var got strings.Builder
			for f, err := range other.Watch(t.Context()) {
				if err != nil {
					break
				}
				if f.Entry > 0 && f.Metadata.Text("sessionId") == "s1" {
					got.WriteString(lineOf(&f) + "\n")
				}
				if f.Type == frames.TypeEnd && f.Entry > 0 {
					break
				}
			}
			watched <- got.String()
		}()
		synctest.Wait()
		c := w.session(w.Client, "fake/m")
		trace := client.NewTrace(0)
		c.send(frames.Text("go"))
		c.until("idle", 2)
		c.send(frames.End(""))
		driver := c.until("END completed", 1)
		late, err := w.dial().Session(t.Context(), "s1")
		w.must(err)
		var lines []string
		for f, err := range late.Frames(t.Context(), 0) {
			w.must(err)
			if trace.Add(&f); f.Entry > 0 && lineOf(&f) != "" {
				lines = append(lines, lineOf(&f))
			}
		}
		w.must(late.Close())
		if got := strings.Join(lines, "\n"); got != driver {
			t.Errorf("a late reader got:\n%s\n\nthe first:\n%s", got, driver)
		}
		for _, want := range []string{"assistant: let me look\ncall look", `result look "mesh"`, "assistant: well", "END completed"} {
			if all := <-watched; !strings.Contains(all, want) || !strings.Contains(driver, want) {
				t.Errorf("no %q in\n%s", want, all)
			} else {
				watched <- all
			}
		}
		if calls := trace.Calls(); len(calls) != 1 || string(calls[0].Result.Result) != `"mesh"` || calls[0].Ended.IsZero() {
			t.Errorf("traced %+v", calls)
		}
		if info, err := w.SessionInfo(t.Context(), "s1"); err != nil || !info.Closed() {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// What a reader who is too slow misses is said at the end of the answer, and its
// buffer is bounded. Of a session it reads it again.
//
// contract: G6
func TestSlowReadersAreTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sent := make(chan struct{})
		conn := connect(t, w.mesh, "loop")
		defer conn.Close()
		_, err := conn.Handle(t.Context(), conn.Loop("*"), bus.QueueLoop, func(_ context.Context, q *bus.Request) {
			for range 20 {
				batch := make([]frames.Frame, 1000)
				for i := range batch {
					batch[i] = frames.Text("x")
				}
				_ = q.Send(batch...)
			}
			_ = q.End(frames.EndCompleted)
			close(sent)
		})
		w.must(err)
		w.must(conn.Flush(t.Context()))
		read, last := 0, error(nil)
		for f, err := range w.Run(t.Context(), frames.Param("model", "fake/m")) {
			if read == 0 && err == nil {
				<-sent
				synctest.Wait() // all of it has arrived
			}
			if err == nil && f.Type == frames.TypeEnd {
				t.Error("the end hides that frames are missing")
			}
			if last = err; err == nil {
				read++
			}
		}
		wantCode(t, last, frames.CodeNoResult)
		if read > 17_000 {
			t.Errorf("%d frames were held", read)
		}
	})
}
