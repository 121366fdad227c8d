package workspace

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/weavebus/weavebus/pkg/frames"
)

// linkAt gives the target of the link at name; "" when it is no link or missing.
func (w *Workspace) linkAt(name string) (string, error) {
	info, err := w.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return "", err
	}
	return w.root.Readlink(name)
}

// open opens a regular file or a directory for reading. It never waits for the
// other end of a pipe, and judges what it opened, not what a name said before.
func (w *Workspace) open(loc location) (*os.File, fs.FileInfo, error) {
	name, err := w.follow(loc.name)
	if err != nil {
		return nil, nil, err
	}
	f, err := w.root.OpenFile(location{name, loc.slash}.opened(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, w.failed("read", loc.name, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = w.readable(loc.name, name, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, w.failed("read", loc.name, err)
	}
	return f, info, nil
}

// readable judges an open file, named given by the caller, which is at final.
func (w *Workspace) readable(given, final string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return nil
	case !info.Mode().IsRegular():
		return refused(frames.CodeExecution, ReasonNotRegular, "%s is not a regular file", shown(given))
	}
	return w.checkExtension(given, final)
}

// checkExtension applies the extension rule to a file's name as it was given,
// and to its others.
func (w *Workspace) checkExtension(names ...string) error {
	if !slices.ContainsFunc(names, func(name string) bool { return !w.permits(name) }) {
		return nil
	}
	return refused(frames.CodeDenied, ReasonExtension,
		"%s is not allowed in this workspace, which is limited to files with %s", shown(names[0]), w.extensionList())
}
