package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

func nan() float64 { return math.NaN() }

func appendEntry(t tb, log session.Log, e session.Entry, last uint64) uint64 {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	number, err := log.Append(context.Background(), key, session.Revision{Number: last, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// both runs a test on a store in memory, and on one of a mesh in a bubble. put
// writes a raw revision behind the newest one of a key.
func both(t *testing.T, test func(t *testing.T, store *session.Store, put func(key session.Key, data string))) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		log := session.NewMemory()
		test(t, session.NewStore(log), func(key session.Key, data string) {
			t.Helper()
			last, err := log.Last(t.Context(), key)
			if err == nil {
				_, err = log.Append(t.Context(), key, session.Revision{Number: last.Number, Data: []byte(data)})
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mesh := bustest.Start(t)
			js := mesh.JetStream(t, "harness")
			store, err := session.Open(t.Context(), js, mesh.Prefix())
			if err != nil {
				t.Fatal(err)
			}
			test(t, store, func(key session.Key, data string) {
				t.Helper()
				if _, err := js.Publish(t.Context(), "$KV.WB_SESSIONS."+key.String(), []byte(data)); err != nil {
					t.Fatal(err)
				}
			})
		})
	})
}

func begin(s *session.State) ([]session.Change, error) {
	return s.Apply(session.Input{Message: frames.Message{Frames: []frames.Frame{
		frames.Param("workspace", "demo"), frames.Param("task", "look"), frames.Param("model", "a/b"), frames.Start(),
	}}, Sequence: 1}), nil
}

func create(t *testing.T, store *session.Store, key session.Key) session.Head {
	t.Helper()
	head, err := store.Create(t.Context(), key, begin)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func say(text string) session.Transition {
	return func(s *session.State) ([]session.Change, error) {
		return s.Apply(session.Input{Message: frames.Message{Frames: []frames.Frame{frames.Text(text)}}}), nil
	}
}

func TestStore(t *testing.T) {
	both(t, func(t *testing.T, store *session.Store, _ func(session.Key, string)) {
		t.Helper()
		ctx := t.Context()
		for name, err := range map[string]error{
			"Head":     second(store.Head(ctx, key)),
			"Update":   second(store.Update(ctx, key, say("x"))),
			"History":  third(store.History(ctx, key, 0, 10)),
			"Messages": second(store.Messages(ctx, key)),
		} {
			if frames.CodeOf(err) != frames.CodeNotFound {
				t.Errorf("%s of no session: %v, want NOT_FOUND", name, err)
			}
		}
		made := create(t, store, key)
		if made.N != 1 || made.State.UID == "" || made.State.Created == 0 || made.State.Updated == 0 {
			t.Errorf("made: %+v", made)
		}
		if _, err := store.Create(ctx, key, begin); frames.CodeOf(err) != frames.CodeConflict {
			t.Errorf("made twice: %v, want CONFLICT", err)
		}
		head, err := store.Update(ctx, key, say("hello"))
		if err != nil || head.N != 2 || head.State.Status != session.Thinking {
			t.Fatalf("head %+v, %v", head, err)
		}
		read, err := store.Head(ctx, key)
		if err != nil || read.Revision != head.Revision {
			t.Fatalf("read %+v, %v", read, err)
		}
		if diff := cmp.Diff(head.Wire(1<<20), read.Wire(1<<20)); diff != "" {
			t.Errorf("read back, other frames (-wrote +read):\n%s", diff)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

func TestStoreWritesNoNothing(t *testing.T) {
	both(t, func(t *testing.T, store *session.Store, _ func(session.Key, string)) {
		t.Helper()
		made := create(t, store, key)
		same, err := store.Update(t.Context(), key, func(*session.State) ([]session.Change, error) { return nil, nil })
		if err != nil || same.Revision != made.Revision || same.N != 1 {
			t.Errorf("no change: revision %d, %v, want %d", same.Revision, err, made.Revision)
		}
		refused := frames.NewError(frames.CodeConflict, "no")
		_, err = store.Update(t.Context(), key, func(s *session.State) ([]session.Change, error) {
			s.Task = "changed"
			return nil, refused
		})
		if !errors.Is(err, refused) {
			t.Errorf("err = %v, want the transition's own", err)
		}
		if head, err := store.Head(t.Context(), key); err != nil || head.State.Task != "look" {
			t.Errorf("a refused transition was written: %+v, %v", head, err)
		}
		_, err = store.Update(t.Context(), key, func(s *session.State) ([]session.Change, error) {
			s.Task = strings.Repeat("x", session.MaxState)
			return nil, nil
		})
		if frames.CodeOf(err) != frames.CodeTooLarge {
			t.Errorf("a state over the limit: %v, want TOO_LARGE", err)
		}
	})
}

func TestEntryOverMaxPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		store, err := session.Open(t.Context(), mesh.JetStream(t, "harness"), mesh.Prefix())
		if err != nil {
			t.Fatal(err)
		}
		create(t, store, key)
		_, err = store.Update(t.Context(), key, say(strings.Repeat("x", 9<<20)))
		if frames.CodeOf(err) != frames.CodeTooLarge || !strings.Contains(err.Error(), "max_payload") {
			t.Errorf("err = %v, want TOO_LARGE that names max_payload", err)
		}
	})
}

// Writers at once: each transition runs on the newest state, none is lost.
func TestStoreContention(t *testing.T) {
	both(t, func(t *testing.T, store *session.Store, _ func(session.Key, string)) {
		t.Helper()
		create(t, store, key)
		const writers, each = 4, 10
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range each {
					_, err := store.Update(t.Context(), key, func(s *session.State) ([]session.Change, error) {
						s.Usage.Calls++
						return nil, nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		head, err := store.Head(t.Context(), key)
		if err != nil || head.State.Usage.Calls != writers*each || head.N != writers*each+1 {
			t.Errorf("calls %d, n %d, %v", head.State.Usage.Calls, head.N, err)
		}
	})
}

func TestStoreSkipsForeignRevisions(t *testing.T) {
	both(t, func(t *testing.T, store *session.Store, put func(session.Key, string)) {
		t.Helper()
		ctx := t.Context()
		put(key, "before it was made")
		create(t, store, key)
		put(key, `{"n":7}`)
		put(key, "")
		head, err := store.Head(ctx, key)
		if err != nil || head.N != 1 {
			t.Fatalf("head %+v, %v", head, err)
		}
		if head, err = store.Update(ctx, key, say("hello")); err != nil || head.N != 2 {
			t.Fatalf("update: %+v, %v", head, err)
		}
		if _, _, err := store.History(ctx, key, 0, 10); err != nil || store.Foreign() == 0 {
			t.Errorf("foreign %d, %v", store.Foreign(), err)
		}
		heads, err := store.List(ctx, key.Caller)
		if err != nil || len(heads) != 1 || heads[0].N != 2 {
			t.Errorf("list %+v, %v", heads, err)
		}
	})
}

// contract: G7, G8
func TestStoreHistory(t *testing.T) {
	both(t, func(t *testing.T, store *session.Store, _ func(session.Key, string)) {
		t.Helper()
		ctx := t.Context()
		create(t, store, key)
		create(t, store, session.Key{Caller: "me", SID: "s2"})
		const texts = 30
		for i := range texts {
			if _, err := store.Update(ctx, key, func(s *session.State) ([]session.Change, error) {
				s.Queued = nil
				s.Seen = append(s.Seen, strconv.Itoa(i))
				return nil, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		var got []uint64
		for after := uint64(0); ; {
			page, more, err := store.History(ctx, key, after, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page {
				got = append(got, e.N)
			}
			if len(page) > 7 || (more && len(page) < 7) {
				t.Fatalf("a page of %d, more %v", len(page), more)
			}
			if !more {
				break
			}
			after = page[len(page)-1].N
		}
		for i, n := range got {
			if n != uint64(i+1) {
				t.Fatalf("entries %v", got)
			}
		}
		if len(got) != texts+1 {
			t.Errorf("%d entries, want %d", len(got), texts+1)
		}
		messages, err := store.Messages(ctx, key)
		if err != nil || len(messages) != 1 || messages[0].Entry != 1 || messages[0].Timestamp == 0 || messages[0].Role != provider.RoleSystem {
			t.Errorf("messages %+v, %v", messages, err)
		}
	})
}

// A page of large entries is short, but never empty.
// case: WS-H18
func TestStoreHistoryIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	store := session.NewStore(session.NewMemory())
	create(t, store, key)
	for range 4 {
		if _, err := store.Update(t.Context(), key, func(*session.State) ([]session.Change, error) {
			return []session.Change{{Kind: session.ChangeMessage, Message: &provider.Message{Role: provider.RoleUser, Text: strings.Repeat("x", 3<<20)}}}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	var sizes []int
	for after, more := uint64(0), true; more; {
		var page []session.Entry
		var err error
		if page, more, err = store.History(t.Context(), key, after, 100); err != nil || len(page) == 0 {
			t.Fatalf("page %d, %v", len(page), err)
		}
		sizes = append(sizes, len(page))
		after = page[len(page)-1].N
	}
	if diff := cmp.Diff([]int{2, 1, 1, 1}, sizes); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

// case: WS-H13, WS-H14
func TestStoreListAndDelete(t *testing.T) {
	both(t, func(t *testing.T, store *session.Store, _ func(session.Key, string)) {
		t.Helper()
		ctx := t.Context()
		for _, sid := range []string{"b", "a", "c"} {
			create(t, store, session.Key{Caller: "me", SID: sid})
			create(t, store, session.Key{Caller: "you", SID: sid})
		}
		if got := sids(t, store, "me"); got != "a b c" {
			t.Errorf("list: %s", got)
		}
		gone := session.Key{Caller: "me", SID: "b"}
		if err := errors.Join(store.Delete(ctx, gone), store.Delete(ctx, gone)); err != nil {
			t.Fatal(err)
		}
		if got := sids(t, store, "me") + "; " + sids(t, store, "you") + "; " + sids(t, store, "nobody"); got != "a c; a b c; " {
			t.Errorf("lists after the removal: %s", got)
		}
		if again := create(t, store, gone); again.N != 1 {
			t.Errorf("made again: n %d", again.N)
		}
	})
}

func sids(t *testing.T, store *session.Store, caller string) string {
	t.Helper()
	heads, err := store.List(t.Context(), caller)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, 0, len(heads))
	for _, h := range heads {
		out = append(out, h.State.SessionID)
	}
	return strings.Join(out, " ")
}
