package tool_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// A typed tool's value stands beside its error, whose code it may say.
//
// contract: E8, P41
func TestResultWithAnError(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	must(t, tool.Add(s, "plain", give(tool.Result[count]{Value: count{1}, Err: errors.New("exit 1")})))
	must(t, tool.Add(s, "code", give(tool.Result[count]{Err: frames.NewError(frames.CodeBusy, "elsewhere")})))
	srv := setup(t).serve(s, "i1")
	a := srv.call("plain", "{}")
	if a.code() != "EXECUTION" || a.result.Err.Message != "exit 1" || string(a.result.Result) != `{"n":1}` {
		t.Errorf("%v, %s", a.result.Err, a.result.Result)
	}
	if e := srv.call("code", "{}").result.Err; e.Code != "EXECUTION" || e.Reason != "busy" {
		t.Errorf("%+v", e)
	}
}

// cutter gives connections that can be cut.
type cutter struct {
	nats.InProcessConnProvider
	last net.Conn
}

func (c *cutter) InProcessConn() (conn net.Conn, err error) {
	conn, err = c.InProcessConnProvider.InProcessConn()
	c.last = conn
	return conn, err
}

func (c *cutter) option(o *nats.Options) error {
	c.InProcessConnProvider, o.InProcessServer = o.InProcessServer, c
	return nil
}

// After a reconnect the server may know nothing: all is announced again. A call
// that ended without a connection is answered when there is one again.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tool.NewSet("test")
		started, release := blocking(t, s, "x")
		r := setup(t)
		h := r.hear()
		c := &cutter{}
		srv := r.serveOn(r.connect("local", c.option), s, "i1")
		f := frames.Call("x", nil)
		p := srv.start("x", &f)
		<-started
		h.take()
		must(t, c.last.Close())
		synctest.Wait()
		nc := srv.conn.NATS()
		if !nc.IsReconnecting() {
			t.Fatal("the connection was not cut")
		}
		close(release)
		if a := p.end(); string(a.result.Result) != "1" {
			t.Errorf("%v", a.result.Err)
		}
		time.Sleep(6 * time.Second)
		if got := h.take(); strings.Count(got, "wb.announce.local.i1.x DESCRIPTION") != 1 || nc.Stats().Reconnects != 1 {
			t.Errorf("after %d reconnects:\n%s", nc.Stats().Reconnects, got)
		}
	})
}

// Each of many calls has exactly one outcome while an instance drains under
// them: its result, or a refusal before it started.
//
// contract: W13, B26
func TestNoCallIsLostInADrain(t *testing.T) {
	t.Parallel()
	s := tool.NewSet("test")
	var mu sync.Mutex
	ran := map[string]int{}
	must(t, tool.Add(s, "x", func(ctx context.Context, _ struct{}) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		ran[tool.CallInfo(ctx).ID]++
		return 1, nil
	}, tool.Concurrency(8)))
	r := setup(t)
	srv := r.serve(s, "i1")
	outcomes := map[string]string{}
	var calls sync.WaitGroup
	for worker := range 8 {
		calls.Go(func() {
			for i := range 100 {
				if worker == 0 && i == 50 {
					srv.stop()
				}
				id := fmt.Sprintf("c%d-%d", worker, i)
				f := frames.Call("x", nil, frames.WithCall(id, "x"))
				fs, err := r.ask(r.caller.InstTool("local", "i1", "x"), f)
				mu.Lock()
				outcomes[id] = outcomeOf(t, fs, err)
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	must(t, srv.end())
	count := map[string]int{}
	for id, what := range outcomes {
		count[what]++
		if want := map[string]int{"done": 1}[what]; ran[id] != want {
			t.Errorf("call %s: %s, but it ran %d times", id, what, ran[id])
		}
	}
	if count["done"] == 0 || count["done"]+count["draining"]+count["busy"]+count["gone"] != 800 {
		t.Errorf("outcomes %v, want 800 in all", count)
	}
}

func outcomeOf(t *testing.T, fs []frames.Frame, err error) string {
	switch {
	case frames.CodeOf(err) == frames.CodeUnavailable:
		return "gone"
	case err != nil || len(fs) != 1:
		t.Errorf("%d frames, %v", len(fs), err)
		return "lost"
	}
	res, err := fs[0].Result()
	if err != nil {
		t.Error(err)
		return "lost"
	}
	if res.Err != nil {
		return res.Err.Reason
	}
	return "done"
}
