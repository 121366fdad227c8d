package scripted_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newProvider(t *testing.T, cfg scripted.Config) *scripted.Provider {
	t.Helper()
	p, err := scripted.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parse(t *testing.T, text string) *scripted.Script {
	t.Helper()
	s, err := scripted.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func user(text string) provider.Message {
	return provider.Message{Role: provider.RoleUser, Text: text}
}

func wantError(t *testing.T, err error, code frames.Code, says ...string) {
	t.Helper()
	e := frames.AsError(err)
	if e == nil || e.Code != code {
		t.Errorf("error %v, want %s", err, code)
		return
	}
	for _, word := range says {
		if !strings.Contains(e.Message, word) {
			t.Errorf("message %q does not say %q", e.Message, word)
		}
	}
}

// events gives what a request yields, an error last.
func events(p provider.Provider, model string, messages ...provider.Message) ([]provider.Event, error) {
	var out []provider.Event
	for event, err := range p.Stream(context.Background(), &provider.Request{Model: model, Messages: messages}) {
		if err != nil {
			return out, err
		}
		out = append(out, event)
	}
	return out, nil
}

const everything = `
turns:
  - thinking: [hm, " so"]
    text: ["Let me ", look.]
    calls:
      - name: read_file
        id: c1
        arguments: {path: README.md, n: 9007199254740993, big: 18446744073709551616, f: 1.10, e: 1e3, s: "1e3", l: [true, null, {x: -0}], u: é<}
      - name: write_file
        argumentsJson: ['{"path":"a', '.txt"}']
      - name: now
    usage: {inputTokens: 10, outputTokens: 5}
  - text: done
    stop: length
`

func TestAScriptIsPlayed(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{"all": parse(t, everything)}})
	got, err := events(p, "all", user("hi"))
	if err != nil {
		t.Fatal(err)
	}
	want := []provider.Event{
		provider.Thinking{Text: "hm"}, provider.Thinking{Text: " so"}, provider.Text{Text: "Let me "}, provider.Text{Text: "look."},
		provider.ToolCall{ID: "c1", Name: "read_file", Arguments: `{"path":"README.md","n":9007199254740993,"big":18446744073709551616,"f":1.10,"e":1e3,"s":"1e3","l":[true,null,{"x":-0}],"u":"é<"}`},
		provider.ToolCall{ID: "call_1_2", Name: "write_file", Arguments: `{"path":"a.txt"}`},
		provider.ToolCall{ID: "call_1_3", Name: "now", Arguments: "{}"},
		provider.Stop{Reason: provider.StopToolCalls, Usage: provider.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	got, err = events(p, "all", user("hi"), provider.Message{Role: provider.RoleAssistant}, provider.Message{Role: provider.RoleTool})
	if diff := cmp.Diff([]provider.Event{provider.Text{Text: "done"}, provider.Stop{Reason: provider.StopLength}}, got); diff != "" || err != nil {
		t.Errorf("error %v, events (-want +got):\n%s", err, diff)
	}
}

// The same request gives the same events at any replica.
func TestScriptsAreStateless(t *testing.T) {
	t.Parallel()
	cfg := scripted.Config{Scripts: map[string]*scripted.Script{"all": parse(t, everything)}}
	one, two := newProvider(t, cfg), newProvider(t, cfg)
	for range 3 {
		a, errA := events(one, "all", user("hi"))
		b, errB := events(two, "all", user("hi"))
		if diff := cmp.Diff(a, b); diff != "" || errA != nil || errB != nil {
			t.Errorf("%v, %v\n%s", errA, errB, diff)
		}
	}
}

func TestBrokenArgumentsAreMarked(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{"x": parse(t, `
turns:
  - calls: [{name: f, argumentsJson: '{"a":'}, {name: f, argumentsJson: '{"a":1}{}'}]
  - {stop: length, calls: [{name: f, arguments: {a: 1}}]}
`)}})
	for n, want := range [][]string{{"arguments_incomplete", "invalid_json"}, {"arguments_truncated"}} {
		messages := append([]provider.Message{user("hi")}, make([]provider.Message, n)...)
		for i := range n {
			messages[i+1].Role = provider.RoleAssistant
		}
		turn, err := provider.Collect(p.Stream(t.Context(), &provider.Request{Model: "x", Messages: messages}))
		if err != nil || len(turn.Calls) != len(want) {
			t.Fatalf("%+v, %v", turn, err)
		}
		for i, call := range turn.Calls {
			if call.Invalid == nil || call.Invalid.Reason != want[i] {
				t.Errorf("call %d: %v", i, call.Invalid)
			}
		}
	}
}

