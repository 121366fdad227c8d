package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Codes of JetStream's refusals that users meet.
const (
	jsFull            = 10077 // a limit of a stream or a subject
	jsNoSpace         = 10023
	jsNoQuorum        = 10008 // also: temporarily unavailable
	jsNoStream        = 10059
	jsStreamOffline   = 10118
	jsNotEnabled      = 10076
	jsNotEnabledForMe = 10039
)

// Words gives a failure of NATS in words for users and models: its texts and
// codes are for developers. The cause stays behind the words for errors.Is and
// errors.As. nil stays nil; what is no failure of NATS is given as it is.
func Words(err error) error {
	if err == nil {
		return nil
	}
	if text := inWords(err); text != "" {
		return &worded{text, err}
	}
	return err
}

type worded struct {
	text  string
	cause error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.cause }

// said are the failures that NATS tells apart by values.
var said = []struct { //nolint:gochecknoglobals // a table
	err  error
	text string
}{
	{ErrClosed, ErrClosed.Error()},
	{nats.ErrNoResponders, "nobody listens there"},
	{jetstream.ErrNoStreamResponse, "the mesh's store does not answer"},
	{nats.ErrConnectionClosed, "the connection to the NATS server is closed"},
	{nats.ErrConnectionDraining, "the connection to the NATS server is closing"},
	{nats.ErrDisconnected, "there is no connection to the NATS server"},
	{nats.ErrReconnectBufExceeded, "there is no connection to the NATS server"},
	{nats.ErrStaleConnection, "the NATS server did not answer"},
	{nats.ErrTimeout, "the NATS server did not answer in time"},
	{nats.ErrMaxPayload, "it is larger than the server takes"},
	{nats.ErrBadSubject, "it is no subject of the bus"},
	{nats.ErrPermissionViolation, "the server does not allow it to this identity"},
	{nats.ErrAuthorization, "the server does not know this identity's key"},
	{context.DeadlineExceeded, "no answer came in time"},
}

func inWords(err error) string {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return refusalInWords(api.ErrorCode)
	}
	for _, s := range said {
		if errors.Is(err, s.err) {
			return s.text
		}
	}
	return ""
}

func refusalInWords(code jetstream.ErrorCode) string {
	switch code {
	case jsFull:
		return "it is full"
	case jsNoSpace:
		return "the mesh's store has no space left"
	case jsNoQuorum, jsStreamOffline:
		return "the mesh's store is not available at the moment"
	case jsNoStream:
		return "the mesh's store was not set up: run weavebus init"
	case jsNotEnabled, jsNotEnabledForMe:
		return "the NATS server runs without JetStream, which the mesh needs"
	}
	return "the mesh's store refused"
}
