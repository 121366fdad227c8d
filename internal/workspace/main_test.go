package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a workspace at <base>/work with a neighbour <base>/work-evil.
type bundle struct {
	*Workspace
	base string
}

func setup(t *testing.T, opts ...Option) bundle {
	t.Helper()
	base := t.TempDir()
	for _, dir := range []string{"work", "work-evil"} {
		ok(t, os.Mkdir(filepath.Join(base, dir), 0o755))
	}
	ok(t, os.WriteFile(filepath.Join(base, "work-evil", "secret"), []byte("outside"), 0o644))
	env := WithEnvironment([]string{"PATH=" + os.Getenv("PATH")})
	w, err := Open(filepath.Join(base, "work"), append([]Option{env}, opts...)...)
	ok(t, err)
	t.Cleanup(func() { ok(t, w.Close()) })
	return bundle{w, base}
}

// at is the host path of a name beside or in the workspace.
func (b bundle) at(name string) string { return filepath.Join(b.base, name) }

func (b bundle) put(t *testing.T, name, content string) {
	t.Helper()
	path := b.at("work/" + name)
	ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
	ok(t, os.WriteFile(path, []byte(content), 0o644))
}

func (b bundle) get(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(b.at(name))
	ok(t, err)
	return string(content)
}

func (b bundle) link(t *testing.T, target, name string) {
	t.Helper()
	ok(t, os.Symlink(target, b.at("work/"+name)))
}

// refused checks the shape that every error must have, and which one it is.
func (b bundle) refused(t *testing.T, err error, code frames.Code, reason string) {
	t.Helper()
	e, isErr := err.(*frames.Error) //nolint:errorlint // it must leave unwrapped
	if !isErr || e.Code != code || e.Reason != reason {
		t.Fatalf("got error %#v, want %s with reason %s", err, code, reason)
	}
	if text := e.Message + e.ForModel(); strings.Contains(text, b.base) || len(text) > 2000 {
		t.Errorf("the error names a host path or is not bounded: %s", text)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// soft is ok for goroutines that are not the test's own.
func soft(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// fifo makes a named pipe in the workspace.
func (b bundle) fifo(t *testing.T, name string) {
	t.Helper()
	ok(t, syscall.Mkfifo(b.at("work/"+name), 0o666))
}

// witness opens a named pipe that commands write to; gone waits until no process
// holds its other end any more.
func (b bundle) witness(t *testing.T, name string) (gone func()) {
	t.Helper()
	b.fifo(t, name)
	f, err := os.OpenFile(b.at("work/"+name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	ok(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return func() {
		t.Helper()
		ok(t, f.SetReadDeadline(time.Now().Add(5*time.Second)))
		if _, err := f.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a process of the command is still alive")
		}
	}
}
