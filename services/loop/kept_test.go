package loop

import (
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// wantKept checks which results a run still has, by the letters that they are made of.
func wantKept(t *testing.T, k *runResults, kept, gone string) {
	t.Helper()
	for _, letter := range kept + gone {
		text, err := k.whole(t.Context(), string(letter))
		if has := strings.ContainsRune(kept, letter); has != (err == nil) || has && text[0] != byte(letter) {
			t.Errorf("%c: %d bytes, %v; kept should be %q", letter, len(text), err, kept)
		}
		if err != nil && frames.CodeOf(err) != frames.CodeNotFound {
			t.Error(err)
		}
	}
}

// What runs keep in memory is bounded for each, where the oldest result goes first,
// and for all of them together.
//
// contract: E16
func TestRunsKeepSoMuch(t *testing.T) {
	t.Parallel()
	const part = maxKeptRun / 2
	all := &keeping{most: 5 * part}
	keep := func(k *runResults, letters string, n int) {
		for _, letter := range letters {
			k.keep(string(letter), strings.Repeat(string(letter), n))
		}
	}
	one, two, three := &runResults{all: all}, &runResults{all: all}, &runResults{all: all}
	keep(one, "abca", part)
	wantKept(t, one, "ca", "b")
	keep(two, "de", part)
	keep(three, "fgh", part) // there is room for one of them
	wantKept(t, three, "h", "fg")
	four := &runResults{all: all}
	keep(four, "i", part)
	wantKept(t, four, "", "i")
	if !four.anyCut() {
		t.Error("a result that was cut is not known as one")
	}
	keep(two, "k", maxKeptRun+1)
	wantKept(t, two, "de", "k")
	for _, k := range []*runResults{one, two, three, four} {
		k.drop()
	}
	if all.used != 0 {
		t.Errorf("%d bytes are counted after the runs' end", all.used)
	}
}
