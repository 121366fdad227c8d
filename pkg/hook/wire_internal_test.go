package hook

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// carried gives frames as they come out of a message.
func carried(t rapid.TB, enc frames.Encoding, fs []*frames.Frame) *frames.Message {
	data, err := frames.Encode(enc, fs...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := frames.Decode(data)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return &m
}

// A policy service sees the call that the dispatcher means, whatever the
// arguments are.
//
// contract: S15, B35
func TestRequestIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)
	maybe := rapid.OneOf(rapid.Just(""), name)
	text := rapid.OneOf(
		rapid.SampledFrom([]string{`{}`, `{"a": 1.0}`, `{"big":9007199254740993}`, `{"a":`, `null x`, "\u00e9", `{"arguments":{"x":1}}`}),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		c := &Call{
			ID: maybe.Draw(t, "id"), Tool: name.Draw(t, "tool"), Caller: name.Draw(t, "caller"), SessionID: maybe.Draw(t, "session"),
			Workspace: rapid.String().Draw(t, "workspace"), Depth: rapid.IntRange(0, 9).Draw(t, "depth"), Identity: maybe.Draw(t, "identity"),
			Annotations: frames.Annotations{Destructive: rapid.Bool().Draw(t, "destructive"), ReadOnly: rapid.Bool().Draw(t, "read")},
			Arguments:   json.RawMessage(text.Filter(notBlank).Draw(t, "arguments")), Raw: json.RawMessage(text.Filter(notBlank).Draw(t, "raw")),
		}
		var res *frames.ToolResult
		phase := rapid.SampledFrom(Phases()).Draw(t, "phase")
		if rapid.Bool().Draw(t, "ran") {
			res = &frames.ToolResult{Result: json.RawMessage(`{"n":1.0}`), Attempts: 2, Instance: "i"}
		}
		enc := rapid.SampledFrom([]frames.Encoding{frames.JSON, frames.Msgpack}).Draw(t, "encoding")
		got, err := askedOf(carried(t, enc, request("policy", phase, c, res)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&asked{phase, c, res}, got, cmp.AllowUnexported(asked{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

func notBlank(s string) bool {
	return json.Valid([]byte(s)) && s != "null" || len(s) > 0 && s[0] > ' ' && s != "null"
}

// What a hook decided is what the dispatcher reads.
//
// contract: S19, B33
func TestDecisionIsReadAsItWasMade(t *testing.T) {
	t.Parallel()
	res := &frames.ToolResult{Result: json.RawMessage(`null`), Parts: []frames.Part{{Type: "text", Text: "hi"}}}
	c := &Call{ID: "1", Tool: "echo"}
	for _, enc := range []frames.Encoding{frames.JSON, frames.Msgpack} {
		for _, d := range []Decision{
			Proceed(), Deny(""), Deny("a reason"), Mutate(map[string]any{"n": 1}), Mutate(json.RawMessage(`{"n":1.0}`)), Skip(nil), Skip(7), Skip(res),
		} {
			fs, err := d.frames(c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decisionFrom(carried(t, enc, pointers(fs)).Frames)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d, got, cmp.AllowUnexported(Decision{})); diff != "" {
				t.Errorf("%s %s: %s", enc, d.Action(), diff)
			}
		}
		for _, o := range []Outcome{Keep(), Replace(nil), Replace(res), Replace(&frames.ToolResult{Err: frames.Denied("echo", "no")})} {
			fs, err := o.frames(c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := outcomeFrom(carried(t, enc, pointers(fs)).Frames)
			if err != nil {
				t.Fatal(err)
			}
			opts := []cmp.Option{cmp.AllowUnexported(Outcome{}), cmp.Comparer(func(a, b *frames.Error) bool { return a == b || a != nil && b != nil && a.Error() == b.Error() })}
			if diff := cmp.Diff(o, got, opts...); diff != "" {
				t.Errorf("%s: %s", enc, diff)
			}
		}
	}
}

func pointers(fs []frames.Frame) []*frames.Frame {
	out := make([]*frames.Frame, len(fs))
	for i := range fs {
		out[i] = &fs[i]
	}
	return out
}

func TestValuesWithoutAForm(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"mutate": func() error { _, err := Mutate(func() {}).Arguments(); return err }(),
		"text":   func() error { _, err := Mutate(json.RawMessage(`{`)).Arguments(); return err }(),
		"skip":   func() error { _, err := Skip(make(chan int)).Result(); return err }(),
		"keep":   func() error { _, err := Replace(json.RawMessage(nil)).Result(); return err }(),
	} {
		if frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, d := range []Decision{{}, Mutate(func() {}), Skip(func() {})} {
		if _, err := d.frames(&Call{}); err == nil {
			t.Errorf("%q has frames", d.Action())
		}
	}
}

// What comes from a policy service is read without a panic, and only the word
// itself lets a call proceed.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		`{"type":"META","content":{"decision":"proceed"}}`, `{"type":"META","content":{"decision":{"allow":true}}}`,
		`{"type":"META","content":{"decision":"deny","reason":7}}`, `{"type":"TOOL_CALL","content":{"arguments":{"a":1}}}`,
		`{"type":"TOOL_CALL"}`, `{"type":"TOOL_RESULT","content":{"isError":"x"}}`, `{"type":"END"}{"type":"META"}`, "\x81\xa4type\xa4META",
		`{"type":"TOOL_CALL","name":"f","content":{"argumentsJson":"{"},"metadata":{"phase":"after","depth":-1,"annotations":[]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := frames.Decode(data)
		if err != nil {
			return
		}
		d, err := decisionFrom(m.Frames)
		if err == nil && d.Action() == ActionProceed {
			word, _ := m.Frames[0].Content.Lookup("decision").Text()
			if len(m.Frames) != 1 || m.Frames[0].Type != frames.TypeMeta || word != "proceed" {
				t.Errorf("%q proceeds", data)
			}
		}
		if err != nil && d.Action() != "" {
			t.Errorf("%q: %s beside %v", data, d.Action(), err)
		}
		_, _ = outcomeFrom(m.Frames)
		if a, err := askedOf(&m); err == nil && a.call.Depth < 0 {
			t.Errorf("%q: depth %d", data, a.call.Depth)
		}
	})
}

// docs/protocol.md, section 9, shows what is written and read.
func TestProtocolPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "\n## 9. Hooks\n")
	page, _, _ = strings.Cut(page, "\n## ")
	blocks := regexp.MustCompile("(?s)```json\n(.*?)\n```").FindAllStringSubmatch(page, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d blocks of JSON", len(blocks))
	}
	c := &Call{
		ID: "call-1", Tool: "run_command", Caller: "me", SessionID: "s1", Workspace: "docs", Depth: 1, Identity: "local",
		Annotations: frames.Annotations{Destructive: true},
		Arguments:   json.RawMessage(`{"command":"rm -rf build"}`), Raw: json.RawMessage(`{"command": "rm -rf build"}`),
	}
	data, err := frames.Encode(frames.JSON, request("policy", PhaseBefore, c, nil)...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(blocks[0][1], string(data)); diff != "" {
		t.Error(diff)
	}
	for i, want := range []Action{ActionDeny, ActionMutate} {
		m, err := frames.Decode([]byte(blocks[i+1][1]))
		if err != nil {
			t.Fatal(err)
		}
		d, err := decisionFrom(m.Frames[:1])
		if err != nil || d.Action() != want || m.Frames[1].Type != frames.TypeEnd {
			t.Errorf("%s: %s %v", blocks[i+1][1], d.Action(), err)
		}
	}
}
