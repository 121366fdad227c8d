package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// write writes and checks that no temporary file stays.
func (b bundle) write(t *testing.T, path, content string) (WriteResult, error) {
	t.Helper()
	res, err := b.WriteFile(t.Context(), WriteRequest{Path: path, Content: content})
	entries, dirErr := os.ReadDir(b.at("work"))
	ok(t, dirErr)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("%s was left behind", e.Name())
		}
	}
	return res, err
}

// contract: P30, P31
// case: WS-F46, WS-F47
func TestWrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tests := []struct {
		path, content string
		want          WriteResult
	}{
		{"new.txt", "one", WriteResult{true, "new.txt", 3, true}},
		{"new.txt", "three", WriteResult{true, "new.txt", 5, false}},
		{"new.txt", "", WriteResult{true, "new.txt", 0, false}},
		{"a/b/c/deep", "x", WriteResult{true, "a/b/c/deep", 1, true}},
		{"./a//b/./x", "x", WriteResult{true, "a/b/x", 1, true}},
		{b.at("work/abs"), "ä", WriteResult{true, "abs", 2, true}},
		{"t.txt; echo X", "literal", WriteResult{true, "t.txt; echo X", 7, true}},
		{"-rf", "name", WriteResult{true, "-rf", 4, true}},
		{"two\nlines", "n", WriteResult{true, "two\nlines", 1, true}},
	}
	for _, tt := range tests {
		res, err := b.write(t, tt.path, tt.content)
		ok(t, err)
		equal(t, tt.path, res, tt.want)
		equal(t, tt.path, b.get(t, "work/"+tt.want.Path), tt.content)
	}
}

// contract: P30, P31, P32, P33, B9
// case: WS-F01, WS-F16
func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t, WithExtensions("txt"))
	b.put(t, "file.txt", "old")
	b.put(t, "dir.txt/x.txt", "")
	b.put(t, "real.sh", "old")
	b.fifo(t, "pipe.txt")
	b.link(t, "../work-evil/secret", "out.txt")
	b.link(t, "../work-evil/none.txt", "dangling.txt")
	b.link(t, b.at("work/file.txt"), "abs.txt")
	b.link(t, "real.sh", "innocent.txt")
	b.link(t, "loop.txt", "loop.txt")
	b.link(t, "dir.txt/..", "up.txt")
	b.link(t, "../work-evil", "lnk")
	tests := []struct {
		path   string
		code   frames.Code
		reason string
	}{
		{"", frames.CodeValidationInput, ReasonEmptyPath},
		{" \t", frames.CodeValidationInput, ReasonEmptyPath},
		{".", frames.CodeValidationInput, ReasonIsDirectory},
		{"file.txt/", frames.CodeValidationInput, ReasonIsDirectory},
		{"file.txt/.", frames.CodeValidationInput, ReasonIsDirectory},
		{"dir.txt", frames.CodeExecution, ReasonIsDirectory},
		{"up.txt", frames.CodeExecution, ReasonIsDirectory},
		{"dir.txt/../new.txt", frames.CodeValidationInput, ReasonInvalidPath},
		{"../work-evil/new.txt", frames.CodeDenied, ReasonOutside},
		{b.at("work-evil/new.txt"), frames.CodeDenied, ReasonOutside},
		{"lnk/new.txt", frames.CodeDenied, ReasonOutside},
		{"lnk/a/new.txt", frames.CodeDenied, ReasonOutside},
		{"out.txt", frames.CodeDenied, ReasonOutside},
		{"dangling.txt", frames.CodeDenied, ReasonOutside},
		{"abs.txt", frames.CodeDenied, ReasonAbsoluteLink},
		{"loop.txt", frames.CodeExecution, ReasonLinkLoop},
		{"new.sh", frames.CodeDenied, ReasonExtension},
		{"Makefile", frames.CodeDenied, ReasonExtension},
		{"innocent.txt", frames.CodeDenied, ReasonExtension},
		{"pipe.txt", frames.CodeExecution, ReasonNotRegular},
		{"file.txt/below.txt", frames.CodeExecution, ReasonNotDirectory},
		{"new\x00.txt", frames.CodeValidationInput, ReasonInvalidPath},
		{strings.Repeat("n", 300) + ".txt", frames.CodeValidationInput, ReasonNameTooLong},
	}
	for _, tt := range tests {
		res, err := b.write(t, tt.path, "new")
		b.refused(t, err, tt.code, tt.reason)
		equal(t, tt.path, res, WriteResult{})
	}
	equal(t, "outside", b.get(t, "work-evil/secret"), "outside")
	entries, err := os.ReadDir(b.at("work-evil"))
	ok(t, err)
	equal(t, "entries outside", len(entries), 1)
	equal(t, "old file", b.get(t, "work/real.sh"), "old")
}

// case: WS-F20, WS-F40
func TestWriteThroughLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "real/f", "old")
	b.link(t, "real", "d")
	b.link(t, "d/f", "l1")
	b.link(t, "l1", "l2")
	b.link(t, "real/fresh", "dangling")
	ok(t, os.Link(b.at("work-evil/secret"), b.at("work/hard")))
	for path, target := range map[string]string{"l2": "real/f", "dangling": "real/fresh", "hard": "hard"} {
		res, err := b.write(t, path, "new "+path)
		ok(t, err)
		equal(t, "path", res.Path, path)
		equal(t, path, b.get(t, "work/"+target), "new "+path)
	}
	equal(t, "hard link's other name", b.get(t, "work-evil/secret"), "outside")
	info, err := os.Lstat(b.at("work/l2"))
	ok(t, err)
	equal(t, "the link stays a link", info.Mode().Type(), os.ModeSymlink)
}

