package workspace

import (
	"os"
	"path/filepath"

	"github.com/weavebus/weavebus/internal/process"
)

// findShell gives the path of bash, else of sh, found in the commands' own PATH.
func findShell(env []string) string {
	for _, name := range []string{"bash", "sh"} {
		for _, dir := range process.SearchPath(env) {
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
				return path
			}
		}
	}
	return "/bin/sh"
}
