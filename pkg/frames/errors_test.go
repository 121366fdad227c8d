package frames

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestErrorTexts holds what developers and models read of each error.
//
// contract: S8, S9, S10, S11, S12
func TestErrorTexts(t *testing.T) {
	issues := []Issue{
		{Path: "", Message: "is missing a field", Expected: "path"},
		{Path: "/limit", Message: "is of the wrong type", Expected: "integer", Got: `"ten"`},
	}
	for _, c := range []struct {
		err              *Error
		code             Code
		message, forLLM  string
		retryable        bool
		effect           Effect
		retryAfterMillis int64
	}{
		{NotFound("raed_file", []string{"write_file", "read_file", "run_command"}), CodeNotFound, `Tool "raed_file" not found`,
			`Tool "raed_file" not found. Available tools: read_file, write_file, run_command. Use one of them.`, true, EffectNone, 0},
		{NotFound("x", nil), CodeNotFound, `Tool "x" not found`,
			`Tool "x" not found. No tools are currently registered. Go on without one, or use one when it is there.`, true, EffectNone, 0},
		{NotFound("read_*", nil), CodeNotFound, `Tool "read_*" not found`,
			`Tool "read_*" not found. That is no name of a tool: names are 1 to 64 letters, digits, _ and -.`, true, EffectNone, 0},
		{Disabled("x"), CodeDisabled, `Tool "x" is disabled`,
			`Tool "x" is currently disabled. Try another approach, or wait until it is enabled.`, false, EffectNone, 0},
		{Denied("x", "only on weekdays"), CodeDenied, `Tool "x" denied: only on weekdays`,
			`The call of tool "x" was not allowed: only on weekdays. Do not repeat it as it is.`, false, EffectNone, 0},
		{Denied("x", ""), CodeDenied, `Tool "x" denied`, `The call of tool "x" was not allowed. Do not repeat it as it is.`, false, EffectNone, 0},
		{Unavailable("x"), CodeUnavailable, `Tool "x" is not available: nobody serves it now`,
			`Tool "x" is not available: nobody serves it now. Try again later, or another way.`, true, EffectNone, 0},
		{Busy("x", 250*time.Millisecond), CodeBusy, `Tool "x" is busy`, `Tool "x" is busy. Try again later, or another way.`, true, EffectNone, 250},
		{InvalidInput("x", issues...), CodeValidationInput, `Invalid input for tool "x": (root): is missing a field (expected path)`,
			"Invalid input for tool \"x\":\n  - (root): is missing a field (expected path)\n  - /limit: is of the wrong type (expected integer, got \"ten\")\nFix this and call the tool again.", true, EffectNone, 0},
		{InvalidOutput("x", issues[1]), CodeValidationOutput, `Tool "x" gave a result that does not fit its schema: /limit: is of the wrong type (expected integer, got "ten")`,
			`Tool "x" gave a result that does not fit its own schema. The tool is at fault, not your call. It has acted; try another approach.`, false, EffectDone, 0},
		{Timeout("x", 1500*time.Millisecond), CodeTimeout, "Tool x timed out after 1500ms",
			"Tool x timed out after 1500ms. It may have acted: check before you call it again.", false, EffectUnknown, 1500},
		{Timeout("x", 30*time.Second).WithReplay(true), CodeTimeout, "Tool x timed out after 30000ms",
			"Tool x timed out after 30000ms. It may be called again.", true, EffectUnknown, 5000},
		{Interrupted("x", ""), CodeInterrupted, "Tool x was interrupted",
			"Tool x was interrupted: it may have run, and may still. It may have acted: check before you call it again.", false, EffectUnknown, 0},
		{Cancelled("x"), CodeCancelled, "Tool x was cancelled", "Tool x was cancelled. It may have acted before.", false, EffectUnknown, 0},
		{NoResult("x").WithReplay(false), CodeNoResult, "Tool x ended without a result",
			"Tool x ended without a result. It may have acted: check before you call it again.", false, EffectUnknown, 0},
		{TooLarge("arguments", 5_000_000, MaxInline), CodeTooLarge, "arguments: 5000000 bytes, the limit is 4194304",
			"arguments: 5000000 bytes, the limit is 4194304. Send less, or in parts.", false, EffectNone, 0},
		{Limit("rounds", 3), CodeLimit, "The limit of 3 rounds is reached", "The limit of 3 rounds is reached", false, EffectNone, 0},
		{UnknownType("NEWS"), CodeBadFrame, "Unknown frame type: NEWS", "Unknown frame type: NEWS", false, EffectNone, 0},
		{Internal("7f3a", errors.New("/srv/x broke")), CodeInternal, "internal error, log id 7f3a", internalForModel, false, EffectUnknown, 0},
	} {
		got := c.err
		if got.Code != c.code || got.Message != c.message || got.ForModel() != c.forLLM {
			t.Errorf("%s %q\n%q, want\n%s %q\n%q", got.Code, got.Message, got.ForModel(), c.code, c.message, c.forLLM)
		}
		if got.Retryable != c.retryable || got.Effect != c.effect || got.RetryAfter.Milliseconds() != c.retryAfterMillis {
			t.Errorf("%s: retryable %v after %v, effect %s", c.message, got.Retryable, got.RetryAfter, got.Effect)
		}
	}
}

