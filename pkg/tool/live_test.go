package tool

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Output is bounded in all and in each frame, cut on rune borders, and what was
// dropped is counted.
func TestLiveBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []frames.Frame
		l := &live{send: func(fs ...frames.Frame) error { sent = append(sent, fs...); return nil }}
		l.output("stdout", "€"+strings.Repeat("€", 100<<10))
		l.output("stdout", "more")
		time.Sleep(time.Second)
		l.output("stdout", "late")
		l.close()
		l.output("stdout", "closed")
		l.progress(1, 1, "closed")
		total := 0
		for _, f := range sent[:len(sent)-1] {
			text := f.Text()
			if len(text) > liveChunk || !utf8.ValidString(text) {
				t.Errorf("a frame of %d bytes", len(text))
			}
			total += len(text)
		}
		all := 3*(100<<10+1) + len("more") + len("late")
		last := sent[len(sent)-1]
		dropped, _ := last.Content.Lookup("droppedOutputBytes").Int64()
		if total > liveBudget || total < liveBudget-2 || int(dropped) != all-total {
			t.Errorf("sent %d, dropped %d of %d", total, dropped, all)
		}
	})
}

func TestProgressIsFinite(t *testing.T) {
	t.Parallel()
	l := &live{send: func(...frames.Frame) error { return nil }}
	l.progress(math.NaN(), 1, "")
	l.progress(1, math.Inf(1), "")
	if l.step != nil || l.timer != nil {
		t.Errorf("%+v waits", l.step)
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, n := rapid.String().Draw(t, "s"), rapid.IntRange(-1, 40).Draw(t, "n")
		got := clip(s, n)
		if len(got) > max(n, 0) || !strings.HasPrefix(s, got) || !utf8.ValidString(got) || len(s) > n && n-len(got) >= utf8.UTFMax {
			t.Fatalf("clip(%q, %d) = %q", s, n, got)
		}
	})
	if got := clip("\x80\x80\x80\x80\x80\x80", 5); got == "" {
		t.Error("bytes that are no text were cut to nothing")
	}
}
