package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/version"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/pkg/frames"
)

// The module says which Go it needs, and nothing in it needs more than that:
// without cgo a build is one static binary.
//
// contract: P2
func TestModuleStatesItsGoAndNeedsNoC(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	stated := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(text)
	if stated == nil || version.Compare("go"+string(stated[1]), "go1.26.5") < 0 {
		t.Errorf("go.mod states %q, want go 1.26.5 or later", stated)
	}
	var binaries []string
	eachSource(t, func(path string, file *ast.File) {
		for _, imported := range file.Imports {
			if imported.Path.Value == `"C"` {
				t.Errorf("%s needs cgo", path)
			}
		}
		if dir := filepath.ToSlash(filepath.Dir(path)); strings.HasPrefix(dir, "cmd/") && file.Name.Name == "main" {
			binaries = append(binaries, dir)
		}
	})
	if got := slices.Compact(binaries); !slices.Equal(got, []string{"cmd/weavebus"}) {
		t.Errorf("the binaries are %v, want one", got)
	}
}

// Each frame type is written or read by something other than the package that
// defines it.
//
// contract: B50
func TestEveryFrameTypeIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	eachSource(t, func(path string, file *ast.File) {
		if strings.HasPrefix(path, "pkg/frames/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := s.X.(*ast.Ident); ok && from.Name == "frames" {
					used[s.Sel.Name] = true
				}
			}
			return true
		})
	})
	for name, value := range typeConstants(t) {
		if !frames.Type(value).Known() {
			t.Errorf("%s is %q, which no reader knows", name, value)
		}
		if !used[name] {
			t.Errorf("nothing outside of pkg/frames uses frames.%s", name)
		}
	}
}

// typeConstants reads the names and values of pkg/frames' types.
func typeConstants(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	text, err := os.ReadFile(filepath.Join("..", "..", "pkg", "frames", "frame.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\s(Type[A-Z]\w+)\s+Type = "(\w+)"$`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	if len(found) != 16 {
		t.Errorf("found %d types, want the 16 of the protocol", len(found))
	}
	return found
}

// eachSource calls see with each Go file of the module that is no test.
func eachSource(t *testing.T, see func(path string, file *ast.File)) {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.ContainsAny(entry.Name()[:1], "._") || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err == nil {
			see(path, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
