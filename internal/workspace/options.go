package workspace

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/process"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Option changes one setting of [Open].
type Option func(*settings) error

// settings are what the options set; the values of defaults count else.
type settings struct {
	name        string
	extensions  map[string]bool
	readBytes   int
	readLines   int
	listEntries int
	outputBytes int
	environ     []string
	allowEnv    []string
	asOwner     bool
	settle      time.Duration
}

func defaults() settings {
	return settings{readBytes: 50 << 10, readLines: 2000, listEntries: 500, outputBytes: process.DefaultOutputBytes}
}

// WithName names the workspace. Default: the base name of its directory.
func WithName(name string) Option {
	return func(s *settings) error {
		if strings.TrimSpace(name) == "" {
			return badOption("the workspace's name is blank")
		}
		s.name = name
		return nil
	}
}

// WithExtensions limits reading, writing and listing to files with one of these
// extensions ("js" or ".js", in any case). A file without an extension is
// allowed only when the list holds "" or "."; the leading dot of a hidden file
// begins no extension, so ".env" has none. Directories are always shown.
// Default, and with an empty list: every file.
func WithExtensions(extensions ...string) Option {
	return func(s *settings) error {
		s.extensions = map[string]bool{}
		for _, e := range extensions {
			if strings.ContainsAny(e, "/\x00") {
				return badOption("the extension %q holds a slash or a zero byte", e)
			}
			s.extensions["."+strings.ToLower(strings.TrimPrefix(e, "."))] = true
		}
		return nil
	}
}

// WithReadLimits bounds the text that one read gives. Default 51200 bytes, 2000 lines.
func WithReadLimits(bytes, lines int) Option {
	return func(s *settings) error {
		if bytes < 4 || lines < 1 {
			return badOption("read limits must be at least 4 bytes and 1 line, got %d and %d", bytes, lines)
		}
		s.readBytes, s.readLines = bytes, lines
		return nil
	}
}

// WithListLimit bounds the entries of one listing. Default 500.
func WithListLimit(entries int) Option {
	return func(s *settings) error {
		if entries < 1 {
			return badOption("the list limit must be at least 1, got %d", entries)
		}
		s.listEntries = entries
		return nil
	}
}

// WithOutputLimit bounds what is kept of each output stream of a command.
// Default 1 MiB (1048576).
func WithOutputLimit(bytes int) Option {
	return func(s *settings) error {
		if bytes < 8 {
			return badOption("the output limit must be at least 8 bytes, got %d", bytes)
		}
		s.outputBytes = bytes
		return nil
	}
}

// WithEnvironment gives the "KEY=value" list that the environment of commands
// is picked from: PATH, HOME, LANG, LC_*, TERM, TMPDIR, USER, TZ and what
// [WithAllowedEnv] names. Default: empty.
func WithEnvironment(environ []string) Option {
	return func(s *settings) error { s.environ = append([]string(nil), environ...); return nil }
}

// WithAllowedEnv lets further variables through to commands; a name that ends
// in * means all that begin so. Default: none.
func WithAllowedEnv(names ...string) Option {
	return func(s *settings) error {
		for _, n := range names {
			if n == "" || n == "*" || strings.ContainsAny(n, "=\x00") {
				return badOption("%q is no name of an environment variable", n)
			}
		}
		s.allowEnv = append([]string(nil), names...)
		return nil
	}
}

// WithOwnerCommands makes a process that runs as root start commands as the
// owner of the workspace's directory, and give that owner the files it creates.
// No effect when the process is not root or root owns the directory: see
// [Workspace.CommandUser]. Default: commands run as the process does.
func WithOwnerCommands() Option {
	return func(s *settings) error { s.asOwner = true; return nil }
}

func badOption(format string, args ...any) error {
	return refused(frames.CodeValidationInput, "invalid_option", format, args...)
}

// permits says whether the extension rule lets the file name pass.
func (s *settings) permits(name string) bool {
	return len(s.extensions) == 0 || s.extensions[extension(name)]
}

// extensionList names the allowed extensions for an error text.
func (s *settings) extensionList() string {
	names := slices.Sorted(maps.Keys(s.extensions))
	if len(names) > 0 && names[0] == "." {
		names[0] = "no extension"
	}
	return strings.Join(names, ", ")
}

// extension gives the lower-case extension of name; "." when it has none.
func extension(name string) string {
	ext := path.Ext(strings.TrimLeft(path.Base(name), "."))
	if ext == "" {
		return "."
	}
	return strings.ToLower(ext)
}
