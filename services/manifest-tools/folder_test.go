package manifesttools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// A mounted ConfigMap: each file is a link into a folder that another link swaps.
//
// contract: W37
func TestMountedFolder(t *testing.T) {
	t.Parallel()
	r := setup(t)
	dir := folder(t, nil)
	version := func(n string) {
		t.Helper()
		ok(t, os.Mkdir(filepath.Join(dir, "..v"+n), 0o755))
		put(t, filepath.Join(dir, "..v"+n), "a.json", declaration("a", `"command":"/bin/echo","args":["`+n+`"]`))
		ok(t, os.Symlink("..v"+n, filepath.Join(dir, "..tmp")))
		ok(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	version("1")
	ok(t, os.Symlink("..data/a.json", filepath.Join(dir, "a.json")))
	r.serve(Config{Dirs: []string{dir}})
	r.tool("a").want(`{}`, `1`)
	version("2")
	r.tool("a").want(`{}`, `2`)
}

// What is no file of the folder is skipped, and holds nothing up.
//
// contract: S36, S37
func TestOddFiles(t *testing.T) {
	t.Parallel()
	r := setup(t)
	dir := folder(t, map[string]string{"good.json": declaration("good", `"command":"/bin/echo"`)})
	outside := folder(t, map[string]string{"x.json": declaration("outside", `"command":"/bin/echo"`)})
	ok(t, syscall.Mkfifo(filepath.Join(dir, "a.yaml"), 0o666))
	ok(t, os.Symlink(filepath.Join(outside, "x.json"), filepath.Join(dir, "b.json")))
	ok(t, os.Symlink("nowhere", filepath.Join(dir, "c.json")))
	put(t, dir, "d.json", strings.Repeat(" ", maxFile+1))
	r.serve(Config{Dirs: []string{dir}})
	r.tool("good").want(`{}`, `{}`)
	reasons := r.skipped("tools/a.yaml", "tools/b.json", "tools/c.json", "tools/d.json")
	for i, want := range []string{"no regular file", "escapes", "no such file", "limit is 1048576"} {
		if !strings.Contains(reasons[i], want) || strings.Contains(reasons[i], dir) {
			t.Errorf("skipped because of %q, want %q", reasons[i], want)
		}
	}
}

func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	dir := folder(t, nil)
	for i := range maxFiles + 2 {
		ok(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d.json", i)), []byte("{}"), 0o644))
	}
	all, err := readFolder(dir)
	ok(t, err)
	if len(all) != maxFiles+2 || all[maxFiles-1].err != nil || frames.CodeOf(all[maxFiles].err) != frames.CodeValidationInput {
		t.Errorf("read %d files, the last with %v", len(all), all[len(all)-1].err)
	}
}

// A service that has lost its folder keeps what it served of it.
//
// contract: S37
func TestLostFolder(t *testing.T) {
	t.Parallel()
	r := setup(t)
	dir := folder(t, map[string]string{"a.json": declaration("a", `"endpoint":"http://127.0.0.1:1"`)})
	r.serve(Config{Dirs: []string{dir}, AllowPrivate: []string{"loopback"}})
	s := r.tool("a")
	ok(t, os.Rename(dir, dir+".gone"))
	if reasons := r.skipped("tools/"); reasons[0] != "cannot be read: no such file or directory" {
		t.Errorf("skipped because of %q", reasons)
	}
	s.fails(`{}`, frames.CodeExecution, "unreachable")
	ok(t, os.Rename(dir+".gone", dir))
	r.skipped()
}
