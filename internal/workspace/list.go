package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// EntryType says what an entry of a directory is.
type EntryType string

// Types of entries.
const (
	TypeFile      EntryType = "file"
	TypeDirectory EntryType = "directory"
	TypeLink      EntryType = "link"
	TypeOther     EntryType = "other"
)

// Entry is one entry of a directory.
type Entry struct {
	// Name is the entry's name; bytes that are not UTF-8 show as U+FFFD.
	Name string    `json:"name"`
	Type EntryType `json:"type"`
	// Size is a file's size in bytes; 0 for all else.
	Size int64 `json:"size"`
}

// Listing is what reading a directory gives.
type Listing struct {
	// IsDirectory is always true.
	IsDirectory bool `json:"isDirectory"`
	// Files are the entries in the order of their names' bytes; never nil.
	Files []Entry `json:"files"`
	// Total counts the entries that may be shown, also those left out by the limit.
	Total int `json:"total"`
	// Hint tells a model what to do next.
	Hint string `json:"hint"`
}

// list lists the directory name.
func (w *Workspace) list(ctx context.Context, name string) (*Listing, error) {
	dir, err := w.root.OpenRoot(name)
	if err != nil {
		return nil, w.failed("list", name, err)
	}
	defer func() { _ = dir.Close() }()
	entries, total, err := w.entries(ctx, dir)
	if err != nil {
		return nil, w.failed("list", name, err)
	}
	l := &Listing{IsDirectory: true, Files: make([]Entry, 0, len(entries)), Total: total}
	for _, e := range entries {
		l.Files = append(l.Files, describe(dir, e))
	}
	l.Hint = hint(l)
	return l, nil
}

// entries gives the first entries of dir by name and the count of all, in
// memory bounded by the list limit.
func (w *Workspace) entries(ctx context.Context, dir *os.Root) (kept []fs.DirEntry, total int, err error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	for {
		batch, err := f.ReadDir(1024)
		for _, e := range batch {
			if w.listed(e) {
				kept, total = append(kept, e), total+1
			}
		}
		kept = firstByName(kept, w.listEntries)
		if errors.Is(err, io.EOF) {
			return kept, total, nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, 0, err
		}
	}
}

func firstByName(entries []fs.DirEntry, limit int) []fs.DirEntry {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries[:min(limit, len(entries))]
}

// listed leaves out what the extension rule forbids, and writes under way.
func (w *Workspace) listed(e fs.DirEntry) bool {
	return !strings.HasPrefix(e.Name(), tempPrefix) && (e.IsDir() || w.permits(e.Name()))
}

// describe looks at the entry through dir, which an entry swapped for a link
// does not lead out of. An entry that went away keeps the type it was seen with.
func describe(dir *os.Root, e fs.DirEntry) Entry {
	mode, size := e.Type(), int64(0)
	if info, err := dir.Lstat(e.Name()); err == nil {
		mode, size = info.Mode().Type(), info.Size()
	}
	entry := Entry{Name: strings.ToValidUTF8(e.Name(), "\uFFFD"), Type: entryType(mode)}
	if entry.Type == TypeFile {
		entry.Size = size
	}
	return entry
}

func entryType(mode fs.FileMode) EntryType {
	switch mode {
	case 0:
		return TypeFile
	case fs.ModeDir:
		return TypeDirectory
	case fs.ModeSymlink:
		return TypeLink
	}
	return TypeOther
}

func hint(l *Listing) string {
	switch {
	case l.Total > len(l.Files):
		return "This is a directory with more entries than are shown. Read one of its sub-directories, or name the file."
	case l.Total == 0:
		return "This directory is empty, or holds no file that may be shown."
	}
	return "This is a directory. Join its path and the name of an entry to read that entry."
}
