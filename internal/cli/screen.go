package cli

import (
	"errors"
	"io"
	"sync"
	"syscall"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
)

// screen is what the command line writes to. It shows text of models and tools
// without what a terminal would obey, and remembers the first write that failed.
type screen struct {
	// broken is closed by that write, or where side is set only when the reader is gone.
	broken chan struct{}
	// side: what is written here is not what the command was run for.
	side bool

	mu     sync.Mutex
	w      io.Writer
	exact  bool
	failed error
}

func newScreen(w io.Writer) *screen { return &screen{w: w, broken: make(chan struct{})} }

func newSideScreen(w io.Writer) *screen {
	s := newScreen(w)
	s.side = true
	return s
}

// setExact passes everything on as it is from now on: for machines.
func (s *screen) setExact(exact bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exact = exact
}

// Write writes text, whole runes at a time. After a write that failed nothing is
// written any more.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return 0, s.failed
	}
	text := p
	if !s.exact {
		text = visible(p)
	}
	if _, err := s.w.Write(text); err != nil {
		s.failed = err
		if !s.side || errors.Is(err, syscall.EPIPE) {
			close(s.broken)
		}
		return 0, err
	}
	return len(p), nil
}

// failure gives the write that failed; nil where none did.
func (s *screen) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failed == nil:
		return nil
	case errors.Is(s.failed, syscall.EPIPE):
		return frames.NewError(frames.CodeInternal, "nobody reads the output any more").WithReason(reasonOutput)
	}
	return frames.NewError(frames.CodeInternal, "cannot write the output: %w", s.failed).WithReason(reasonOutput)
}

// reasonOutput marks output that could not be written.
const reasonOutput = "output"

// visible escapes what a terminal would obey instead of show: control characters
// but new line and tab, bidirectional overrides, invisible tags. The form is that
// of JSON, so that JSON keeps its meaning. A carriage return is a new line.
func visible(p []byte) []byte {
	i := firstHidden(p)
	if i == len(p) {
		return p
	}
	out := append(make([]byte, 0, len(p)+16), p[:i]...)
	for i < len(p) {
		r, size := utf8.DecodeRune(p[i:])
		switch {
		case r == '\r' && i+1 < len(p) && p[i+1] == '\n':
		case r == '\r':
			out = append(out, '\n')
		case r == utf8.RuneError && size == 1:
			out = utf8.AppendRune(out, utf8.RuneError)
		case hidden(r):
			out = appendEscaped(out, r)
		default:
			out = append(out, p[i:i+size]...)
		}
		i += size
	}
	return out
}

// firstHidden gives where the first rune stands that is not shown as it is.
func firstHidden(p []byte) int {
	for i := 0; i < len(p); {
		r, size := utf8.DecodeRune(p[i:])
		if hidden(r) || r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(p)
}

func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	case r == 0x2028 || r == 0x2029 || r == 0xfeff: // line and paragraph separator, byte order mark
		return true
	case r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe007f: // interlinear annotation, tags
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

func appendEscaped(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	for _, unit := range utf16.Encode([]rune{r}) {
		out = append(out, '\\', 'u', hex[unit>>12], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
	}
	return out
}
