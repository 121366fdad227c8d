package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weavebus/weavebus/internal/process"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Workspace is one directory that tools work in. It is safe for use by several
// goroutines at once. Close it when nothing uses it any more.
type Workspace struct {
	settings
	dir   string // absolute and clean, as it was named
	real  string // the same with links resolved
	root  *os.Root
	id    fs.FileInfo
	user  CommandUser
	env   []string
	shell string
	locks fileLocks

	escape error // what os.Root answers when a path leads out
}

// Open opens the directory dir, which must exist.
func Open(dir string, opts ...Option) (*Workspace, error) {
	s := defaults()
	for _, opt := range opts {
		if err := opt(&s); err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(dir) == "" {
		return nil, refused(frames.CodeValidationInput, ReasonEmptyPath, "the workspace's directory is blank")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, openFailed(dir, err)
	}
	root, err := openRoot(abs)
	if err != nil {
		return nil, openFailed(dir, err)
	}
	w := &Workspace{settings: s, dir: abs, root: root}
	if err := w.prepare(); err != nil {
		_ = root.Close()
		return nil, openFailed(dir, err)
	}
	return w, nil
}

// openRoot is os.OpenRoot with ENOTDIR for what is no directory.
func openRoot(dir string) (*os.Root, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// prepare fills what follows from the open directory and the settings.
func (w *Workspace) prepare() (err error) {
	if w.real, err = filepath.EvalSymlinks(w.dir); err != nil {
		return err
	}
	if w.id, err = w.root.Stat("."); err != nil {
		return err
	}
	if w.name == "" {
		w.name = filepath.Base(w.dir)
	}
	_, err = w.root.Lstat("..")
	w.escape = errors.Unwrap(err)
	w.user = process.UserFor(w.id, w.asOwner)
	w.env = process.Environment(w.environ, w.allowEnv, w.dir, w.user)
	w.shell = findShell(w.env)
	w.locks.held = map[fileKey]*fileLock{}
	return nil
}

// Close lets the directory go. Running commands are not ended by it.
func (w *Workspace) Close() error { return w.root.Close() }

// Name is the name given by [WithName], else the directory's base name.
func (w *Workspace) Name() string { return w.name }

// Dir is the absolute, clean path of the directory on this host. It is for
// operators and must not be sent to a model.
func (w *Workspace) Dir() string { return w.dir }

// PathKey is the announced key of the directory: "path:" and the SHA-256 of
// Dir in hexadecimal.
func (w *Workspace) PathKey() string {
	sum := sha256.Sum256([]byte(w.dir))
	return "path:" + hex.EncodeToString(sum[:])
}

// CommandUser says who commands run as.
func (w *Workspace) CommandUser() CommandUser { return w.user }

// openFailed says to an operator, in terms of the directory as it was given, why
// it cannot be a workspace. The text for models does not name it.
func openFailed(dir string, err error) error {
	code, reason, text := frames.CodeExecution, ReasonIO, "cannot be opened"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, reason, text = frames.CodeNotFound, ReasonNotFound, "does not exist"
	case errors.Is(err, syscall.ENOTDIR):
		code, reason, text = frames.CodeValidationInput, ReasonNotDirectory, "is not a directory"
	case errors.Is(err, fs.ErrPermission):
		code, reason, text = frames.CodeDenied, ReasonPermission, "cannot be opened: permission denied"
	}
	return frames.NewError(code, "%w", err).With(func(e *frames.Error) {
		e.Reason, e.Effect = reason, frames.EffectNone
		e.Message = "the workspace " + shown(dir) + " " + text
		e.LLMMessage = "the workspace " + text
	})
}

// sameDir says whether dir is still the directory that info was taken of.
func sameDir(dir string, info os.FileInfo) error {
	now, err := os.Stat(dir)
	if err == nil && !os.SameFile(now, info) {
		err = errors.New("another directory has its name now")
	}
	return err
}
