package session_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weavebus/weavebus/internal/session"
	"github.com/weavebus/weavebus/pkg/frames"
)

// faulty is a log whose next writes end unknown, written or not.
type faulty struct {
	*session.Memory
	// next says of each coming write whether it stands; then writes are well.
	next []bool
	// meanwhile runs after a write whose outcome is unknown.
	meanwhile func()
	// blind makes so many reads fail.
	blind int
}

func (f *faulty) Append(ctx context.Context, key session.Key, r session.Revision) (uint64, error) {
	if len(f.next) == 0 {
		return f.Memory.Append(ctx, key, r)
	}
	stands := f.next[0]
	f.next = f.next[1:]
	if stands {
		if _, err := f.Memory.Append(ctx, key, r); err != nil {
			return 0, err
		}
	}
	if f.meanwhile != nil {
		f.meanwhile()
	}
	return 0, fmt.Errorf("%w: no answer", session.ErrUnknown)
}

func (f *faulty) Last(ctx context.Context, key session.Key) (session.Revision, error) {
	if f.blind > 0 && len(f.next) == 0 {
		f.blind--
		return session.Revision{}, frames.NewError(frames.CodeUnavailable, "no leader")
	}
	return f.Memory.Last(ctx, key)
}

// A write of unknown outcome is neither lost nor done twice, whether it stood or
// not, and whoever wrote behind it.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		next  []bool
		other bool
		blind int
	}{
		{name: "it stands", next: []bool{true}},
		{name: "it does not", next: []bool{false}},
		{name: "twice it does not", next: []bool{false, false}},
		{name: "it stands, others wrote behind it", next: []bool{true}, other: true},
		{name: "it does not, others wrote", next: []bool{false}, other: true},
		{name: "it stands, and cannot be read for a while", next: []bool{true}, blind: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := &faulty{Memory: session.NewMemory()}
				store := session.NewStore(log)
				create(t, store, key)
				if c.other {
					log.meanwhile = func() { count(t, session.NewStore(log.Memory)) }
				}
				log.next, log.blind = c.next, c.blind
				head := count(t, store)
				want := int64(1)
				if c.other {
					want = 2
				}
				end, err := session.NewStore(log.Memory).Head(t.Context(), key)
				if err != nil || end.State.Usage.Calls != want || end.N != uint64(want)+1 {
					t.Errorf("calls %d, n %d, %v; want %d", end.State.Usage.Calls, end.N, err, want)
				}
				if head.Revision == 0 || head.N == 0 {
					t.Errorf("head %+v", head)
				}
			})
		})
	}
}

func count(t *testing.T, store *session.Store) session.Head {
	t.Helper()
	head, err := store.Update(t.Context(), key, func(s *session.State) ([]session.Change, error) {
		s.Usage.Calls++
		return nil, nil
	})
	if err != nil {
		t.Error(err)
	}
	return head
}

func TestUnknownOutcomeToTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &faulty{Memory: session.NewMemory()}
		store := session.NewStore(log)
		create(t, store, key)
		log.next, log.blind = []bool{true}, 1<<30
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := store.Update(ctx, key, say("hello"))
		if frames.CodeOf(err) != frames.CodeUnavailable {
			t.Errorf("err = %v, want UNAVAILABLE", err)
		}
	})
}
