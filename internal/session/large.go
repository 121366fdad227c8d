package session

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/weavebus/weavebus/internal/blobs"
	"github.com/weavebus/weavebus/internal/results"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// MaxInline is the size in bytes above which a value of an entry is kept in the
// object store instead.
const MaxInline = 256 << 10

// Blobs keeps large values of sessions; [blobs.Store] is the mesh's.
type Blobs interface {
	Put(ctx context.Context, caller, sid, mediaType string, value []byte) (blobs.Ref, error)
	// Get gives a value; NOT_FOUND where the session has none of that name.
	Get(ctx context.Context, caller, sid, ref string) ([]byte, error)
	// Delete removes all values of a session.
	Delete(ctx context.Context, caller, sid string) error
	// Last and Sweep find the values of sessions that are gone; see [blobs.Store.Sweep].
	Last(ctx context.Context) (uint64, error)
	Sweep(ctx context.Context, upTo uint64, gone func(ctx context.Context, caller, sid string) (bool, error)) (int, error)
}

var _ Blobs = (*blobs.Store)(nil)

// Large stand in a stored change for its fields of the same names.
type Large struct {
	Message *blobs.Ref `json:"message,omitempty"`
	Result  *blobs.Ref `json:"result,omitempty"`
	Frame   *blobs.Ref `json:"frame,omitempty"`
}

func (l *Large) size() int {
	n := int64(0)
	for _, r := range []*blobs.Ref{l.Message, l.Result, l.Frame} {
		if r != nil {
			n += r.Size
		}
	}
	return int(n)
}

const (
	mediaJSON    = "application/json"
	mediaMsgpack = "application/msgpack"
	mediaText    = "text/plain; charset=utf-8"
)

// stored gives the entry as it is written: what is large is in the object store
// by then, and so is what a model may read of results that were cut for it.
func (w *writing) stored(ctx context.Context, e Entry) (Entry, error) {
	if w.s.blobs == nil {
		return e, nil
	}
	e.Changes = slices.Clone(e.Changes)
	for i := range e.Changes {
		if err := w.putChange(ctx, &e.Changes[i]); err != nil {
			return Entry{}, err
		}
	}
	return e, nil
}

func (w *writing) putChange(ctx context.Context, c *Change) error {
	if err := w.putWhole(ctx, c); err != nil {
		return err
	}
	var l Large
	err := w.putMessage(ctx, c, &l)
	if err == nil && len(c.Result) > MaxInline {
		if l.Result, err = w.put(ctx, mediaMsgpack, c.Result); err == nil {
			c.Result = outline(c.Result)
		}
	}
	if err == nil && len(c.Frame) > MaxInline {
		l.Frame, err = w.put(ctx, mediaMsgpack, c.Frame)
		c.Frame = nil
	}
	if l != (Large{}) {
		c.Large = &l
	}
	return err
}

// putWhole keeps the text of a result that a model sees only a part of.
func (w *writing) putWhole(ctx context.Context, c *Change) error {
	if c.Kind != ChangeResult || c.Message == nil {
		return nil
	}
	r := toolResult(c.Result)
	if results.Ref(r) == "" {
		return nil
	}
	_, err := w.put(ctx, mediaText, []byte(results.Whole(r)))
	return err
}

func (w *writing) putMessage(ctx context.Context, c *Change, l *Large) error {
	if c.Message == nil || roughSize(c.Message) <= MaxInline {
		return nil
	}
	data, err := json.Marshal(c.Message)
	if err != nil {
		return frames.NewError(frames.CodeInternal, "cannot write a message: %w", err)
	}
	l.Message, err = w.put(ctx, mediaJSON, data)
	c.Message = nil
	return err
}

// roughSize gives about how many bytes a message has.
func roughSize(m *provider.Message) int {
	n := len(m.Text) + len(m.ProviderData)
	for i := range m.Parts {
		n += len(m.Parts[i].Text) + len(m.Parts[i].Data)*4/3
	}
	for i := range m.Calls {
		n += len(m.Calls[i].Arguments)
	}
	for i := range m.Thinking {
		n += len(m.Thinking[i].Text) + len(m.Thinking[i].Signature)
	}
	return n
}

// put keeps a value once, however often the write that needs it is tried.
func (w *writing) put(ctx context.Context, mediaType string, value []byte) (*blobs.Ref, error) {
	name := results.RefOf(string(value))
	if r := w.kept[name]; r != nil {
		return r, nil
	}
	r, err := w.s.blobs.Put(ctx, w.key.Caller, w.key.SID, mediaType, value)
	if err != nil {
		return nil, err
	}
	if w.kept == nil {
		w.kept = map[string]*blobs.Ref{}
	}
	w.kept[name] = &r
	return &r, nil
}

