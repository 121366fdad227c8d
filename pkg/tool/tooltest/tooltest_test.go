package tooltest

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type waitIn struct {
	Forever bool `json:"forever,omitempty"`
}

type waitOut struct {
	Caller string `json:"caller"`
}

func wait(ctx context.Context, in waitIn) (waitOut, error) {
	if in.Forever {
		<-ctx.Done()
	}
	return waitOut{tool.CallInfo(ctx).Caller}, ctx.Err()
}

func connect(t *testing.T, m *bustest.Mesh, identity string) *bus.Conn {
	t.Helper()
	c, err := bus.New(m.Connect(t, identity), identity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve serves a set until stop is called, at the test's end at the latest.
func serve(t *testing.T, conn *bus.Conn, s *tool.Set, id string) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = tool.Serve(ctx, conn, s, tool.Instance(id), tool.OnReady(func() { close(ready) }), tool.Logger(slog.New(slog.DiscardHandler)))
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	t.Cleanup(func() { _ = stop() })
	select {
	case <-ready:
	case <-done:
		t.Fatal(err)
	}
	return stop
}

func TestToolOfTheSDKConforms(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t)
	s := tool.NewSet("test")
	if err := tool.Add(s, "wait", wait); err != nil {
		t.Fatal(err)
	}
	serve(t, connect(t, m, "local"), s, "other")
	stop := serve(t, connect(t, m, "local"), s, "i1")
	Run(t, connect(t, m, "dispatcher"), Config{
		Tool: "wait", Instance: "i1", Stop: stop,
		Good: []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"forever":false}`)},
		Bad:  []json.RawMessage{json.RawMessage(`{"forever":1}`), json.RawMessage(`{"more":true}`)},
		Slow: json.RawMessage(`{"forever":true}`), Metadata: frames.Fields{{Key: "caller", Value: frames.Value("me")}},
	})
}

// A tool without an SDK, that subscribes two subjects and reads only JSON.
func TestPlainToolConforms(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t)
	nc := m.Connect(t, "local")
	answers := map[string]string{
		"wb.describe":   `{"type":"DESCRIPTION","name":"plain","content":{"name":"plain","encodings":["json"]}}` + "\n" + `{"type":"END","content":{"reason":"completed"}}`,
		"wb.tool.plain": `{"type":"TOOL_RESULT","toolCallId":"ID","streamId":"tooltest","content":{"result":1,"isError":false}}` + "\n" + `{"type":"END","content":{"reason":"completed"}}`,
	}
	for subject, answer := range answers {
		queue := map[string]string{"wb.tool.plain": bus.QueueTools}[subject]
		_, err := nc.QueueSubscribe(subject, queue, func(msg *nats.Msg) {
			in, err := frames.Decode(msg.Data)
			if err != nil {
				t.Errorf("%s: %v", subject, err)
				return
			}
			_ = msg.Respond([]byte(strings.Replace(answer, "ID", in.Frames[0].ToolCallID, 1)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	flush(t, nc)
	Run(t, connect(t, m, "dispatcher"), Config{Tool: "plain", Good: []json.RawMessage{json.RawMessage(`{}`)}})
}

func flush(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		t.Fatal(err)
	}
}

// faultyCall answers a call by hand; each send is one message.
type faultyCall func(q frames.Frame, send func(...frames.Frame))

// newFaulty finds an instance "f" of a tool "x" whose calls call answers.
func newFaulty(t *testing.T, call faultyCall) *suite {
	t.Helper()
	m := bustest.Start(t)
	conn := connect(t, m, "local")
	d := frames.Declaration{Name: "x", Identity: "local", Instance: "f", OutputSchema: json.RawMessage(`{"type":"number"}`)}
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	for subject, answer := range map[string][]frames.Frame{"wb.describe": {frames.Description(&d)}, "wb.inst.local.f": nil} {
		_, err := conn.Handle(context.Background(), subject, "", func(_ context.Context, r *bus.Request) {
			_ = r.End(frames.EndCompleted, slices.Clone(answer)...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := conn.NATS().Subscribe("wb.inst.local.f.x", func(msg *nats.Msg) {
		in, err := frames.Decode(msg.Data)
		if err != nil {
			in = frames.Message{Encoding: frames.Detect(msg.Data), Frames: make([]frames.Frame, 1)}
		}
		call(in.Frames[0], func(fs ...frames.Frame) { _ = msg.Respond(encode(t, in.Encoding, fs)) })
	})
	if err != nil {
		t.Fatal(err)
	}
	flush(t, conn.NATS())
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := newSuite(ctx, connect(t, m, "dispatcher"), Config{Tool: "x", Good: []json.RawMessage{json.RawMessage(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t *testing.T, enc frames.Encoding, fs []frames.Frame) []byte {
	ptrs := make([]*frames.Frame, len(fs))
	for i := range fs {
		ptrs[i] = &fs[i]
	}
	data, err := frames.Encode(enc, ptrs...)
	if err != nil {
		t.Error(err)
	}
	return data
}

// one makes the TOOL_RESULT 1 of a call.
func one(q frames.Frame) frames.Frame {
	return frames.Result(&frames.ToolResult{Result: json.RawMessage("1")}, frames.WithCall(q.ToolCallID, "x"), frames.WithStream(q.StreamID))
}

var completed = frames.End(frames.EndCompleted)

// What a tool does wrong in its answers is found, and said.
func TestFaultyAnswersAreFound(t *testing.T) {
	t.Parallel()
	with := func(q frames.Frame, change func(*frames.Frame)) frames.Frame {
		f := one(q)
		change(&f)
		return f
	}
	for want, call := range map[string]faultyCall{
		"END comes without a TOOL_RESULT":        func(_ frames.Frame, send func(...frames.Frame)) { send(completed) },
		"TOOL_RESULT comes before the message":   func(q frames.Frame, send func(...frames.Frame)) { send(one(q)); send(completed) },
		"the last message has 3 frames":          func(q frames.Frame, send func(...frames.Frame)) { send(one(q), one(q), completed) },
		"TICK stands behind END":                 func(q frames.Frame, send func(...frames.Frame)) { send(one(q), completed, frames.Tick()) },
		`END says "cancelled", want "completed"`: func(q frames.Frame, send func(...frames.Frame)) { send(one(q), frames.End(frames.EndCancelled)) },
		"something was answered behind END":      func(q frames.Frame, send func(...frames.Frame)) { send(one(q), completed); send(one(q), completed) },
		"has seq 7, want 1": func(q frames.Frame, send func(...frames.Frame)) {
			send(with(q, func(f *frames.Frame) { f.Seq = 7 }), completed)
		},
		`TOOL_RESULT names call "other"`: func(q frames.Frame, send func(...frames.Frame)) {
			send(with(q, func(f *frames.Frame) { f.ToolCallID = "other" }), completed)
		},
		"does not fit the output schema": func(q frames.Frame, send func(...frames.Frame)) {
			send(with(q, func(f *frames.Frame) { f.Content = frames.Fields{}.Raw() }), completed)
		},
		"failed: EXECUTION: no": func(q frames.Frame, send func(...frames.Frame)) {
			failed := frames.FailedResult(frames.NewError(frames.CodeExecution, "no"))
			send(with(q, func(f *frames.Frame) { f.Content = failed.Content }), frames.End(frames.EndError))
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if err := newFaulty(t, call).checkCalls(ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("err = %v, want %q", err, want)
			}
		})
	}
}

// An instance that takes anything, and knows no control, fails each check.
func TestCarelessInstanceIsFound(t *testing.T) {
	t.Parallel()
	s := newFaulty(t, func(q frames.Frame, send func(...frames.Frame)) { send(one(q), completed) })
	want := map[string]string{
		"declaration":      "needs identity and digest",
		"describe":         "DESCRIBE was answered with 0 frames",
		"bad arguments":    "want VALIDATION_INPUT",
		"hostile messages": "want BAD_FRAME",
		"wrong frames":     "want BAD_FRAME",
		"liveness":         "META {} was answered with 0 frames",
		"control":          "want ERROR BAD_FRAME",
	}
	for _, c := range s.checks() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		err := c.run(s, ctx)
		cancel()
		switch text := want[c.name]; {
		case text == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case text != "" && (err == nil || !strings.Contains(err.Error(), text)):
			t.Errorf("%s: %v, want %q", c.name, err, text)
		}
	}
}

func TestUnknownToolIsNotFound(t *testing.T) {
	t.Parallel()
	conn := connect(t, bustest.Start(t), "dispatcher")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := newSuite(ctx, conn, Config{Tool: "x", Good: []json.RawMessage{json.RawMessage(`{}`)}})
	if frames.CodeOf(err) != frames.CodeNotFound {
		t.Errorf("err = %v, want NOT_FOUND", err)
	}
	if _, err := newSuite(ctx, conn, Config{Tool: "x"}); frames.CodeOf(err) != frames.CodeValidationInput {
		t.Errorf("without arguments: %v", err)
	}
}
