package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Entry is one transition: what one revision of a session's key holds.
type Entry struct {
	// N counts a session's transitions 1, 2, 3 …
	N uint64 `json:"n"`
	// By is a nonce of this one write: after an unknown outcome it tells whether
	// the write that stands is one's own.
	By      string   `json:"by"`
	Changes []Change `json:"changes,omitempty"`
	State   State    `json:"state"`
}

// Head is a session's newest entry and the revision it stands at.
type Head struct {
	Entry
	Revision uint64
}

// Transition changes a state and gives the changes it made. It may be run
// several times, each time on a newer state, and keeps nothing of a run that is
// run again.
type Transition func(*State) ([]Change, error)

// Next gives the entry that a transition makes of e, with the nonce by. ok is
// false where it changes nothing. A state over MaxState is TOO_LARGE.
func (e *Entry) Next(by string, now time.Time, t Transition) (next Entry, ok bool, err error) {
	next = Entry{N: e.N + 1, By: by, State: e.State.clone()}
	next.State.n = next.N
	if next.Changes, err = t(&next.State); err != nil {
		return Entry{}, false, err
	}
	after, err := json.Marshal(&next.State)
	if err != nil {
		return Entry{}, false, frames.NewError(frames.CodeInternal, "cannot write the state: %w", err)
	}
	if len(after) > MaxState {
		return Entry{}, false, frames.NewError(frames.CodeTooLarge,
			"the session's state would be %d bytes, the limit is %d", len(after), MaxState)
	}
	before, err := json.Marshal(&e.State)
	if err == nil && e.N > 0 && len(next.Changes) == 0 && bytes.Equal(before, after) {
		return *e, false, nil
	}
	next.State.Updated = now.UnixMilli()
	return next, true, nil
}

// encode gives the entry as a revision holds it.
func (e *Entry) encode() ([]byte, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, frames.NewError(frames.CodeInternal, "cannot write entry %d: %w", e.N, err)
	}
	return data, nil
}

// decode reads a revision; ok is false where it is none of ours.
func decode(data []byte) (e Entry, ok bool) {
	if len(data) == 0 || json.Unmarshal(data, &e) != nil {
		return Entry{}, false
	}
	return e, e.N > 0 && e.By != "" && e.State.UID != ""
}

// Frames gives the entry's durable frames, numbered. They follow from the entry
// alone: published again, they are the same bytes. There is at least one, META
// {applied}, so that a reader sees by entry and part that it has them all.
func (e *Entry) Frames() []frames.Frame {
	var out []frames.Frame
	for i := range e.Changes {
		out = append(out, e.Changes[i].frames()...)
	}
	if len(out) == 0 {
		out = []frames.Frame{frames.Meta(frames.Fields{{Key: "applied", Value: frames.Value(e.N)}})}
		out[0].Epoch = e.State.Epoch
	}
	for i := range out {
		f := &out[i]
		f.ID = fmt.Sprintf("%s.%d.%d", e.State.UID, e.N, i+1)
		f.TS, f.Entry, f.Part = e.State.Updated, e.N, i+1
	}
	out[len(out)-1].Last = true
	return out
}

// Wire gives the messages that carry the durable frames, in the session's
// encoding and each of at most limit bytes where its frames allow.
func (e *Entry) Wire(limit int) [][]byte {
	var out [][]byte
	for _, f := range e.Frames() {
		data := encodeFrame(e.State.WireEncoding(), &f)
		if last := len(out) - 1; last >= 0 && len(out[last])+len(data) <= limit {
			out[last] = append(out[last], data...)
			continue
		}
		out = append(out, data)
	}
	return out
}

// encodeFrame writes a frame; one that JSON cannot say goes without its content.
func encodeFrame(enc frames.Encoding, f *frames.Frame) []byte {
	data, err := frames.Encode(enc, f)
	if err == nil {
		return data
	}
	bare := *f
	bare.Content = frames.AsError(err).Raw()
	data, _ = frames.Encode(enc, &bare) // an error is plain text
	return data
}
