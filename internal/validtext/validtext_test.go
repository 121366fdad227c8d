package validtext_test

import (
	"testing"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/validtext"
)

func FuzzOf(f *testing.F) {
	for _, s := range []string{"", "a\xffb", "\xf0\x9f\x99\x82", "\xe4\xb8", "\uFFFD"} {
		f.Add([]byte(s), 2)
	}
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		text, invalid := validtext.Of(b)
		if !utf8.ValidString(text) || (invalid == 0) != utf8.Valid(b) {
			t.Errorf("%q, %d bad bytes, of %q", text, invalid, b)
		}
		if limit < 0 {
			return
		}
		n := validtext.Cut([]byte(text), limit)
		if n > limit && n != 0 || n > len(text) || !utf8.ValidString(text[:n]) {
			t.Errorf("cut %q at %d for %d", text, n, limit)
		}
	})
}