// outline gives of a result's content what does not hold its value.
func outline(content frames.Raw) frames.Raw {
	const small = 4 << 10
	var out frames.Fields
	for k, v := range content.Pairs() {
		if len(v) <= small {
			out = append(out, frames.Field{Key: k, Value: v})
		}
	}
	return out.Raw()
}

// Whole puts the values back into an entry that stand in the object store.
func (s *Store) Whole(ctx context.Context, e *Entry) error {
	for i := range e.Changes {
		if e.Changes[i].Large == nil {
			continue
		}
		if err := s.whole(ctx, e.State.Key(), &e.Changes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) whole(ctx context.Context, key Key, c *Change) error {
	l := c.Large
	for _, v := range []struct {
		ref *blobs.Ref
		set func([]byte) error
	}{
		{l.Message, func(b []byte) error { return json.Unmarshal(b, &c.Message) }},
		{l.Result, func(b []byte) error { c.Result = b; return nil }},
		{l.Frame, func(b []byte) error { c.Frame = b; return nil }},
	} {
		if v.ref == nil {
			continue
		}
		b, err := s.value(ctx, key, v.ref.Ref)
		if err == nil {
			err = v.set(b)
		}
		if err != nil {
			return err
		}
	}
	c.Large = nil
	return nil
}

// forModel is Whole for what a model sees of an entry: of a result that was cut it
// needs no more than the message.
func (s *Store) forModel(ctx context.Context, e *Entry) error {
	for i := range e.Changes {
		c := &e.Changes[i]
		if c.Large == nil || c.Kind == ChangeFrame || c.Kind == ChangeResult && c.Message != nil && c.Large.Message == nil {
			continue
		}
		if err := s.whole(ctx, e.State.Key(), c); err != nil {
			return err
		}
	}
	return nil
}

// large gives how many bytes of an entry stand in the object store.
func (e *Entry) large() int {
	n := 0
	for i := range e.Changes {
		if l := e.Changes[i].Large; l != nil {
			n += l.size()
		}
	}
	return n
}

// value gives a value that an entry names: there is no session without it.
func (s *Store) value(ctx context.Context, key Key, ref string) ([]byte, error) {
	if s.blobs == nil {
		return nil, frames.NewError(frames.CodeInternal, "session %s has large values, and there is no object store", key.SID)
	}
	b, err := s.blobs.Get(ctx, key.Caller, key.SID, ref)
	if frames.CodeOf(err) == frames.CodeNotFound {
		return nil, frames.NewError(frames.CodeInternal, "the value %s of session %s is lost: %w", ref, key.SID, err)
	}
	return b, err
}

// CutResult gives the whole text of a result of the session that a model saw a
// part of; NOT_FOUND where the session has none of that ref.
func (s *Store) CutResult(ctx context.Context, key Key, ref string) (string, error) {
	if s.blobs == nil {
		return "", results.NotFound(ref)
	}
	b, err := s.blobs.Get(ctx, key.Caller, key.SID, ref)
	if frames.CodeOf(err) == frames.CodeNotFound {
		return "", results.NotFound(ref)
	}
	return string(b), err
}

// LastValue numbers the large value that was written last, for [Store.SweepValues].
func (s *Store) LastValue(ctx context.Context) (uint64, error) {
	if s.blobs == nil {
		return 0, nil
	}
	return s.blobs.Last(ctx)
}

// SweepValues removes large values up to the upTo-th whose sessions are gone, and
// gives of how many sessions. What upTo may be, [blobs.Store.Sweep] says.
func (s *Store) SweepValues(ctx context.Context, upTo uint64) (int, error) {
	if s.blobs == nil {
		return 0, nil
	}
	return s.blobs.Sweep(ctx, upTo, func(ctx context.Context, caller, sid string) (bool, error) {
		_, err := s.Head(ctx, Key{caller, sid})
		if frames.CodeOf(err) == frames.CodeNotFound {
			return true, nil
		}
		return false, err
	})
}

// Publish publishes the durable frames of an entry to the session's readers.
// They may be published again at any time.
func (s *Store) Publish(ctx context.Context, conn *bus.Conn, e *Entry) error {
	if err := s.Whole(ctx, e); err != nil {
		return err
	}
	subject := conn.Out(e.State.Caller, e.State.SessionID)
	for _, data := range e.Wire(conn.InlineLimit()) {
		if err := conn.PublishData(subject, data); err != nil {
			return err
		}
	}
	return nil
}
