package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
	"github.com/weavebus/weavebus/services/router"
)

// runs counts how often each call ran, and where.
type runs struct {
	mu sync.Mutex
	of map[string]int
	on map[string]int
}

func (r *runs) note(id, instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[id]++
	r.on[instance]++
}

// work takes as long as it is told to.
func (r *runs) work(instance string) tool.Handler {
	return func(ctx context.Context, c *tool.Call) (*frames.ToolResult, error) {
		r.note(c.Caller+"/"+c.ID, instance)
		var in struct {
			Ms int `json:"ms"`
		}
		if err := json.Unmarshal(c.Arguments, &in); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(in.Ms) * time.Millisecond):
			return &frames.ToolResult{Result: c.Arguments}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Two routers and two instances of a tool under load, one of each drained in the
// middle: no call fails, none runs twice, each gets its own answer.
//
// contract: W13
func TestDrainUnderLoad(t *testing.T) {
	const callers, lanes, each, slots = 5, 8, 25, 12
	synctest.Test(t, func(t *testing.T) {
		var opts []bustest.Option
		for i := range callers {
			opts = append(opts, bustest.WithIdentity(fmt.Sprint("caller-", i), natsd.RoleClient))
		}
		w := newWorld(t, opts...)
		count := &runs{of: map[string]int{}, on: map[string]int{}}
		instances := map[string]*role{}
		for _, id := range []string{"a", "b"} {
			instances[id] = w.serve(id, set(t, frames.Declaration{Name: "work", Concurrency: slots}, count.work(id)))
		}
		routers := []*role{w.route(router.Config{}), w.route(router.Config{})}

		var wg sync.WaitGroup
		for i := range callers {
			c := client.New(w.bus(fmt.Sprint("caller-", i)))
			for lane := range lanes {
				wg.Go(func() { callOften(t, c, lane, each) })
			}
		}
		<-time.After(300 * time.Millisecond)
		wg.Go(func() { instances["a"].stop() })
		<-time.After(200 * time.Millisecond)
		wg.Go(func() { routers[0].stop() })
		<-time.After(200 * time.Millisecond)
		wg.Go(func() {
			instances["a"] = w.serve("c", set(t, frames.Declaration{Name: "work", Concurrency: slots}, count.work("c")))
		})
		wg.Wait()

		if len(count.of) != callers*lanes*each {
			t.Errorf("%d calls ran, want %d", len(count.of), callers*lanes*each)
		}
		for id, n := range count.of {
			if n != 1 {
				t.Errorf("%s ran %d times", id, n)
			}
		}
		for _, id := range []string{"a", "b", "c"} {
			if count.on[id] == 0 {
				t.Errorf("instance %s ran none: %v", id, count.on)
			}
		}
		routers[1].holdsNothing()
	})
}

// callOften calls one after the other; the first takes so long that it is still
// running on an instance that drains.
func callOften(t *testing.T, c *client.Client, lane, n int) {
	rnd := rand.New(rand.NewPCG(1, uint64(lane)))
	for i := range n {
		ms := rnd.IntN(60)
		if i == 0 && lane == 0 {
			ms = 20_000
		}
		args := fmt.Sprintf(`{"ms":%d,"lane":%d,"i":%d}`, ms, lane, i)
		res, err := c.Call(t.Context(), "work", json.RawMessage(args))
		switch {
		case err != nil:
			t.Errorf("%s: %v", args, err)
		case res.Err != nil:
			t.Errorf("%s: %v", args, res.Err)
		case string(res.Result) != args:
			t.Errorf("%s was answered %s", args, res.Result)
		}
	}
}
