package session_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/blobs"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// stored is a store of a mesh with what lies beneath it.
type stored struct {
	t     *testing.T
	mesh  *bustest.Mesh
	js    jetstream.JetStream
	store *session.Store
	blobs *blobs.Store
}

func inStore(t *testing.T, test func(t *testing.T, s *stored)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		s := &stored{t: t, mesh: mesh, js: mesh.JetStream(t, "harness")}
		var err error
		s.store, err = session.Open(t.Context(), s.js, mesh.Prefix())
		s.must(err)
		s.blobs, err = blobs.Open(t.Context(), s.js, mesh.Prefix())
		s.must(err)
		test(t, s)
	})
}

func (s *stored) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// values counts the values in the object store.
func (s *stored) values() uint64 {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), assets.BlobsStream("wb"))
	s.must(err)
	info, err := stream.Info(s.t.Context())
	s.must(err)
	return info.State.Msgs
}

// last gives a session's newest entry as it is stored.
func (s *stored) last(key session.Key) string {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), assets.SessionsStream("wb"))
	s.must(err)
	msg, err := stream.GetLastMsgForSubject(s.t.Context(), "$KV.WB_SESSIONS."+key.Caller+"."+key.SID)
	s.must(err)
	return string(msg.Data)
}

// write adds changes to a session, which begins with them where there is none.
func (s *stored) write(key session.Key, changes ...session.Change) session.Head {
	s.t.Helper()
	do := func(*session.State) ([]session.Change, error) { return changes, nil }
	head, err := s.store.Update(s.t.Context(), key, do)
	if frames.CodeOf(err) == frames.CodeNotFound {
		head, err = s.store.Create(s.t.Context(), key, do)
	}
	s.must(err)
	return head
}

// largeChanges are one of each kind with a value of so many bytes.
func largeChanges(n int) []session.Change {
	text := strings.Repeat("x", n)
	result := frames.Result(&frames.ToolResult{Result: json.RawMessage(`"` + text + `"`), Attempts: 2})
	note := frames.Text(text)
	frame, _ := frames.Encode(frames.Msgpack, &note)
	call := provider.Message{Role: provider.RoleAssistant, Calls: []provider.Call{{ID: "c1", Name: "f", Arguments: "{}"}}}
	return []session.Change{
		{Kind: session.ChangeMessage, Message: &provider.Message{Role: provider.RoleUser, Text: text + "!"}},
		{Kind: session.ChangeMessage, Message: &call},
		{Kind: session.ChangeResult, CallID: "c1", Tool: "f", Result: result.Content},
		{Kind: session.ChangeFrame, Frame: frame},
	}
}

func TestLargeValuesAreKeptAside(t *testing.T) {
	inStore(t, func(t *testing.T, s *stored) {
		want := largeChanges(session.MaxInline + 100)
		head := s.write(key, want...)
		if diff := cmp.Diff(want, head.Changes); diff != "" {
			t.Errorf("who wrote an entry has it without values:\n%s", diff)
		}
		text := s.last(key)
		if len(text) > 8<<10 || strings.Count(text, `"ref":`) != 3 || !strings.Contains(text, `"sha256":`) || !strings.Contains(text, `"mediaType":"application/json"`) {
			t.Errorf("the stored entry: %d bytes, %.600s", len(text), text)
		}
		entries, _, err := s.store.History(t.Context(), key, 0, 100)
		s.must(err)
		if diff := cmp.Diff(want, entries[0].Changes); diff != "" {
			t.Errorf("the history:\n%.2000s", diff)
		}
		messages, err := s.store.Messages(t.Context(), key)
		s.must(err)
		if len(messages) != 3 || len(messages[0].Text) != session.MaxInline+101 || len(messages[2].Content()) != session.MaxInline+102 {
			t.Errorf("%d messages", len(messages))
		}
		results, err := s.store.Results(t.Context(), key, 1)
		s.must(err)
		if r := results["c1"]; r == nil || len(r.Result) != session.MaxInline+102 || r.Attempts != 2 {
			t.Error("the result was not read back")
		}
	})
}

func TestSmallValuesStayInTheEntry(t *testing.T) {
	inStore(t, func(t *testing.T, s *stored) {
		s.write(key, largeChanges(session.MaxInline-200)...)
		if n := s.values(); n != 0 || strings.Contains(s.last(key), `"ref":`) {
			t.Errorf("%d values below %d bytes are in the object store", n, session.MaxInline)
		}
	})
}

// A value goes with its session, also one whose entry was never written since its
// writer died; those of other sessions stay.
func TestValuesGoWithTheirSession(t *testing.T) {
	inStore(t, func(t *testing.T, s *stored) {
		s.write(key, largeChanges(session.MaxInline+100)...)
		other := session.Key{Caller: key.Caller, SID: key.SID + "0"}
		s.write(other, largeChanges(session.MaxInline+200)...)
		before := s.values()
		_, err := s.blobs.Put(t.Context(), key.Caller, key.SID, "text/plain", []byte("no entry names it"))
		s.must(err)
		s.must(s.store.Delete(t.Context(), key))
		if n := s.values(); n != before/2 {
			t.Errorf("%d values are left, want the %d of the other session", n, before/2)
		}
		_, _, err = s.store.History(t.Context(), other, 0, 10)
		s.must(err)
	})
}

func TestLostValues(t *testing.T) {
	inStore(t, func(t *testing.T, s *stored) {
		s.write(key, largeChanges(session.MaxInline+100)...)
		s.must(s.blobs.Delete(t.Context(), key.Caller, key.SID))
		_, _, err := s.store.History(t.Context(), key, 0, 10)
		if frames.CodeOf(err) != frames.CodeInternal || !strings.Contains(err.Error(), "is lost") {
			t.Errorf("history: %v", err)
		}
		if _, err = s.store.Messages(t.Context(), key); frames.CodeOf(err) != frames.CodeInternal {
			t.Errorf("messages: %v", err)
		}
		if _, err = s.store.Results(t.Context(), key, 1); frames.CodeOf(err) != frames.CodeInternal {
			t.Errorf("results: %v", err)
		}
	})
}

// A mesh of an earlier version has no object store: what to do is said at once.
func TestOpenWithoutObjectStore(t *testing.T) {
	inStore(t, func(t *testing.T, s *stored) {
		s.must(s.mesh.JetStream(t, "admin").DeleteStream(t.Context(), assets.BlobsStream("wb")))
		_, err := session.Open(t.Context(), s.js, "wb")
		if frames.CodeOf(err) != frames.CodeUnavailable || !strings.Contains(err.Error(), "weavebus init") || !strings.Contains(err.Error(), "WB_BLOBS") {
			t.Errorf("%v", err)
		}
	})
}