// case: WS-F37
func TestWriteKeepsThePermissions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, mode := range []os.FileMode{0o600, 0o755, 0o666} {
		name := fmt.Sprintf("f%o", mode)
		b.put(t, name, "old")
		ok(t, os.Chmod(b.at("work/"+name), mode))
		_, err := b.write(t, name, "new")
		ok(t, err)
		info, err := os.Stat(b.at("work/" + name))
		ok(t, err)
		equal(t, name, info.Mode(), mode)
	}
}

// contract: P32
// case: WS-F38
func TestFailedReplaceKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "f", "old")
	full := func(f io.Writer) error {
		_, err := io.WriteString(f, "half of the new")
		return errors.Join(err, &os.PathError{Op: "write", Path: "f", Err: syscall.ENOSPC})
	}
	err := replace(b.root, "f", attributes{mode: 0o600, uid: -1}, full)
	b.refused(t, b.failed("write", "f", err), frames.CodeExecution, ReasonNoSpace)
	equal(t, "old content", b.get(t, "work/f"), "old")
	entries, err := os.ReadDir(b.at("work"))
	ok(t, err)
	equal(t, "entries", len(entries), 1)
}

// contract: P32
func TestWhatTheFileSystemSaysHasAReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for errno, reason := range map[syscall.Errno]string{
		syscall.ENOENT: ReasonNotFound, syscall.EACCES: ReasonPermission, syscall.EPERM: ReasonPermission,
		syscall.ENOSPC: ReasonNoSpace, syscall.EDQUOT: ReasonNoSpace, syscall.EROFS: ReasonReadOnly,
		syscall.EIO: ReasonIO, syscall.ENAMETOOLONG: ReasonNameTooLong,
	} {
		cause := &os.PathError{Op: "openat", Path: b.at("work/" + strings.Repeat("x", 5000)), Err: errno}
		err := b.failed("write", "f", cause)
		b.refused(t, err, frames.CodeExecution, reason)
		equal(t, "cause kept", errors.Is(err, errno), true)
	}
}

// A file without the permission to write is not replaced by way of its
// directory. Root has every permission.
func TestWriteAsksTheFilesPermission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "ro", "old")
	ok(t, os.Chmod(b.at("work/ro"), 0o444))
	_, err := b.write(t, "ro", "new")
	if os.Geteuid() == 0 {
		ok(t, err)
		return
	}
	b.refused(t, err, frames.CodeExecution, ReasonPermission)
	equal(t, "content", b.get(t, "work/ro"), "old")
}

func TestWriteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "f", "old")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.WriteFile(ctx, WriteRequest{Path: "f", Content: "new"})
	b.refused(t, err, frames.CodeCancelled, "")
	equal(t, "content", b.get(t, "work/f"), "old")
	_, err = b.WriteFile(ctx, WriteRequest{Path: "new/f", Content: "new"})
	b.refused(t, err, frames.CodeCancelled, "")
	equal(t, "effect with a directory made", frames.AsError(err).Effect, frames.EffectUnknown)
}

// case: WS-F40
func TestOneLockPerRealFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "d/f", "old")
	b.link(t, "d/f", "link")
	b.link(t, "d", "dd")
	var created atomic.Int32
	var writers sync.WaitGroup
	for i, path := range []string{"d/f", "./d/f", "link", "dd/f", "new", "new", "./new", "new"} {
		writers.Go(func() {
			res, err := b.WriteFile(t.Context(), WriteRequest{Path: path, Content: fmt.Sprint(i)})
			soft(t, err)
			if res.Created {
				created.Add(1)
			}
		})
	}
	writers.Wait()
	equal(t, "files created", created.Load(), 1)
	equal(t, "locks left", len(b.locks.held), 0)
}

func TestLockWaitsItsTurn(t *testing.T) {
	t.Parallel()
	locks := fileLocks{held: map[fileKey]*fileLock{}}
	unlock, err := locks.lock(t.Context(), fileKey{base: "f"})
	ok(t, err)
	other, err := locks.lock(t.Context(), fileKey{base: "g"})
	ok(t, err)
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.lock(ctx, fileKey{base: "f"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got the lock twice, or %v", err)
	}
	unlock()
	equal(t, "locks left", len(locks.held), 0)
}

// case: WS-F08
func TestLinkSwappedInDuringWrites(t *testing.T) {
	t.Parallel()
	b := setup(t)
	flips, stop := flip(t, b.at("work"), "x", "inside", "../work-evil/x")
	var writes, refusals int
	for ; writes < 60 || flips.Load() < 60; writes++ {
		if _, err := b.WriteFile(t.Context(), WriteRequest{Path: "x", Content: "text"}); err != nil {
			refusals++
		}
	}
	stop()
	if _, err := os.Lstat(b.at("work-evil/x")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a write left the workspace (%d of %d were refused): %v", refusals, writes, err)
	}
}
