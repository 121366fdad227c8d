package manifesttools

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	// maxFiles is how many files of declarations a folder may have.
	maxFiles = 256
	// maxEntries is how many entries of any kind are looked at.
	maxEntries = 10_000
)

// found is one source of declarations as it is now.
type found struct {
	// key tells sources apart; name is for logs and lists.
	key, name string
	text      []byte
	// err: it cannot be read.
	err error
	// dir is the folder of its programs; empty for what came from a URL.
	dir       string
	published bool
}

// declares tells the files of a folder that declare tools: not those that editors
// keep for themselves.
func declares(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".json", ".yaml", ".yml"}, ext) && name != ext
}

// readFolder reads a folder's files, in the order of their names. The error says
// that the folder itself cannot be read.
func readFolder(dir string) ([]found, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, folderError(dir, err)
	}
	defer func() { _ = root.Close() }() // read only
	names, err := fileNames(root)
	if err != nil {
		return nil, folderError(dir, err)
	}
	all := make([]found, 0, len(names))
	for i, name := range names {
		f := found{key: filepath.Join(dir, name), name: filepath.Base(dir) + "/" + name, dir: dir}
		if i < maxFiles {
			f.text, f.err = readFile(root, name)
		} else {
			f.err = refused("the folder has more than %d files of declarations", maxFiles)
		}
		all = append(all, f)
	}
	return all, nil
}

func fileNames(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // read only
	entries, err := d.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("it has more than %d entries", maxEntries)
	}
	var names []string
	for _, e := range entries {
		if declares(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// readFile reads a file of the folder; links lead no further than that.
func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(err)
	}
	text, err := readAndClose(f, maxFile)
	if err != nil {
		return nil, unreadable(err)
	}
	return text, nil
}

// readAndClose reads a regular file that was opened without waiting, up to a byte
// more than limit.
func readAndClose(f *os.File, limit int64) ([]byte, error) {
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// unreadable says why a file cannot be read, without its path.
func unreadable(err error) *frames.Error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return refused("cannot be read: %w", err)
}

func folderError(dir string, err error) *frames.Error {
	code := frames.CodeUnavailable
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = frames.CodeNotFound
	case errors.Is(err, syscall.ENOTDIR):
		code = frames.CodeValidationInput
	case errors.Is(err, fs.ErrPermission):
		code = frames.CodeDenied
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return frames.NewError(code, "the folder %s of tools cannot be read: %w", dir, err).WithReason("folder")
}

// readManifest reads a published manifest from a file.
func readManifest(path string) found {
	f := found{key: path, name: filepath.Base(path), dir: filepath.Dir(path), published: true}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		f.err = folderError(f.dir, err)
		return f
	}
	defer func() { _ = root.Close() }() // read only
	f.text, f.err = readFile(root, f.name)
	return f
}
