package harness

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// storeTimeout bounds one attempt to store an input.
const storeTimeout = 5 * time.Second

// accept stores a session's input and says so: from then on it is applied,
// whoever dies.
func (h *harness) accept(ctx context.Context, r *bus.Request) {
	id, err := h.keep(ctx, r)
	if err != nil {
		_ = r.Fail(err) // who asked is gone
		return
	}
	_ = r.End(frames.EndCompleted, frames.Meta(map[string]any{"accepted": id}))
}

func (h *harness) keep(ctx context.Context, r *bus.Request) (id string, err error) {
	key, err := h.keyOf(r.Subject)
	if err != nil {
		return "", err
	}
	fs, err := prepare(r.Frames)
	if err != nil {
		return "", err
	}
	data, err := frames.Encode(r.Encoding, fs...)
	if err != nil {
		return "", err
	}
	if most := h.conn.InlineLimit(); len(data) > most {
		return "", frames.NewError(frames.CodeTooLarge, "input of %d bytes, the limit is %d", len(data), most)
	}
	return fs[0].ID, h.put(ctx, key, fs[0].ID, data)
}

func (h *harness) keyOf(subject string) (session.Key, error) {
	key, ok := session.KeyOf(h.conn.Subjects, subject)
	if !ok || slices.Contains(reserved[:], key.Caller) {
		return key, frames.NewError(frames.CodeValidationInput,
			"%q names no caller and session: want letters, digits, _ and -, at most 64 of them", subject)
	}
	return key, nil
}

// reserved names are tokens of the mesh's own.
var reserved = [...]string{"tool", "sys"}

// prepare gives each frame an id. A message without any frame that a session
// takes is refused; of others a session answers each frame by itself.
func prepare(in []frames.Frame) ([]*frames.Frame, error) {
	known := false
	out := make([]*frames.Frame, len(in))
	for i := range in {
		f := in[i]
		if f.ID == "" {
			f.ID = nuid.Next()
		}
		if err := checkID(f.ID); err != nil {
			return nil, err
		}
		known = known || session.Takes(f.Type)
		out[i] = &f
	}
	if !known {
		return nil, session.UnknownType(in[0].Type)
	}
	return out, nil
}

const maxID = 128

// checkID holds a frame's id to what may stand in a header.
func checkID(id string) error {
	printable := func(r rune) bool { return r > ' ' && r <= '~' }
	for _, r := range id {
		if !printable(r) {
			return frames.NewError(frames.CodeBadFrame, "frame id %q: want printable characters without a space", id[:min(len(id), maxID)])
		}
	}
	if len(id) > maxID {
		return frames.NewError(frames.CodeBadFrame, "frame id of %d bytes, the limit is %d", len(id), maxID)
	}
	return nil
}

// errStoreRefused is the code of a message over the limits of its stream or subject.
const errStoreRefused = 10077

// put stores an input once, whatever happens to an acknowledgement.
func (h *harness) put(ctx context.Context, key session.Key, id string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	msg := &nats.Msg{Subject: h.conn.Inbox(key.Caller, key.SID), Data: data}
	_, err := h.js.PublishMsg(ctx, msg, jetstream.WithMsgID(key.String()+"."+id))
	if err == nil {
		return nil
	}
	api, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case refused && api.ErrorCode == errStoreRefused:
		return fullInbox(key, err)
	case refused:
		return frames.NewError(frames.CodeUnavailable, "the input cannot be stored: %w", bus.Words(err))
	}
	return frames.NewError(frames.CodeUnavailable,
		"it is not known whether the input was stored, send it again with the same frame ids: %w", bus.Words(err))
}

// fullInbox is what a client gets that sends faster than its session reads.
func fullInbox(key session.Key, cause error) error {
	e := frames.NewError(frames.CodeBusy, "the inbox of session %s: %w", key.SID, bus.Words(cause))
	return e.With(func(e *frames.Error) {
		e.Message = "the inbox of session " + key.SID + " is full: what was sent before is not read yet. Send it again in a moment."
		e.LLMMessage = "The session has not read what was sent to it before. Try again in a moment."
		e.Reason, e.RetryAfter = "inbox_full", time.Second
	})
}
