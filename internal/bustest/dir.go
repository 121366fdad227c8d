package bustest

import (
	"os"
	"path/filepath"
	"testing"
)

// privateDir makes a folder of the test that only its owner can read.
func privateDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatalf("bustest: %v", err)
	}
	return dir
}
