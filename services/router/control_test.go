package router_test

import (
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Nothing that is asked is met with silence but what another process may know.
func TestUnknownRequestsAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sink := w.open("echo", "c-1").sink
		for subject, requests := range map[string]map[string]string{
			"wb.ctl.me": {
				`{"type":"NEW"}`: "Unknown frame type: NEW", `{"type":"META"}{"type":"NEW"}`: "Unknown frame type: META",
				`{"type":"CANCEL"}`: "CANCEL names no call: give toolCallId", `{"type":"ABORT"}`: "ABORT names no run: give streamId",
			},
			"wb.list.me":      {`{"type":"NEW"}`: "Unknown frame type: NEW", `{"type":"TOOL_CALL"}`: "Unknown frame type: TOOL_CALL"},
			"wb.call.me.echo": {`{"type":"NEW"}`: "Unknown frame type: NEW", `{"type":"CANCEL"}`: "Unknown frame type: CANCEL"},
			sink:              {`{"type":"NEW"}`: "Unknown frame type: NEW", `{"type":"ABORT"}`: "Unknown frame type: ABORT"},
		} {
			for data, message := range requests {
				all := w.send(w.me, subject, data).read()
				err := all[0].Err()
				if all[0].Type == frames.TypeToolResult {
					res, _ := all[0].Result()
					err = res.Err
				}
				if e := frames.AsError(err); e == nil || e.Code != frames.CodeBadFrame || e.Message != message {
					t.Errorf("%s %s: %v", subject, data, err)
				}
			}
		}
	}, anything)
}
