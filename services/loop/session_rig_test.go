package loop_test

import (
	"fmt"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// harness does for a test's session what the harness does: it writes input,
// posts jobs and wakes owners. It also reads what the session publishes.
type harness struct {
	r      *rig
	key    session.Key
	conn   *bus.Conn
	store  *session.Store
	jobs   *session.Jobs
	inputs int

	mu      sync.Mutex
	frames  []frames.Frame
	arrived chan struct{}
}

// session begins a session of the fake model, with further PARAMs.
func (r *rig) session(sid string, pairs ...any) *harness {
	r.t.Helper()
	h := &harness{r: r, key: session.Key{Caller: "me", SID: sid}, conn: r.connect("harness"), arrived: make(chan struct{}, 1)}
	js, err := jetstream.New(h.conn.NATS())
	r.must(err)
	h.store, err = session.Open(r.t.Context(), js, "wb")
	r.must(err)
	h.jobs, err = session.OpenJobs(r.t.Context(), js, "wb")
	r.must(err)
	_, err = r.me.NATS().Subscribe(r.me.Out("me", sid), h.read)
	r.must(err)
	r.must(r.me.Flush(r.t.Context()))
	begin := frames.Start()
	fs := append(params("workspace", "w", "task", "t", "model", "fake/m"), append(params(pairs...), &begin)...)
	_, err = h.store.Create(r.t.Context(), h.key, h.apply(fs...))
	r.must(err)
	return h
}

func (h *harness) read(m *nats.Msg) {
	msg, err := frames.Decode(m.Data)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.r.t.Errorf("unreadable frames: %v", err)
		return
	}
	h.frames = append(h.frames, msg.Frames...)
	select {
	case h.arrived <- struct{}{}:
	default:
	}
}

func (h *harness) apply(fs ...*frames.Frame) session.Transition {
	in := session.Input{}
	for _, f := range fs {
		h.inputs++
		f.ID = fmt.Sprintf("in%d", h.inputs)
		in.Frames = append(in.Frames, *f)
	}
	return func(s *session.State) ([]session.Change, error) { return s.Apply(in), nil }
}

// input writes frames of input, and sees that a loop works on it.
func (h *harness) input(fs ...frames.Frame) {
	h.r.t.Helper()
	ptrs := make([]*frames.Frame, len(fs))
	for i := range fs {
		ptrs[i] = &fs[i]
	}
	head, err := h.store.Update(h.r.t.Context(), h.key, h.apply(ptrs...))
	h.r.must(err)
	h.r.must(h.store.Publish(h.r.t.Context(), h.conn, &head.Entry))
	h.nudge(&head)
}

// nudge posts the job or wakes the owner.
func (h *harness) nudge(head *session.Head) {
	h.r.t.Helper()
	if o := head.State.Owner; o != nil {
		wake := session.Wake(h.key, head.N)
		if _, err := h.conn.Request(h.r.t.Context(), h.conn.Inst(o.Identity, o.Instance), &wake); err != nil && frames.CodeOf(err) != frames.CodeUnavailable {
			h.r.t.Error(err)
		}
		return
	}
	for head.State.Work() && !h.underWay(head) {
		<-time.After(250 * time.Millisecond) // virtual time
	}
}

// underWay posts the session's job. One that stands counts, unless it is the job
// with which the session was given up, and which is about to be acknowledged.
func (h *harness) underWay(head *session.Head) bool {
	h.r.t.Helper()
	stands, err := h.jobs.Post(h.r.t.Context(), h.key)
	h.r.must(err)
	if !stands {
		return true
	}
	n, err := h.jobs.Standing(h.r.t.Context(), h.key)
	h.r.must(err)
	return n != 0 && n != head.State.Job
}

func (h *harness) say(text string) { h.r.t.Helper(); h.input(frames.Text(text)) }

func (h *harness) head() session.Head {
	h.r.t.Helper()
	head, err := h.store.Head(h.r.t.Context(), h.key)
	h.r.must(err)
	return head
}

// durable gives the durable frames so far, each once and in order.
func (h *harness) durable() []frames.Frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	type at struct {
		entry uint64
		part  int
	}
	seen := map[at]bool{}
	var out []frames.Frame
	for _, f := range h.frames {
		if k := (at{f.Entry, f.Part}); f.Entry > 0 && !seen[k] {
			seen[k] = true
			out = append(out, f)
		}
	}
	return out
}

// live gives the live frames so far.
func (h *harness) live() []frames.Frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []frames.Frame
	for _, f := range h.frames {
		if f.Entry == 0 {
			out = append(out, f)
		}
	}
	return out
}

func briefs(fs []frames.Frame) []string {
	out := make([]string, len(fs))
	for i := range fs {
		out[i] = brief(&fs[i])
	}
	return out
}

// await waits until a frame that was published reads so, for the n-th time.
func (h *harness) await(want string, n int) {
	h.r.t.Helper()
	timeout := time.After(10 * time.Minute) // virtual time
	for {
		count := 0
		for _, line := range append(briefs(h.durable()), briefs(h.live())...) {
			if line == want {
				count++
			}
		}
		if count >= n {
			return
		}
		select {
		case <-h.arrived:
		case <-timeout:
			h.r.t.Fatalf("no %q:\n%s", want, strings.Join(briefs(h.durable()), "\n"))
		}
	}
}

// settled waits until nobody owns the session and no job is left of it.
func (h *harness) settled() {
	h.r.t.Helper()
	for range 100 {
		synctest.Wait()
		head := h.head()
		n, err := h.jobs.Standing(h.r.t.Context(), h.key)
		h.r.must(err)
		if head.State.Owner == nil && n == 0 {
			return
		}
		<-time.After(100 * time.Millisecond) // virtual time
	}
	h.r.t.Fatalf("not given up: owner %+v", h.head().State.Owner)
}

// turn gives the durable frames from the last user text on.
func (h *harness) turn() []string {
	all := briefs(h.durable())
	from := 0
	for i, f := range h.durable() {
		if f.Type == frames.TypeText && f.Metadata.Text("role") == "user" {
			from = i
		}
	}
	return all[from:]
}

// check holds the session's record to its rules: entries without a gap, each call
// with one result, live frames numbered.
func (h *harness) check() {
	h.r.t.Helper()
	entries, _, err := h.store.History(h.r.t.Context(), h.key, 0, 10_000)
	h.r.must(err)
	results := map[string]int{}
	for _, e := range entries {
		for _, c := range e.Changes {
			switch c.Kind {
			case session.ChangeResult:
				results[c.CallID]++
			case session.ChangeMessage:
				for _, call := range c.Message.Calls {
					results[call.ID] += 0
				}
			}
		}
	}
	for id, n := range results {
		if n != 1 {
			h.r.t.Errorf("call %s has %d results", id, n)
		}
	}
	h.checkLive()
}

func (h *harness) checkLive() {
	h.r.t.Helper()
	seq, epoch := uint64(0), uint64(0)
	for _, f := range h.live() {
		if f.Epoch < epoch {
			h.r.t.Errorf("a live frame of epoch %d behind one of %d", f.Epoch, epoch)
		}
		if f.Epoch > epoch {
			epoch, seq = f.Epoch, 0
		}
		if seq++; f.Seq != seq {
			h.r.t.Errorf("live frame %d of epoch %d has seq %d", seq, epoch, f.Seq)
		}
	}
}
