package workspace

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"
	"syscall"

	"github.com/weavebus/weavebus/pkg/frames"
)

// tempPrefix begins the names of files that are being written.
const tempPrefix = ".wb-"

// attributes are what a file is created with.
type attributes struct {
	mode fs.FileMode
	// exact says that the process's umask does not count.
	exact bool
	// uid and gid are the owner; -1 leaves it to the system.
	uid, gid int
}

// newAttributes keeps the permissions of the file that is replaced and, for a
// process that may, its owner. A new file gets what the umask leaves.
func (w *Workspace) newAttributes(old fs.FileInfo) attributes {
	a := attributes{mode: 0o666, uid: -1, gid: -1}
	if w.user.Switched {
		a.uid, a.gid = w.user.UID, w.user.GID
	}
	if old == nil {
		return a
	}
	a.mode, a.exact = old.Mode().Perm(), true
	if st, ok := old.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		a.uid, a.gid = int(st.Uid), int(st.Gid)
	}
	return a
}

// replace puts a new file, filled by fill, in the place of base. Until the
// rename nothing of base changes; on an error the new file is removed again.
func replace(dir *os.Root, base string, a attributes, fill func(io.Writer) error) error {
	temp := tempPrefix + strings.ToLower(rand.Text())
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, a.mode)
	if err != nil {
		return err
	}
	if err = errors.Join(finish(f, a, fill), f.Close()); err == nil {
		err = dir.Rename(temp, base)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return syncDir(dir)
}

// finish fills the new file and brings it to the disk.
func finish(f *os.File, a attributes, fill func(io.Writer) error) error {
	if err := fill(f); err != nil {
		return err
	}
	if a.uid >= 0 {
		if err := f.Chown(a.uid, a.gid); err != nil {
			return err
		}
	}
	if a.exact {
		if err := f.Chmod(a.mode); err != nil {
			return err
		}
	}
	return f.Sync()
}

// syncDir brings a rename to the disk. A file system that cannot do that for a
// directory (EINVAL), or a directory that may not be read, is no failure.
func syncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err == nil {
		err = f.Sync()
		_ = f.Close()
	}
	if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	const text = "the file was written, but the disk may not keep it: input/output error"
	return withEffect(wrapped(frames.CodeExecution, ReasonIO, text, err), frames.EffectDone)
}

// prefixes gives "a", "a/b", "a/b/c" for "a/b/c".
func prefixes(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, c := range name {
			if c == '/' && i > 0 && !yield(name[:i]) {
				return
			}
		}
		yield(name)
	}
}