// TestTimeoutRetryAfter: a time-out may be tried again after as long, at most
// five seconds.
//
// contract: S7, P21
func TestTimeoutRetryAfter(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Millisecond, 5 * time.Second: 5 * time.Second, time.Hour: 5 * time.Second,
	} {
		if got := Timeout("t", limit).RetryAfter; got != want {
			t.Errorf("after %v: %v, want %v", limit, got, want)
		}
	}
}

// TestTextsOfEffects: what a model reads of a call that was stopped says whether
// it may have acted.
//
// contract: B34
func TestTextsOfEffects(t *testing.T) {
	for _, c := range []struct {
		err       *Error
		none, may string
	}{
		{Cancelled("x"), "Tool x was cancelled. It did not run.", "Tool x was cancelled. It may have acted before."},
		{Timeout("x", time.Second), "Tool x timed out after 1000ms. It did not run.",
			"Tool x timed out after 1000ms. It may have acted: check before you call it again."},
		{Timeout("x", time.Second).WithReplay(true), "Tool x timed out after 1000ms. It may be called again.",
			"Tool x timed out after 1000ms. It may be called again."},
		{Busy("x", 0), Busy("x", 0).ForModel(), Busy("x", 0).ForModel()},
		{NewError(CodeCancelled, "stop"), "stop", "stop"},
	} {
		none := c.err.WithEffect(EffectNone)
		may := none.WithEffect(EffectUnknown)
		if none.Effect != EffectNone || may.Effect != EffectUnknown || c.err.WithEffect(EffectDone).Effect != EffectDone {
			t.Errorf("%v: effects %s, %s", c.err, none.Effect, may.Effect)
		}
		if none.ForModel() != c.none || may.ForModel() != c.may {
			t.Errorf("%q, %q, want %q, %q", none.ForModel(), may.ForModel(), c.none, c.may)
		}
	}
}

// TestExecutionTexts: the message is the tool's own, attempts are told when
// there were several, and the tool says whether to try again.
//
// contract: S13, P20, P22, W21
func TestExecutionTexts(t *testing.T) {
	said := NewError(CodeExecution, "disk full").With(func(e *Error) {
		e.Reason, e.Retryable, e.Effect, e.RetryAfter = "disk_full", true, EffectNone, time.Second
	})
	stack := errors.New("boom\ngoroutine 7 [running]:\nmain.main()\n\t/home/me/main.go:3")
	for _, c := range []struct {
		err             *Error
		message, forLLM string
	}{
		{Execution("x", errors.New("boom"), 1), "boom", "Tool x failed: boom. Try another approach."},
		{Execution("x", NewError(CodeExecution, "boom."), 3), "boom after 3 attempts", "Tool x failed after 3 attempts: boom. Try another approach."},
		{Execution("x", said, 2), "disk full after 2 attempts", "Tool x failed after 2 attempts: disk full. You may try again."},
		{Execution("x", fmt.Errorf("write: %w", said), 1), "write: EXECUTION: disk full", "Tool x failed: write: EXECUTION: disk full. You may try again."},
		{Execution("x", said.With(func(e *Error) { e.LLMMessage = "Free some space." }), 1), "disk full", "Free some space."},
		{Execution("x", stack, 1), "boom", "Tool x failed: boom. Try another approach."},
		{Execution("x", nil, 0), "unknown error", "Tool x failed: unknown error. Try another approach."},
	} {
		if c.err.Code != CodeExecution || c.err.Message != c.message || c.err.ForModel() != c.forLLM {
			t.Errorf("%s: %q\n%q, want\n%q\n%q", c.err.Code, c.err.Message, c.err.ForModel(), c.message, c.forLLM)
		}
	}
	e := Execution("x", said, 1)
	if !e.Retryable || e.Effect != EffectNone || e.RetryAfter != time.Second || e.Reason != "disk_full" {
		t.Errorf("what the tool said is lost: %+v", e)
	}
	if !errors.Is(e, said) {
		t.Error("the cause is lost")
	}
}

