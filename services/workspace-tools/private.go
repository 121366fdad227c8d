package workspacetools

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weavebus/weavebus/pkg/frames"
)

// CheckPrivate refuses, with DENIED, a workspace that contains a private folder or
// lies in one: its tools could read keys and sessions there. Directories are
// compared as what they are, so neither links nor other spellings pass; a folder
// that cannot be looked at is UNAVAILABLE.
func CheckPrivate(dir string, private []string) error {
	for _, p := range private {
		inside, err := within(dir, p)
		if err != nil {
			return err
		}
		around, err := within(p, dir)
		if err != nil {
			return err
		}
		if inside || around {
			return frames.NewError(frames.CodeDenied,
				"the workspace %s contains, or lies in, the folder %s of state or configuration: "+
					"choose another workspace, or keep that folder elsewhere", dir, p).
				WithReason("private_folder")
		}
	}
	return nil
}

// within reports whether path is dir or lies below it. What does not exist yet
// lies where the nearest folder above it does.
func within(path, dir string) (bool, error) {
	top, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, unreadable(dir, err)
	}
	at, err := resolve(path)
	if err != nil {
		return false, err
	}
	for {
		info, err := os.Stat(at)
		if err == nil && os.SameFile(info, top) {
			return true, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return false, nil
		}
		at = up
	}
}

// resolve gives the absolute path without links, of the part that exists.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	for {
		found, err := filepath.EvalSymlinks(abs)
		switch {
		case err == nil:
			return found, nil
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(abs) == abs:
			return "", unreadable(path, err)
		}
		abs = filepath.Dir(abs)
	}
}

func unreadable(path string, err error) error {
	return frames.NewError(frames.CodeUnavailable, "cannot look at the folder %s: %w", path, err)
}
