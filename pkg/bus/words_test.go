package bus_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// natsText are words and codes of NATS that mean nothing to a user or a model.
var natsText = regexp.MustCompile(`(?i)nats: |err_code|code=|jetstream:|\b\d{5}\b|context deadline`)

// A failure of NATS is told in words of ours; what it was stays to be asked.
//
// contract: B34
func TestFailuresInWords(t *testing.T) {
	t.Parallel()
	refusal := func(code jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: 400, ErrorCode: code, Description: "maximum messages per subject exceeded"}
	}
	for _, cause := range []error{
		refusal(10077), refusal(10023), refusal(10008), refusal(10059), refusal(10118), refusal(10076), refusal(10039), refusal(19999),
		jetstream.ErrNoStreamResponse, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrDisconnected,
		nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, nats.ErrTimeout, nats.ErrMaxPayload, nats.ErrBadSubject,
		nats.ErrPermissionViolation, nats.ErrAuthorization, context.DeadlineExceeded, fmt.Errorf("again: %w", nats.ErrTimeout),
	} {
		e := frames.NewError(frames.CodeUnavailable, "the input cannot be stored: %w", bus.Words(cause))
		for _, text := range []string{e.Message, e.ForModel()} {
			if natsText.MatchString(text) {
				t.Errorf("%v: %q", cause, text)
			}
		}
		if !errors.Is(e, cause) {
			t.Errorf("%q is no %v any more", e.Message, cause)
		}
	}
	api, ok := errors.AsType[*jetstream.APIError](bus.Words(refusal(10077)))
	if !ok || api.ErrorCode != 10077 {
		t.Errorf("the refusal's code is lost: %v", api)
	}
	other := errors.New("of another kind")
	if bus.Words(nil) != nil || !errors.Is(bus.Words(other), other) || bus.Words(other).Error() != other.Error() {
		t.Error("what is no failure of NATS changed")
	}
}
