package workspace

import (
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Limits of a path that a caller gives, in bytes.
const (
	maxPath = 4096
	maxName = 255
	// maxLinks is how many links the last name of a path may lead through.
	maxLinks = 40
)

// location is a caller's path after the path rule: slash-separated, relative to
// the root, without empty and "." parts, with its ".." kept. The root is ".".
type location struct {
	name string
	// slash says that the caller wrote it as a directory ("a/", "a/.").
	slash bool
}

// opened is the name to hand to os.Root.
func (l location) opened() string {
	if l.slash {
		return l.name + "/"
	}
	return l.name
}

// locate applies the path rule: what is not inside is refused, never rewritten.
// A blank path is the root.
func (w *Workspace) locate(path string) (location, error) {
	if strings.TrimSpace(path) == "" {
		return location{name: "."}, nil
	}
	if err := checkPath(path); err != nil {
		return location{}, err
	}
	name := tidy(path)
	if strings.HasPrefix(path, "/") {
		var ok bool
		if name, ok = w.relative(name); !ok {
			return location{}, outside(nil)
		}
	}
	if name == "" {
		return location{name: "."}, nil
	}
	if !filepath.IsLocal(name) {
		return location{}, outside(nil)
	}
	return location{name: name, slash: strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/.")}, nil
}

// locateFile is locate for a file that will be written: the path must name one
// file and say so plainly.
func (w *Workspace) locateFile(path string) (location, error) {
	if strings.TrimSpace(path) == "" {
		return location{}, refused(frames.CodeValidationInput, ReasonEmptyPath, "path is empty; name the file to write")
	}
	loc, err := w.locate(path)
	switch {
	case err != nil:
		return loc, err
	case loc.name == "." || loc.slash:
		return loc, refused(frames.CodeValidationInput, ReasonIsDirectory,
			"%s names a directory; name the file to write", shown(path))
	case hasDotDot(loc.name):
		return loc, refused(frames.CodeValidationInput, ReasonInvalidPath,
			"%s holds \"..\"; name the file to write without it", shown(path))
	}
	return loc, nil
}

func checkPath(path string) error {
	if len(path) > maxPath {
		return refused(frames.CodeValidationInput, ReasonNameTooLong, "the path is longer than %d bytes", maxPath)
	}
	if strings.ContainsRune(path, 0) || !utf8.ValidString(path) {
		return refused(frames.CodeValidationInput, ReasonInvalidPath, "the path holds a zero byte or is not UTF-8")
	}
	for part := range strings.SplitSeq(path, "/") {
		if len(part) > maxName {
			return refused(frames.CodeValidationInput, ReasonNameTooLong, "a name in the path is longer than %d bytes", maxName)
		}
	}
	return nil
}

// tidy drops the empty and "." parts of a path, and its leading slash.
func tidy(path string) string {
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

// relative gives the part below the workspace of an absolute, tidied path.
func (w *Workspace) relative(name string) (string, bool) {
	for _, dir := range []string{w.dir, w.real} {
		rest, ok := strings.CutPrefix(name, strings.TrimPrefix(dir, "/"))
		if ok && (rest == "" || rest[0] == '/' || dir == "/") {
			return strings.TrimPrefix(rest, "/"), true
		}
	}
	return "", false
}

func hasDotDot(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// follow gives the name that name leads to when its last part is a link. A
// missing file is no error. os.Root judges the result when it is opened, so
// that a link that changes meanwhile leads nowhere else.
func (w *Workspace) follow(name string) (string, error) {
	at := name
	for range maxLinks {
		target, err := w.linkAt(at)
		switch {
		case err != nil:
			return "", w.failed("follow", name, err)
		case target == "":
			return at, nil
		case strings.HasPrefix(target, "/"):
			return "", refused(frames.CodeDenied, ReasonAbsoluteLink,
				"%s is a link with an absolute target; only relative links that stay in the workspace are followed", shown(name))
		}
		at = at[:strings.LastIndexByte(at, '/')+1] + target
	}
	return "", refused(frames.CodeExecution, ReasonLinkLoop, "%s leads through more than %d links", shown(name), maxLinks)
}

// split cuts the last part off; the directory of a lone name is ".".
func split(name string) (dir, base string) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return ".", name
	}
	return name[:i], name[i+1:]
}
