package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weavebus/weavebus/internal/dispatch"
	"github.com/weavebus/weavebus/pkg/frames"
)

const end = `{"type":"END","content":{"reason":"completed"}}`

// What a tool answers is held to what a result may be: another call's is none,
// words of no list become those of the lists, and times are times.
//
// contract: W13, B26
func TestOddResults(t *testing.T) {
	failing := func(fields string) string {
		return `{"type":"TOOL_RESULT","content":{"isError":true,"error":{"code":"EXECUTION","message":"no"` + fields + `}}}`
	}
	for name, c := range map[string]struct {
		answer string
		check  func(t *testing.T, r *frames.ToolResult)
	}{
		"another call":                {`{"type":"TOOL_RESULT","toolCallId":"2","content":{"result":1}}` + end, code(frames.CodeNoResult)},
		"another tool":                {`{"type":"TOOL_RESULT","name":"other","content":{"result":1}}` + end, code(frames.CodeNoResult)},
		"another call before its own": {`{"type":"TOOL_RESULT","toolCallId":"2","content":{"result":2}}{"type":"TOOL_RESULT","toolCallId":"1","name":"echo","content":{"result":1}}` + end, value(`1`)},
		"the right names":             {`{"type":"TOOL_RESULT","toolCallId":"1","name":"echo","content":{"result":1}}` + end, value(`1`)},
		"a code of no list": {`{"type":"TOOL_RESULT","content":{"isError":true,"error":{"code":"EXPLODED","message":"no"}}}` + end, func(t *testing.T, r *frames.ToolResult) {
			code(frames.CodeExecution)(t, r)
			if r.Err.Reason != "exploded" {
				t.Errorf("reason %q", r.Err.Reason)
			}
		}},
		"an effect of no list": {failing(`,"effect":"maybe"`) + end, func(t *testing.T, r *frames.ToolResult) {
			code(frames.CodeExecution)(t, r)
			if r.Err.Effect != frames.EffectUnknown {
				t.Errorf("effect %q", r.Err.Effect)
			}
		}},
		"time before":   {failing(`,"retryAfterMs":-5`) + end, retryAfter(0)},
		"no time":       {failing(`,"retryAfterMs":"soon"`) + end, retryAfter(0)},
		"half a time":   {failing(`,"retryAfterMs":1.5`) + end, retryAfter(time.Millisecond)},
		"far away":      {failing(`,"retryAfterMs":1e300`) + end, retryAfter(time.Hour)},
		"time of years": {failing(`,"retryAfterMs":9007199254740993`) + end, retryAfter(time.Hour)},
		"NaN":           {"\x82\xa4type\xabTOOL_RESULT\xa7content\x81\xacretryAfterMs\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", code(frames.CodeNoResult)},
		"reason of no kind": {failing(`,"reason":"Not A Word"`) + end, func(t *testing.T, r *frames.ToolResult) {
			if r.Err.Reason != "" {
				t.Errorf("reason %q", r.Err.Reason)
			}
		}},
		"refs": {`{"type":"TOOL_RESULT","content":{"result":{"ref":"kept"},"ref":"you.s1/x","truncated":{"bytes":-1,"totalBytes":5,"ref":"you.s1/x"},"x-mine":1}}` + end, func(t *testing.T, r *frames.ToolResult) {
			value(`{"ref":"kept"}`)(t, r)
			if r.Truncated.Ref != "" || r.Truncated.Bytes != 0 || r.Truncated.TotalBytes != 5 || len(r.Extra) != 1 {
				t.Errorf("%+v, %v", r.Truncated, r.Extra)
			}
		}},
		"counts of its own": {`{"type":"TOOL_RESULT","content":{"result":1,"attempts":1000000,"durationMs":999999999,"queueMs":7,"instance":"forged"}}` + end, func(t *testing.T, r *frames.ToolResult) {
			if r.Attempts > frames.MaxRetries+1 || r.Duration > time.Second || r.Queue != 0 || r.Instance != "" {
				t.Errorf("%+v", r)
			}
		}},
		"a repeat that nobody allowed": {`{"type":"TOOL_RESULT","content":{"isError":true,"error":{"code":"INTERRUPTED","message":"no","retryable":true}}}` + end, func(t *testing.T, r *frames.ToolResult) {
			code(frames.CodeInterrupted)(t, r)
			if r.Err.Retryable {
				t.Error("retryable")
			}
		}},
		"long texts": {failing(`,"llmMessage":"`+strings.Repeat("x", 100_000)+`"`) + end, func(t *testing.T, r *frames.ToolResult) {
			if n := len(r.Err.LLMMessage); n > 9000 {
				t.Errorf("%d bytes for the model", n)
			}
		}},
		"no bool": {`{"type":"TOOL_RESULT","content":{"isError":"yes"}}` + end, code(frames.CodeExecution)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Config{}, func(t *testing.T, w *world) {
				w.plainRaw("echo", c.answer)
				c.check(t, w.d.Do(t.Context(), call("1")))
				w.holdsNothing()
			})
		})
	}
}

func code(want frames.Code) func(*testing.T, *frames.ToolResult) {
	return func(t *testing.T, r *frames.ToolResult) {
		t.Helper()
		wantCode(t, r, want)
	}
}

func value(want string) func(*testing.T, *frames.ToolResult) {
	return func(t *testing.T, r *frames.ToolResult) {
		t.Helper()
		if r.Err != nil || string(r.Result) != want {
			t.Errorf("got %s, %v", r.Result, r.Err)
		}
	}
}

func retryAfter(want time.Duration) func(*testing.T, *frames.ToolResult) {
	return func(t *testing.T, r *frames.ToolResult) {
		t.Helper()
		wantCode(t, r, frames.CodeExecution)
		if r.Err.RetryAfter != want {
			t.Errorf("retry after %v, want %v", r.Err.RetryAfter, want)
		}
	}
}
