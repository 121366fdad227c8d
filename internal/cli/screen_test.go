package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "",
		"plain\n\ttext — ünïcödé 👩‍👩‍👧": "plain\n\ttext — ünïcödé 👩‍👩‍👧",
		"\x1b[31mred\x1b[0m":      `\u001b[31mred\u001b[0m`,
		"\x1b]0;title\a":          `\u001b]0;title\u0007`,
		"a\r\nb\rc":               "a\nb\nc",
		"\u202ekcab\u2066x\u2069": `\u202ekcab\u2066x\u2069`,
		"c1 \u009b31m":            `c1 \u009b31m`,
		"\x00\x7f\b":              `\u0000\u007f\u0008`,
		"tag \U000e0041":          `tag \udb40\udc41`,
		"broken \xff\x9b":         "broken \ufffd\ufffd",
		"\ufeffmark":              `\ufeffmark`,
	} {
		if got := string(visible([]byte(text))); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// What is shown holds nothing that a terminal obeys, and JSON keeps its meaning.
func FuzzVisible(f *testing.F) {
	for _, text := range []string{"\x1b[2J", "a\r\n", "\u202e", "\U000e0041", "\xff", "é\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := visible([]byte(text))
		if i := firstHidden(got); i != len(got) {
			t.Errorf("%q is shown as %q", text, got)
		}
		if !utf8.ValidString(text) {
			return
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(text); err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(visible(b.Bytes()), &back); err != nil || back != text {
			t.Errorf("%q comes back as %q, %v", text, back, err)
		}
	})
}

// failing is a writer that fails from the nth write on.
type failing struct {
	n   int
	err error
	got strings.Builder
}

func (w *failing) Write(p []byte) (int, error) {
	if w.n--; w.n < 0 {
		return 0, w.err
	}
	return w.got.Write(p)
}

func TestScreenRemembersTheFirstFailure(t *testing.T) {
	t.Parallel()
	w := &failing{n: 1, err: syscall.ENOSPC}
	s := newScreen(w)
	for _, text := range []string{"one", "two", "three"} {
		_, _ = s.Write([]byte(text))
	}
	<-s.broken
	if err := s.failure(); !errors.Is(err, syscall.ENOSPC) || frames.CodeOf(err) != frames.CodeInternal || w.got.String() != "one" {
		t.Errorf("%v, written %q", err, w.got.String())
	}
}

// Notes that cannot be written end nothing, unless nobody is there any more.
func TestSideScreen(t *testing.T) {
	t.Parallel()
	full, gone := newSideScreen(&failing{err: syscall.ENOSPC}), newSideScreen(&failing{err: syscall.EPIPE})
	_, _ = full.Write([]byte("x"))
	_, _ = gone.Write([]byte("x"))
	select {
	case <-full.broken:
		t.Error("a full disk is taken for a reader that is gone")
	default:
	}
	<-gone.broken
}

func TestExactScreen(t *testing.T) {
	t.Parallel()
	w := &failing{n: 9}
	s := newScreen(w)
	s.setExact(true)
	_, _ = s.Write([]byte("\x1b\u202e\r\n"))
	if got := w.got.String(); got != "\x1b\u202e\r\n" {
		t.Errorf("written %q", got)
	}
}