func TestWhichTurn(t *testing.T) {
	t.Parallel()
	const turns = "turns: [{text: one}, {text: two}]\n"
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{
		"all": parse(t, turns), "user": parse(t, "count: user\n"+turns), "last": parse(t, "after: last\n"+turns),
	}})
	answer := provider.Message{Role: provider.RoleAssistant, Text: "x"}
	long := []provider.Message{user("a"), answer, user("b"), answer, user("c")}
	for model, want := range map[string][]string{
		"all": {"one", "two", ""}, "user": {"one", "one", "one"}, "last": {"one", "two", "two"},
	} {
		for i, text := range want {
			got, err := events(p, model, long[:1+2*i]...)
			switch {
			case text == "":
				wantError(t, err, frames.CodeLimit, "has 2 turns, and turn 3")
			case err != nil || got[0] != provider.Event(provider.Text{Text: text}):
				t.Errorf("%s, request %d: %v, %v", model, i+1, got, err)
			}
		}
	}
}

func TestErrorsOfAScript(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{"x": parse(t, `
turns:
  - text: part
    calls: [{name: f}]
    error: {code: BUSY, message: slow down, reason: rate_limit, retryAfterMs: 100, retryable: false}
`)}})
	got, err := events(p, "x")
	wantError(t, err, frames.CodeBusy, "slow down")
	if e := frames.AsError(err); e.Reason != "rate_limit" || e.RetryAfter != 100*time.Millisecond || e.Retryable {
		t.Errorf("error %+v", e)
	}
	if diff := cmp.Diff([]provider.Event{provider.Text{Text: "part"}}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestExpectations(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{"x": parse(t, "turns: [{expect: README, text: ok}]")}})
	if _, err := events(p, "x", user("the README says")); err != nil {
		t.Error(err)
	}
	_, err := events(p, "x", user("README"), user(strings.Repeat("other ", 1000)))
	wantError(t, err, frames.CodeValidationInput, `turn 1: expected "README"`, "other")
	if len(err.Error()) > 500 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{
		"x": parse(t, "turns: [{delay: 1h, chunkDelay: 2m, text: [a, b, c]}]"), "only": parse(t, "turns: [{delay: 1h}]"),
	}})
	synctest.Test(t, func(t *testing.T) {
		for model, want := range map[string]time.Duration{"x": time.Hour + 6*time.Minute, "only": time.Hour} {
			start := time.Now()
			if _, err := events(p, model); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("%s took %s, want %s", model, took, want)
			}
		}
	})
}

func TestDelaysEndWithTheContext(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{"x": parse(t, "turns: [{delay: 1h, text: a}]")}})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := provider.Collect(p.Stream(ctx, &provider.Request{Model: "x"}))
		wantError(t, err, frames.CodeTimeout)
		ctx, stop := context.WithCancelCause(t.Context())
		stop(frames.NewError(frames.CodeInterrupted, "the process stops"))
		_, err = provider.Collect(p.Stream(ctx, &provider.Request{Model: "x"}))
		wantError(t, err, frames.CodeInterrupted, "the process stops")
	})
}