// TestNotFoundListsTwenty: the nearest name first, at most twenty.
//
// contract: S8, B49
func TestNotFoundListsTwenty(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("tool_%03d", i))
	}
	names = append(names, "Read-File")
	text := NotFound("read_fil", names).ForModel()
	list, _, _ := strings.Cut(text[strings.Index(text, "Available tools: ")+len("Available tools: "):], ".")
	listed := strings.Split(list, ", ")
	if len(listed) != 20 || listed[0] != "Read-File" || !strings.Contains(text, "There are 481 more.") {
		t.Errorf("listed %d: %s", len(listed), text)
	}
}

// TestErrorTextsAreBounded: whatever an error is made of, it takes few bytes,
// and its texts are whole runes.
//
// contract: A35, B34
func TestErrorTextsAreBounded(t *testing.T) {
	long := strings.Repeat("日", 100_000)
	var issues []Issue
	for range 1000 {
		issues = append(issues, Issue{Path: "/" + long, Message: long, Expected: long, Got: long})
	}
	for _, e := range []*Error{
		NotFound(long, []string{long, long}), Disabled(long), Denied(long, long), Unavailable(long), Busy(long, 0),
		InvalidInput(long, issues...), InvalidOutput(long, issues...), Timeout(long, time.Second), Interrupted(long, long),
		Cancelled(long), NoResult(long), Execution(long, errors.New(long), 2), UnknownType(Type(long)), NewError(CodeExecution, "%s", long),
	} {
		raw := e.Raw()
		if len(raw) > 160<<10 {
			t.Errorf("%s takes %d bytes", e.Code, len(raw))
		}
		read := ErrorFrom(raw)
		for _, s := range []string{read.Message, read.LLMMessage} {
			if len(s) > maxMessage || !utf8.ValidString(s) || strings.ContainsRune(s, utf8.RuneError) {
				t.Errorf("%s: a text of %d bytes", e.Code, len(s))
			}
		}
	}
}

// TestInterruptedShowsTheTail: a model sees the end of the output.
func TestInterruptedShowsTheTail(t *testing.T) {
	text := Interrupted("x", strings.Repeat("日", 5000)+"the end").ForModel()
	if !strings.Contains(text, "日the end\n It may have acted") || len(text) > 3000 || !utf8.ValidString(text) {
		t.Errorf("%d bytes: …%s", len(text), text[max(0, len(text)-200):])
	}
}

// TestDistance holds the nearest names against a plain recursion.
func TestDistance(t *testing.T) {
	var slow func(a, b string) int
	slow = func(a, b string) int {
		switch {
		case a == "" || b == "":
			return len(a) + len(b)
		case a[0] == b[0]:
			return slow(a[1:], b[1:])
		}
		return 1 + min(slow(a[1:], b), slow(a, b[1:]), slow(a[1:], b[1:]))
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching(`[abc]{0,6}`).Draw(t, "a")
		b := rapid.StringMatching(`[abc]{0,6}`).Draw(t, "b")
		if got, want := distance(a, b), slow(a, b); got != want {
			t.Fatalf("%q to %q: %d, want %d", a, b, got, want)
		}
	})
}

// TestCodeTable holds the closed list of codes and their defaults.
//
// contract: B6, W16, W17, W19, S40
func TestCodeTable(t *testing.T) {
	for _, c := range []struct {
		code      Code
		retryable bool
		effect    Effect
		exit      int
	}{
		{CodeNotFound, true, EffectNone, 2}, {CodeDisabled, false, EffectNone, 5}, {CodeDenied, false, EffectNone, 5},
		{CodeUnavailable, true, EffectNone, 4}, {CodeBusy, true, EffectNone, 4}, {CodeConflict, false, EffectNone, 1},
		{CodeValidationInput, true, EffectNone, 1}, {CodeValidationOutput, false, EffectDone, 1}, {CodeTimeout, false, EffectUnknown, 1},
		{CodeInterrupted, false, EffectUnknown, 1}, {CodeCancelled, false, EffectUnknown, 130}, {CodeExecution, false, EffectUnknown, 1},
		{CodeTooLarge, false, EffectNone, 1}, {CodeNoResult, false, EffectUnknown, 1}, {CodeBadFrame, false, EffectNone, 2},
		{CodeLimit, false, EffectNone, 1}, {CodeInternal, false, EffectUnknown, 1},
	} {
		e := NewError(c.code, "x")
		if !c.code.Valid() || e.Retryable != c.retryable || e.Effect != c.effect || c.code.ExitCode() != c.exit {
			t.Errorf("%s: valid %v, retryable %v, effect %s, exit %d", c.code, c.code.Valid(), e.Retryable, e.Effect, c.code.ExitCode())
		}
	}
	if len(traits) != 17 || Code("OOPS").Valid() || Code("OOPS").ExitCode() != 1 {
		t.Errorf("%d codes", len(traits))
	}
}

