package process

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestKeeperJoinsRunesAcrossWrites(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		writes  []string
		want    string
		invalid int64
	}{
		"a rune in two writes":           {[]string{"\xe4\xb8", "\xad"}, "中", 0},
		"a broken rune, then a good one": {[]string{"\xe4\xb8", "\xe4\xb8\xad"}, "\uFFFD\uFFFD中", 2},
		"byte by byte":                   {[]string{"\xf0", "\x9f", "\x99", "\x82"}, "🙂", 0},
		"bad bytes":                      {[]string{"ok\xff\xfeok"}, "ok\uFFFD\uFFFDok", 2},
		"a rune that never ends":         {[]string{"x\xf0\x9f"}, "x\uFFFD\uFFFD", 2},
		"a real U+FFFD":                  {[]string{"\xef\xbf", "\xbd"}, "\uFFFD", 0},
	}
	for name, tt := range tests {
		k := newKeeper(100, nil)
		for _, w := range tt.writes {
			_, _ = k.Write([]byte(w))
		}
		got := k.finish()
		equal(t, name, got.Text, tt.want)
		equal(t, name, got.Invalid, tt.invalid)
		equal(t, name, got.Omitted, 0)
	}
}

func TestKeeperKeepsBothEnds(t *testing.T) {
	t.Parallel()
	k := newKeeper(10, nil)
	_, _ = k.Write([]byte("abcdefghijklmnopqrstuvwxyz"))
	got := k.finish()
	equal(t, "text", got.Text, "abcde\n[… 16 bytes left out …]\nvwxyz")
	equal(t, "omitted", got.Omitted, 16)
}

// case: WS-C10
func TestKeeperIsBounded(t *testing.T) {
	t.Parallel()
	k := newKeeper(50<<10, nil)
	line := bytes.Repeat([]byte("x"), 32<<10)
	for range 4000 {
		_, _ = k.Write(line)
	}
	if held := cap(k.head) + cap(k.tail) + cap(k.buf); held > 8*(50<<10) {
		t.Errorf("holds %d bytes", held)
	}
	got := k.finish()
	equal(t, "total", got.Total, 4000*32<<10)
	equal(t, "omitted", got.Omitted, 4000*32<<10-50<<10)
}

func TestKeeperProperties(t *testing.T) {
	t.Parallel()
	piece := rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 6),
		rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("aé中🙂\uFFFD\n")), 0, 6, -1), func(s string) []byte { return []byte(s) }),
		rapid.SampledFrom([][]byte{{0xe4, 0xb8}, {0xe4, 0xb8, 0xad}, {0xf0}, {0x9f, 0x99, 0x82}}),
	)
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(8, 60).Draw(t, "limit")
		var all, tapped []byte
		k := newKeeper(limit, func(text []byte) {
			if !utf8.Valid(text) {
				t.Fatalf("live text %q is not valid", text)
			}
			tapped = append(tapped, text...)
		})
		for _, p := range rapid.SliceOf(piece).Draw(t, "writes") {
			all = append(all, p...)
			_, _ = k.Write(p)
		}
		got, want := k.finish(), decodeByRune(all)
		if !utf8.ValidString(got.Text) || got.Total != int64(len(all)) || string(tapped) != want {
			t.Fatalf("got %+v and live %q of %q", got, tapped, all)
		}
		if int(got.Invalid) != strings.Count(want, "\uFFFD")-strings.Count(string(all), "\uFFFD") {
			t.Fatalf("counted %d invalid bytes in %q", got.Invalid, all)
		}
		checkKept(t, got, want, limit)
	})
}

// checkKept compares what was kept with the whole text.
func checkKept(t *rapid.T, got Kept, want string, limit int) {
	if len(want) <= limit-utf8.UTFMax || got.Omitted == 0 {
		if got.Text != want || got.Omitted != 0 {
			t.Fatalf("uncut text: got %q, want %q", got.Text, want)
		}
		return
	}
	head, rest, _ := strings.Cut(got.Text, "\n[… ")
	_, tail, _ := strings.Cut(rest, "left out …]\n")
	if len(head)+len(tail) > limit || len(head)+len(tail)+int(got.Omitted) != len(want) {
		t.Fatalf("kept %q and %q, omitted %d of %q", head, tail, got.Omitted, want)
	}
	if !strings.HasPrefix(want, head) || !strings.HasSuffix(want, tail) {
		t.Fatalf("kept %q and %q of %q", head, tail, want)
	}
}

// decodeByRune is the plain way: Go's own loop over the whole text.
func decodeByRune(b []byte) string {
	var out strings.Builder
	for _, r := range string(b) {
		out.WriteRune(r)
	}
	return out.String()
}
