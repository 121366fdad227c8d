package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/weavebus/weavebus/pkg/frames"
)

// WriteRequest says what to write.
type WriteRequest struct {
	// Path names one file, relative to the workspace or absolute inside it, without "..".
	Path string `json:"path"`
	// Content is the whole new content; it may be empty.
	Content string `json:"content"`
}

// WriteResult says what was written.
type WriteResult struct {
	// Success is true whenever there is a result.
	Success bool `json:"success"`
	// Path is relative to the workspace, as it was asked for.
	Path string `json:"path"`
	// Bytes is the length of the file.
	Bytes int `json:"bytes"`
	// Created says that there was no such file before.
	Created bool `json:"created"`
}

// WriteFile replaces the content of a file, or creates it and the directories
// above it. The file has its old or its new content at every moment, and after
// an error the old one. It keeps its permissions. When the path's last name is a
// relative link inside the workspace, the file that it leads to is written.
// Two writes of one file through one Workspace run one after the other.
func (w *Workspace) WriteFile(ctx context.Context, req WriteRequest) (WriteResult, error) {
	loc, err := w.locateFile(req.Path)
	if err != nil {
		return WriteResult{}, err
	}
	final, err := w.follow(loc.name)
	if err != nil {
		return WriteResult{}, err
	}
	parent, base := split(final)
	if base == "" || base == "." || base == ".." {
		return WriteResult{}, w.failed("write", loc.name, syscall.EISDIR)
	}
	if err := w.checkExtension(loc.name, final); err != nil {
		return WriteResult{}, err
	}
	created, err := w.writeAt(ctx, parent, base, req.Content)
	if err != nil {
		return WriteResult{}, w.failed("write", loc.name, err)
	}
	return WriteResult{Success: true, Path: loc.name, Bytes: len(req.Content), Created: created}, nil
}

// writeAt writes the file base of the directory parent, which it makes when it
// is missing.
func (w *Workspace) writeAt(ctx context.Context, parent, base, content string) (created bool, err error) {
	dir, made, err := w.openParent(parent)
	if err == nil {
		defer func() { _ = dir.Close() }()
		created, err = w.writeIn(ctx, dir, base, content)
	}
	if err != nil && made {
		return false, withEffect(w.failed("write", base, err), frames.EffectUnknown)
	}
	return created, err
}

// writeIn writes the file base of the pinned directory dir under its lock.
func (w *Workspace) writeIn(ctx context.Context, dir *os.Root, base, content string) (created bool, err error) {
	info, err := dir.Stat(".")
	if err != nil {
		return false, err
	}
	unlock, err := w.locks.lock(ctx, keyOf(info, base))
	if err != nil {
		return false, err
	}
	defer unlock()
	old, err := existing(dir, base)
	if err != nil {
		return false, err
	}
	fill := func(f io.Writer) error {
		_, err := io.Copy(f, strings.NewReader(content))
		return errors.Join(err, ctx.Err())
	}
	return old == nil, replace(dir, base, w.newAttributes(old), fill)
}

// openParent opens the directory name and says whether it had to make it, or a
// part of it.
func (w *Workspace) openParent(name string) (dir *os.Root, made bool, err error) {
	dir, err = w.root.OpenRoot(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, false, err
	}
	if made, err = w.makeDirs(name); err != nil {
		return nil, made, err
	}
	dir, err = w.root.OpenRoot(name)
	return dir, made, err
}

// makeDirs makes what is missing of the directory name.
func (w *Workspace) makeDirs(name string) (made bool, err error) {
	for at := range prefixes(name) {
		err := w.root.Mkdir(at, 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			made, err = true, w.giveDir(at)
		}
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// giveDir gives a new directory to the one who runs commands.
func (w *Workspace) giveDir(name string) error {
	if !w.user.Switched {
		return nil
	}
	dir, err := w.root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Chown(w.user.UID, w.user.GID)
}

// existing looks at the file that will be replaced: nil when there is none, an
// error when it is no regular file or may not be written.
func existing(dir *os.Root, base string) (fs.FileInfo, error) {
	info, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // nothing there is an answer
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, syscall.EISDIR
	case !info.Mode().IsRegular():
		return nil, refused(frames.CodeExecution, ReasonNotRegular, "%s is not a regular file", shown(base))
	}
	return info, checkWritable(dir, base)
}

// checkWritable asks the file's own permissions, which a rename would pass by.
func checkWritable(dir *os.Root, base string) error {
	f, err := dir.OpenFile(base, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ETXTBSY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
