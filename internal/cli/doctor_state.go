package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weavebus/weavebus/internal/natsd"
)

// checkState looks whether the state folder is private and can be used.
func checkState(dir string) []finding {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []finding{{"state", "ok", dir + " is not there: no mesh was started on it yet", ""}}
	case err != nil:
		return []finding{{"state", "fail", err.Error(), "make it readable, or choose another folder with --state"}}
	case !info.IsDir():
		return []finding{{"state", "fail", dir + " is no folder", "remove it, or choose another with --state"}}
	}
	found := openOnes(dir)
	if _, err := readMeshFile(dir); err != nil {
		found = append(found, finding{"state", "warn", err.Error(), "stop the mesh that runs on it, if one does, and start it again"})
	}
	if err := tryWrite(filepath.Join(dir, "doctor.tmp")); err != nil {
		found = append(found, finding{"state", "fail", "cannot be written: " + err.Error(), "make room on its disk, or its folder writable; then start the mesh again"})
	}
	if len(found) > 0 {
		return found
	}
	return []finding{{"state", "ok", dir + " is private", ""}}
}

// tryWrite writes a file as a mesh would, and removes it.
func tryWrite(path string) error {
	defer func() { _ = os.Remove(path) }() // what is left of it is overwritten next time
	return os.WriteFile(path, make([]byte, 64<<10), 0o600)
}

// openOnes names the folders and keys that others may read, or that cannot be used.
func openOnes(dir string) []finding {
	keys := filepath.Join(dir, "keys")
	seeds, _ := filepath.Glob(natsd.SeedFile(dir, "*")) // the pattern is well formed
	var found []finding
	found = append(found, checkMode(dir, true)...)
	found = append(found, checkMode(keys, true)...)
	for _, seed := range seeds {
		found = append(found, checkMode(seed, false)...)
	}
	return found
}

// checkMode wants a folder of mode 700, or a file of mode 600, or nothing there.
func checkMode(path string, folder bool) []finding {
	info, err := os.Stat(path)
	want, kind := fs.FileMode(0o600), "file"
	if folder {
		want, kind = 0o700, "folder"
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return []finding{{"state", "fail", err.Error(), "make it readable"}}
	case info.IsDir() != folder:
		return []finding{{"state", "fail", fmt.Sprintf("%s is no %s", path, kind), "remove it"}}
	}
	mode, do := info.Mode().Perm(), fmt.Sprintf("chmod %o %s", want, path)
	switch {
	case mode&0o077 != 0:
		return []finding{{"state", "fail", fmt.Sprintf("%s is open to others (mode %#o)", path, mode), do}}
	case mode&want != want:
		return []finding{{"state", "fail", fmt.Sprintf("%s cannot be read and written (mode %#o)", path, mode), do}}
	}
	return nil
}
