package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// contract: P30, P37, B9
// case: WS-F01, WS-F09, WS-F12, WS-F13, WS-F14, WS-F16
func TestPathsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "a.txt", "inside")
	b.link(t, "../work-evil", "lnk")
	b.link(t, "../work-evil/secret", "lnkfile")
	b.link(t, b.at("work/a.txt"), "abs")
	b.link(t, "loop", "loop")
	long := strings.Repeat("x", 200)
	tests := []struct {
		path   string
		code   frames.Code
		reason string
	}{
		{"../work-evil/secret", frames.CodeDenied, ReasonOutside},
		{b.at("work-evil/secret"), frames.CodeDenied, ReasonOutside},
		{b.at("work") + "/../work-evil/secret", frames.CodeDenied, ReasonOutside},
		{"..", frames.CodeDenied, ReasonOutside},
		{"a/../../work-evil/secret", frames.CodeDenied, ReasonOutside},
		{"/etc", frames.CodeDenied, ReasonOutside},
		{"/etc/passwd", frames.CodeDenied, ReasonOutside},
		{"/", frames.CodeDenied, ReasonOutside},
		{"lnk/", frames.CodeDenied, ReasonOutside},
		{"lnk", frames.CodeDenied, ReasonOutside},
		{"lnk/.", frames.CodeDenied, ReasonOutside},
		{"lnk/secret", frames.CodeDenied, ReasonOutside},
		{"lnkfile", frames.CodeDenied, ReasonOutside},
		{"abs", frames.CodeDenied, ReasonAbsoluteLink},
		{"loop", frames.CodeExecution, ReasonLinkLoop},
		{"a\x00b", frames.CodeValidationInput, ReasonInvalidPath},
		{"a\xff", frames.CodeValidationInput, ReasonInvalidPath},
		{strings.Repeat("n", 256), frames.CodeValidationInput, ReasonNameTooLong},
		{strings.Repeat("d/", 2100), frames.CodeValidationInput, ReasonNameTooLong},
		{strings.Repeat(long+"/", 20) + "x", frames.CodeExecution, ReasonNotFound},
		{`..\work-evil\secret`, frames.CodeExecution, ReasonNotFound},
		{`C:\Windows\win.ini`, frames.CodeExecution, ReasonNotFound},
		{"....//secret", frames.CodeExecution, ReasonNotFound},
		{"missing", frames.CodeExecution, ReasonNotFound},
		{"a.txt/", frames.CodeExecution, ReasonNotDirectory},
		{"a.txt/.", frames.CodeExecution, ReasonNotDirectory},
		{"a.txt/b", frames.CodeExecution, ReasonNotDirectory},
	}
	for _, tt := range tests {
		t.Run(shown(tt.path), func(t *testing.T) {
			t.Parallel()
			res, err := b.ReadFile(t.Context(), ReadRequest{Path: tt.path})
			b.refused(t, err, tt.code, tt.reason)
			if res.Success || res.FileText != nil || res.Listing != nil {
				t.Errorf("a refused read gave %+v", res)
			}
		})
	}
}

// contract: P30
func TestPathsThatAreRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "a.txt", "inside")
	b.put(t, "deep/er/b.txt", "below")
	b.link(t, "deep/er", "short")
	b.link(t, "short/../../a.txt", "winding")
	tests := map[string]struct{ path, want string }{
		"a.txt":                      {"a.txt", "inside"},
		"./a.txt":                    {"a.txt", "inside"},
		b.at("work/a.txt"):           {"a.txt", "inside"},
		b.at("work") + "//./a.txt":   {"a.txt", "inside"},
		"deep//er/./b.txt":           {"deep/er/b.txt", "below"},
		"short/b.txt":                {"short/b.txt", "below"},
		"deep/../a.txt":              {"deep/../a.txt", "inside"},
		"short/../../a.txt":          {"", ReasonOutside},
		"winding":                    {"winding", "inside"},
		b.at("work") + "/deep/../..": {"", ReasonOutside},
	}
	for path, want := range tests {
		res, err := b.ReadFile(t.Context(), ReadRequest{Path: path})
		if want.path == "" {
			b.refused(t, err, frames.CodeDenied, want.want)
			continue
		}
		ok(t, err)
		equal(t, path, res.Path, want.path)
		equal(t, path, res.Content, want.want)
	}
}

// case: WS-F07
func TestLinkFlippedDuringReads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "dir/secret", "inside")
	flips, stop := flip(t, b.at("work"), "race", "dir", "../work-evil")
	for reads := 0; reads < 500 || flips.Load() < 500; reads++ {
		res, err := b.ReadFile(t.Context(), ReadRequest{Path: "race/secret"})
		if err == nil && res.Content != "inside" {
			t.Errorf("a read left the workspace: %q", res.Content)
			break
		}
	}
	stop()
	ok(t, os.Remove(b.at("work/race")))
	b.link(t, "dir", "race")
	res, err := b.ReadFile(t.Context(), ReadRequest{Path: "race/secret"})
	ok(t, err)
	equal(t, "content", res.Content, "inside")
}

// flip swaps dir/name between links to the targets, and counts, until stop is called.
func flip(t *testing.T, dir, name string, targets ...string) (flips *atomic.Int64, stop func()) {
	t.Helper()
	flips = new(atomic.Int64)
	done := make(chan struct{})
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			temp := filepath.Join(dir, "flip")
			_ = os.Symlink(targets[i%len(targets)], temp)
			_ = os.Rename(temp, filepath.Join(dir, name))
			flips.Add(1)
		}
	})
	return flips, func() { close(done); flipping.Wait() }
}

func TestRootIsTheWholeFileSystem(t *testing.T) {
	t.Parallel()
	w := &Workspace{dir: "/", real: "/"}
	for path, want := range map[string]string{"/": ".", "/etc/x": "etc/x", "etc": "etc"} {
		loc, err := w.locate(path)
		ok(t, err)
		equal(t, path, loc.name, want)
	}
}
