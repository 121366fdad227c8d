package process

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited are the variables that commands get from the process's environment.
var inherited = []string{"PATH", "HOME", "LANG", "LC_*", "TERM", "TMPDIR", "USER", "TZ"}

// personal are those of them that belong to the process's own user.
var personal = []string{"HOME", "USER", "TMPDIR"}

// Environment picks the environment of programs out of environ, a list of
// KEY=value: PATH, HOME, LANG, LC_*, TERM, TMPDIR, USER, TZ and what extra names;
// a name there that ends in * means all that begin so. What belongs to the
// process's own user is kept from another u; home is HOME where environ has none.
// The result is sorted and never nil, which would mean "inherit everything".
func Environment(environ, extra []string, home string, u User) []string {
	env := map[string]string{"PATH": defaultPath, "HOME": home}
	// Programs that would open an editor, a pager or a prompt end instead.
	maps.Copy(env, map[string]string{"GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0", "PAGER": "cat"})
	if u.Name != "" {
		env["USER"] = u.Name
	}
	allowed := slices.Concat(inherited, extra)
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		foreign := u.Switched && slices.Contains(personal, name)
		if ok && value != "" && !foreign && matches(allowed, name) {
			env[name] = value
		}
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// matches says whether name is one of the patterns: a name, or a beginning and *.
func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if begin, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, begin) || p == name {
			return true
		}
	}
	return false
}

// SearchPath gives the absolute directories of an environment's PATH: a relative
// one would take programs from wherever they run.
func SearchPath(env []string) []string {
	for _, kv := range env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			return slices.DeleteFunc(filepath.SplitList(list), func(dir string) bool { return !filepath.IsAbs(dir) })
		}
	}
	return nil
}
