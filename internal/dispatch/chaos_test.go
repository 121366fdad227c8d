package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/frames"
)

// chaos is a mesh in which everything goes wrong that can.
type chaos struct {
	*world
	decl frames.Declaration
	mu   sync.Mutex
	rnd  *rand.Rand
}

func (c *chaos) upTo(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

func (c *chaos) pause(ms int) { <-time.After(time.Duration(c.upTo(ms)) * time.Millisecond) }

// answer does one of the things that tools do.
func (c *chaos) answer(nc *nats.Conn, m *nats.Msg) {
	request, err := frames.Decode(m.Data)
	if err != nil {
		c.t.Errorf("call: %v", err)
		return
	}
	args, _ := request.Frames[0].Arguments()
	send := func(fs ...*frames.Frame) {
		data, _ := frames.Encode(frames.Msgpack, fs...)
		_ = nc.Publish(m.Reply, data)
	}
	end, gap, tick := frames.End(frames.EndCompleted), frames.Text("late"), frames.Tick()
	gap.Seq = 9
	res := frames.Result(&frames.ToolResult{Result: args})
	no := frames.FailedResult(frames.NewError(frames.CodeBusy, "no"))
	fails := frames.FailedResult(errors.New("it failed"))
	c.pause(50)
	switch c.upTo(12) {
	case 0:
		send(&no, &end)
	case 1:
		send(&end)
	case 2:
		_ = nc.Publish(m.Reply, []byte{0xc1})
	case 3:
		send(&tick)
		send(&gap)
	case 4: // silence
	case 5:
		c.pause(500) // too late perhaps
		send(&res, &end)
	case 6:
		send(&fails, &end)
		send(&res, &end)
	default:
		send(&tick)
		send(&res)
		send(&end)
	}
}

// instance serves echo until it ends in one of the ways in which instances do.
func (c *chaos) instance(id string) {
	d := c.decl
	d.Concurrency = 1 + c.upTo(4)
	f := c.unheard(id, d, func(nc *nats.Conn, m *nats.Msg) {
		go c.answer(nc, m)
	})
	for range 1 + c.upTo(20) {
		c.pause(200)
		f.alive()
	}
	if c.upTo(2) == 0 {
		f.end()
		c.pause(100)
	}
	f.conn.NATS().Close()
}

// call starts a call, and perhaps cancels it.
func (c *chaos) call(id int, results *atomic.Int64, wg *sync.WaitGroup) {
	q := call(fmt.Sprint(id))
	q.Caller = fmt.Sprint("caller-", id%3)
	q.Arguments = fmt.Appendf(nil, `{"id":%d}`, id%50)
	q.Depth = id % 2
	p, err := c.d.Prepare(c.t.Context(), q)
	if err != nil {
		return // there is no instance now
	}
	wg.Add(1)
	cancel := c.d.Start(c.t.Context(), p, func(res *frames.ToolResult) {
		results.Add(1)
		if res.Err == nil && string(res.Result) != string(q.Arguments) {
			c.t.Errorf("call %d got %s", id, res.Result)
		}
		wg.Done() // a second result panics here
	})
	switch c.upTo(6) {
	case 0:
		c.pause(100)
		cancel(context.Canceled)
	case 1:
		c.pause(100)
		c.d.Cancel(q.Caller, q.ID)
		cancel(context.DeadlineExceeded)
	}
}

// chaotic is the tool of a seed: some may be tried again, some have locks.
func chaotic(seed uint64) frames.Declaration {
	ms := int64(300)
	d := frames.Declaration{Name: "echo", TimeoutMs: &ms}
	if seed%3 == 0 {
		d.Retries, d.Replay = 2, frames.ReplaySafe
	}
	if seed%4 == 0 {
		d.LockKey = "id"
	}
	if seed%5 == 0 {
		d.IdleTimeoutMs = 100
	}
	return d
}

// Whatever tools, instances, callers and the connection do: each call has one
// result, and in the end nothing is held for it.
//
// contract: W13, A11
func TestEachCallHasOneResult(t *testing.T) {
	var started int64
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, dispatch.Config{QueueLimit: 40, QueueWait: 2 * time.Second, CancelGrace: 50 * time.Millisecond}, func(t *testing.T, w *world) {
				c := &chaos{world: w, decl: chaotic(seed), rnd: rand.New(rand.NewPCG(seed, 1))}
				var instances, callers, calls sync.WaitGroup
				for i := range 8 {
					instances.Go(func() {
						c.pause(2000)
						c.instance(fmt.Sprint("i-", i))
					})
				}
				instances.Go(func() { c.instance("first") })
				<-time.After(10 * time.Millisecond)
				var results atomic.Int64
				for caller := range 10 {
					callers.Go(func() {
						for i := range 60 {
							c.pause(60)
							c.call(caller*1000+i, &results, &calls)
						}
					})
				}
				if seed%2 == 0 {
					c.pause(2000)
					w.line.Cut()
					c.pause(2000)
					w.line.Mend()
				}
				callers.Wait()
				calls.Wait()
				instances.Wait()
				started += results.Load()
				<-time.After(time.Minute) // slots of calls that were given up are held for a while
				w.holdsNothing()
			})
		})
	}
	// A line that is cut early leaves one seed with few; all together show something.
	if started < 12*100 {
		t.Errorf("only %d calls started", started)
	}
}