// TestErrorFrom reads errors as anybody may write them.
//
// contract: B6, G51, G60
func TestErrorFrom(t *testing.T) {
	for _, c := range []struct {
		json string
		want Error
	}{
		{`{}`, Error{Code: CodeExecution, Effect: EffectUnknown}},
		{`{"message":"boom"}`, Error{Code: CodeExecution, Message: "boom", Effect: EffectUnknown}},
		{`{"code":"ENOENT","message":"x"}`, Error{Code: CodeExecution, Reason: "enoent", Message: "x", Effect: EffectUnknown}},
		{`{"code":"E 1","reason":"Not A Word","message":"x"}`, Error{Code: CodeExecution, Message: "x", Effect: EffectUnknown}},
		{`{"code":"BUSY","reason":"draining","retryAfterMs":250.7,"effect":"perhaps"}`,
			Error{Code: CodeBusy, Reason: "draining", Retryable: true, RetryAfter: 250 * time.Millisecond, Effect: EffectNone}},
		{`{"code":"TIMEOUT","retryable":true,"effect":"none","retryAfterMs":-5}`, Error{Code: CodeTimeout, Retryable: true, Effect: EffectNone}},
		{`{"code":"TIMEOUT","retryAfterMs":1e300}`, Error{Code: CodeTimeout, RetryAfter: 9223372036854 * time.Millisecond, Effect: EffectUnknown}},
		{`{"code":"TIMEOUT","retryAfterMs":"5"}`, Error{Code: CodeTimeout, Effect: EffectUnknown}},
		{`{"code":"VALIDATION_INPUT","llmMessage":"fix it","issues":[{"path":"/a","expected":"x","got":"y","message":"z"},7,{}]}`,
			Error{Code: CodeValidationInput, LLMMessage: "fix it", Retryable: true, Effect: EffectNone, Issues: []Issue{{"/a", "x", "y", "z"}, {}}}},
	} {
		raw, err := FromJSON([]byte(c.json))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&c.want, ErrorFrom(raw), ignoreCause); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.json, diff)
		}
	}
}

// TestErrorRoundTrip: an error is the same at the other end, but for its cause.
//
// contract: S6
func TestErrorRoundTrip(t *testing.T) {
	e := InvalidInput("x", Issue{Path: "/a", Expected: "integer", Got: "1.5", Message: "not whole"}).WithReason("no_fraction")
	e = e.With(func(c *Error) { c.RetryAfter, c.cause = time.Second, errors.New("secret") })
	for _, f := range []Frame{Fail(e), FailedResult(e)} {
		data, err := Encode(JSON, &f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "secret") {
			t.Errorf("the cause travels: %s", data)
		}
		m := read(t, data)
		got := m.Frames[0].Err()
		if f.Type == TypeToolResult {
			r, err := m.Frames[0].Result()
			if err != nil {
				t.Fatal(err)
			}
			got = r.Err
		}
		if diff := cmp.Diff(e, got, ignoreCause); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestAsError: every error leaves with a code.
//
// contract: W13, B26, B36
func TestAsError(t *testing.T) {
	own := NewError(CodeBusy, "full")
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, ""}, {own, CodeBusy}, {fmt.Errorf("x: %w", own), CodeBusy}, {errors.Join(errors.New("a"), own), CodeBusy},
		{context.Canceled, CodeCancelled}, {fmt.Errorf("x: %w", context.DeadlineExceeded), CodeTimeout}, {errors.New("x"), CodeInternal},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("%v leaves as %s, want %s", c.err, got, c.want)
		}
	}
	if AsError(nil) != nil {
		t.Error("nil is an error")
	}
	internal := AsError(errors.New("open /etc/secret: denied"))
	if strings.Contains(internal.ForModel(), "/etc") {
		t.Errorf("a model reads %q", internal.ForModel())
	}
	if !errors.Is(own.WithReason("x"), &Error{Code: CodeBusy}) || errors.Is(own, &Error{Code: CodeDenied}) || errors.Is(own, &Error{Code: CodeBusy, Reason: "y"}) {
		t.Error("errors.Is does not compare by code and reason")
	}
}

// TestErrorJSON: encoding/json writes an error as on the wire.
func TestErrorJSON(t *testing.T) {
	text, err := json.Marshal(map[string]any{"error": NewError(CodeConflict, "twice")})
	if want := `{"error":{"code":"CONFLICT","message":"twice","llmMessage":"twice","retryable":false,"effect":"none"}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