func TestTheRangeMayBeLeft(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Scripts: map[string]*scripted.Script{"all": parse(t, everything)}})
	for leave := 1; leave <= 8; leave++ {
		n := 0
		for _, err := range p.Stream(t.Context(), &provider.Request{Model: "all"}) {
			if n++; err != nil || n == leave {
				break
			}
		}
		if n != leave {
			t.Errorf("left after %d, want %d", n, leave)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	p := newProvider(t, scripted.Config{
		Scripts: map[string]*scripted.Script{"own": parse(t, "turns: [{text: own}]")},
		Files: fstest.MapFS{
			"a.yaml": file("turns: [{text: a}]"), "sub/b.json": file("{\n\t\"turns\": [{\"text\": \"\\ud83d\\ude00\", \"delay\": \"0s\"}]\n}"),
			"c.yml": file("turns: [{text: c}]"), "notes.txt": file("no"), "own.yaml": file("turns: [{text: other}]"),
			"broken.yaml": file("turns:\n  - text: a\n    txet: b\n"), "huge.yaml": file(strings.Repeat("#", 2<<20)), "dir/x.txt": file(""),
		},
	})
	for model, want := range map[string]string{"a": "a", "a.yaml": "a", "sub/b": "😀", "sub/b.json": "😀", "c": "c", "own": "own"} {
		got, err := events(p, model)
		if err != nil || got[0] != provider.Event(provider.Text{Text: want}) {
			t.Errorf("%s: %v, %v", model, got, err)
		}
	}
	for _, model := range []string{"", "zz", "../a", "/a.yaml", "dir", "sub", ".", "a.yaml/x", strings.Repeat("x", 9000)} {
		_, err := events(p, model)
		wantError(t, err, frames.CodeNotFound, "there are: a, broken, c, demo, huge, own, sub/b")
	}
	_, err := events(p, "broken")
	wantError(t, err, frames.CodeValidationInput, `script "broken.yaml": line 3: unknown field "txet"`)
	_, err = events(p, "huge")
	wantError(t, err, frames.CodeTooLarge, "1048576")
}

// failing is a folder that cannot be read.
type failing struct{}

func (failing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: "/secret/" + name, Err: errors.New("permission denied")}
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Config{Files: failing{}})
	_, err := events(p, "a")
	wantError(t, err, frames.CodeUnavailable, "permission denied")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error names a path of the host: %v", err)
	}
	if diff := cmp.Diff([]string{"demo"}, p.Models()); diff != "" {
		t.Error(diff)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	some := &scripted.Script{Turns: []scripted.Turn{{}}}
	for name, script := range map[string]*scripted.Script{"demo": some, "": some, "nil": nil, "empty": {}} {
		_, err := scripted.New(scripted.Config{Scripts: map[string]*scripted.Script{name: script}})
		wantError(t, err, frames.CodeValidationInput, `"`+name+`"`)
	}
}

func TestBrokenScripts(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                              "there are no turns",
		"turns: []":                                     "there are no turns",
		"hello":                                         "line 1",
		"turns:\n  - text: [a\n":                        "line ",
		"turns:\n\t- text: a":                           "line 2",
		"turns:\n  - text: a\n    foo: 1":               `line 3: unknown field "foo"`,
		"turns: [{text: {a: 1}}]":                       "line 1: a text or a list",
		"turns:\n  - delay: soon":                       "line 2",
		"turns: [{stop: never}]":                        `line 1: "never" is none of [stop tool-calls`,
		"count: 3\nturns: [{}]":                         `line 1: "3" is none of [all user]`,
		"after: all\nturns: [{}]":                       `line 1: "all" is none of [error last]`,
		"turns: [{}, {calls: [{id: a}]}]":               "turn 2: call 1: it has no name",
		"turns: [{error: {code: OOPS}}]":                `line 1: there is no error code "OOPS"`,
		"turns: [{delay: -1s}]":                         "line 1: a duration",
		"turns: [{error: {message: a}}]":                "turn 1: the error has no code",
		"turns: [{calls: [{name: f, arguments: [1]}]}]": "line 1: arguments are not a mapping",
		"turns:\n- calls:\n  - name: f\n    arguments:\n      a: .nan":          "line 5: anchors",
		"turns:\n- calls:\n  - name: f\n    arguments: {a: {b: &x 1}, c: *x}":   "line 4: anchors",
		"turns: [{calls: [{name: f, arguments: {a: 1}, argumentsJson: '{}'}]}]": "both arguments",
		"turns: [{text: a, text: b}]":                                           "line 1",
		"turns: [{}]\n---\nturns: [{}]":                                         "more than one document",
		"{\"turns\": [\n{\"text\": \"a\",,}]}":                                  "line 2",
		"turns: " + strings.Repeat("[", 500_000):                                "line 1: nested too deep",
		"\n" + strings.Repeat("- ", 500_000):                                    "line 2: nested too deep",
	} {
		_, err := scripted.Parse("x.yaml", []byte(text))
		wantError(t, err, frames.CodeValidationInput, `script "x.yaml": `, says)
		if err != nil && (len(err.Error()) > 400 || frames.AsError(err).Retryable) {
			t.Errorf("%.40q: error of %d bytes, retryable %v", text, len(err.Error()), frames.AsError(err).Retryable)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{everything, "turns: [{text: a}]", `{"turns":[{"calls":[{"name":"f","arguments":{"a":1e3}}]}]}`, "turns:\n- error: {code: BUSY}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scripted.Parse("x", text)
		if err != nil {
			if frames.CodeOf(err) != frames.CodeValidationInput {
				t.Fatalf("error %v", err)
			}
			return
		}
		if len(s.Turns) == 0 {
			t.Fatal("no turns")
		}
	})
}
