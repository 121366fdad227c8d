package blobs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/blobs"
	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/frames"
)

func inMesh(t *testing.T, test func(t *testing.T, js jetstream.JetStream, s *blobs.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		js := mesh.JetStream(t, "harness")
		s, err := blobs.Open(t.Context(), js, mesh.Prefix())
		must(t, err)
		test(t, js, s)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code frames.Code) {
	t.Helper()
	if frames.CodeOf(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

func TestPutAndGet(t *testing.T) {
	inMesh(t, func(t *testing.T, _ jetstream.JetStream, s *blobs.Store) {
		for _, value := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("0123456789"), 400_000)} {
			ref, err := s.Put(t.Context(), "me", "s1", "text/plain", value)
			must(t, err)
			again, err := s.Put(t.Context(), "me", "s1", "text/plain", value)
			must(t, err)
			sum := sha256.Sum256(value)
			if ref != again || ref.Size != int64(len(value)) || ref.SHA256 != hex.EncodeToString(sum[:]) || ref.MediaType != "text/plain" {
				t.Errorf("%+v, then %+v", ref, again)
			}
			got, err := s.Get(t.Context(), "me", "s1", ref.Ref)
			if err != nil || !bytes.Equal(got, value) {
				t.Errorf("%d bytes of %d, %v", len(got), len(value), err)
			}
			_, err = s.Get(t.Context(), "me", "s2", ref.Ref)
			wantCode(t, err, frames.CodeNotFound)
			_, err = s.Get(t.Context(), "you", "s1", ref.Ref)
			wantCode(t, err, frames.CodeNotFound)
		}
	})
}

// A ref is a model's word: it reaches no other subject.
func TestRefsThatAreNone(t *testing.T) {
	inMesh(t, func(t *testing.T, _ jetstream.JetStream, s *blobs.Store) {
		_, err := s.Put(t.Context(), "me", "s1", "text/plain", []byte("secret"))
		must(t, err)
		for _, ref := range []string{"", "*", ">", "../s1", "s1.x", "ABCDEF012345678901234567", strings.Repeat("0", 25), "\x00", strings.Repeat("*", 24)} {
			_, err := s.Get(t.Context(), "me", "s1", ref)
			wantCode(t, err, frames.CodeNotFound)
		}
		for _, sid := range []string{"*", "", "s1.x", ">"} {
			_, err := s.Get(t.Context(), "me", sid, strings.Repeat("0", 24))
			wantCode(t, err, frames.CodeNotFound)
		}
	})
}

func TestTooLargeForAMessage(t *testing.T) {
	inMesh(t, func(t *testing.T, js jetstream.JetStream, s *blobs.Store) {
		_, err := s.Put(t.Context(), "me", "s1", "text/plain", make([]byte, js.Conn().MaxPayload()+1))
		wantCode(t, err, frames.CodeTooLarge)
		if !strings.Contains(err.Error(), "max_payload") {
			t.Error(err)
		}
	})
}

// What no session holds is swept, once it is known to be old; the rest stays.
func TestSweep(t *testing.T) {
	inMesh(t, func(t *testing.T, _ jetstream.JetStream, s *blobs.Store) {
		put := func(sid, text string) blobs.Ref {
			t.Helper()
			ref, err := s.Put(t.Context(), "me", sid, "text/plain", []byte(text))
			must(t, err)
			return ref
		}
		orphan, kept := put("gone", "old"), put("here", "old")
		mark, err := s.Last(t.Context())
		must(t, err)
		young := put("gone", "young")
		var asked []string
		n, err := s.Sweep(t.Context(), mark, func(_ context.Context, caller, sid string) (bool, error) {
			asked = append(asked, caller+"."+sid)
			return sid == "gone", nil
		})
		must(t, err)
		slices.Sort(asked)
		if n != 1 || !slices.Equal(asked, []string{"me.gone", "me.here"}) {
			t.Errorf("swept %d of %q", n, asked)
		}
		_, err = s.Get(t.Context(), "me", "gone", orphan.Ref)
		wantCode(t, err, frames.CodeNotFound)
		for sid, ref := range map[string]blobs.Ref{"gone": young, "here": kept} {
			_, err := s.Get(t.Context(), "me", sid, ref.Ref)
			must(t, err)
		}
		failed := frames.NewError(frames.CodeUnavailable, "no head")
		_, err = s.Sweep(t.Context(), mark, func(context.Context, string, string) (bool, error) { return false, failed })
		wantCode(t, err, frames.CodeUnavailable)
	})
}

// The result of a call that ran is not lost since the server was away for a while.
func TestPutOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := bustest.Start(t)
		line := mesh.Line(t, "loop")
		js, err := jetstream.New(mesh.Connect(t, "loop", line.Option()))
		must(t, err)
		s, err := blobs.Open(t.Context(), js, mesh.Prefix())
		must(t, err)
		line.Cut()
		go func() {
			<-time.After(12 * time.Second) // virtual time
			line.Mend()
		}()
		ref, err := s.Put(t.Context(), "me", "s1", "text/plain", []byte("kept"))
		must(t, err)
		if got, err := s.Get(t.Context(), "me", "s1", ref.Ref); err != nil || string(got) != "kept" {
			t.Errorf("%q, %v", got, err)
		}
		line.Cut()
		begun := time.Now()
		_, err = s.Put(t.Context(), "me", "s1", "text/plain", []byte("lost"))
		wantCode(t, err, frames.CodeUnavailable)
		if took := time.Since(begun); took < 20*time.Second || took > time.Minute {
			t.Errorf("gave up after %v", took)
		}
		line.Mend()
	})
}
