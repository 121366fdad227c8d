package workspacetools

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/weavebus/weavebus/internal/workspace"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Workspace is a directory that the tools work in.
type Workspace struct {
	// Name that calls choose it by. Default: the base name of Dir.
	Name string

	// Dir is the directory; it must exist. Required.
	Dir string
}

// Config says which workspaces are served, and how.
type Config struct {
	// Identity is who the service connects as. Default: "workspace".
	Identity string

	// Workspaces, each with a name and a directory of its own. Required.
	Workspaces []Workspace

	// AllowedExtensions limits the file tools to files with one of these
	// extensions, "go" or ".go"; "." stands for none. Default: every file.
	AllowedExtensions []string

	// CommandTimeout is how long a command may run that names no timeout_ms; at
	// most 10 min. Default: 30 s.
	CommandTimeout time.Duration

	// Environ is the "KEY=value" list that the environment of commands is picked
	// from: PATH, HOME, LANG, LC_*, TERM, TMPDIR, USER, TZ. Default: empty.
	Environ []string

	// ExtraEnv names further variables of Environ that commands get; a name that
	// ends in * means all that begin so. Default: none.
	ExtraEnv []string

	// Private are folders that no workspace may contain or lie in: those of state
	// and configuration. Default: none.
	Private []string

	// AllowRoot lets commands run as root, where the process is root's and so is
	// the workspace; a workspace of another owner has commands run as that owner
	// all the same. Default: such a workspace is refused.
	AllowRoot bool
}

func (c Config) withDefaults() Config {
	c.Identity = cmp.Or(c.Identity, "workspace")
	if c.CommandTimeout == 0 {
		c.CommandTimeout = workspace.DefaultTimeout
	}
	named := make([]Workspace, len(c.Workspaces))
	for i, w := range c.Workspaces {
		if w.Name == "" {
			w.Name = baseName(w.Dir)
		}
		named[i] = w
	}
	c.Workspaces = named
	return c
}

func baseName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}

// Check gives what [New]'s service would refuse of its configuration, before it runs.
func (c Config) Check() error { return c.withDefaults().validate() }

func (c Config) validate() error {
	if len(c.Workspaces) == 0 {
		return invalid("Workspaces: none given")
	}
	if c.CommandTimeout < 0 || c.CommandTimeout > workspace.MaxTimeout {
		return invalid("CommandTimeout: %v is not between 0 and %v", c.CommandTimeout, workspace.MaxTimeout)
	}
	seen := map[string]bool{}
	for _, w := range c.Workspaces {
		switch {
		case !validName(w.Name):
			return invalid("Workspaces: %q cannot be a name: want 1 to 128 printable bytes that begin with neither / nor path:", w.Name)
		case seen[w.Name]:
			return invalid("Workspaces: the name %q stands twice: give names of their own to directories of one base name", w.Name)
		}
		seen[w.Name] = true
	}
	return nil
}

// validName keeps names apart from the other keys that choose a workspace.
func validName(name string) bool {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	return strings.TrimSpace(name) != "" && len(name) <= 128 && !strings.ContainsFunc(name, unprintable) &&
		!frames.IsPathKey(name) && !filepath.IsAbs(name)
}

func invalid(format string, args ...any) error {
	return frames.NewError(frames.CodeValidationInput, "workspace-tools: "+format, args...)
}
