package frames

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// fault is what is wrong with a message: where, and why.
type fault struct {
	offset    int
	path, why string
}

// err makes the one error of unreadable messages.
func (f *fault) err() *Error {
	e := NewError(CodeBadFrame, "unreadable frame at byte %d%s: %s", f.offset, f.at(), f.why)
	e.Issues = []Issue{{Path: f.path, Message: f.why}}
	return e
}

func (f *fault) at() string {
	if f.path == "" {
		return ""
	}
	return " (" + f.path + ")"
}

// under moves the fault below a key or an index of the value around it.
func (f *fault) under(key string) *fault {
	f.path = "/" + pointerEscape(shorten(key)) + f.path
	return f
}

func faultf(offset int, path, format string, args ...any) *fault {
	return &fault{offset, path, fmt.Sprintf(format, args...)}
}

func pointerEscape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// shorten bounds a text that goes into an error message.
func shorten(s string) string { return shortenTo(s, 64) }

// shortenTo cuts a text to at most n bytes, on a rune's border, and shows that
// it did.
func shortenTo(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	cut := max(n-len(mark), 0)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
