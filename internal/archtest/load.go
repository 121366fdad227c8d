package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A listed package, with the fields of `go list -json` that the rules read.
type listed struct {
	ImportPath   string   `json:"ImportPath"`
	Standard     bool     `json:"Standard"`
	Imports      []string `json:"Imports"`
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`
	CgoFiles     []string `json:"CgoFiles"`
	Export       string   `json:"Export"`
}

// A required module, as `go mod edit -json` tells it.
type required struct {
	Path     string `json:"Path"`
	Indirect bool   `json:"Indirect"`
}

// A source file of the module, of any platform.
type source struct {
	path  string // relative to the module's folder, with slashes
	lines int
	test  bool
	fset  *token.FileSet
	ast   *ast.File
}

// module is what the rules judge. Package paths inside the module are written
// relative to it (pkg/frames), all others as they are.
type module struct {
	path     string
	packages map[string]*listed // the module's own and everything they need
	own      []string           // keys of packages, sorted
	requires []required
	exports  map[string]string // full import path → export data file, of pkg/... and what it needs
	sources  []source
}

func load(ctx context.Context, dir string) (*module, error) {
	m := &module{packages: map[string]*listed{}, exports: map[string]string{}}
	steps := []func(context.Context, string) error{
		m.loadRequires, m.loadPackages, m.loadExports, m.loadSources,
	}
	for _, step := range steps {
		if err := step(ctx, dir); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *module) loadRequires(ctx context.Context, dir string) error {
	out, err := run(ctx, dir, nil, "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var file struct {
		Module  required   `json:"Module"`
		Require []required `json:"Require"`
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return fmt.Errorf("go.mod as JSON: %w", err)
	}
	m.path, m.requires = file.Module.Path, file.Require
	return nil
}

func (m *module) loadPackages(ctx context.Context, dir string) error {
	// With cgo on, packages that need it are listed as such; nothing is built.
	all, err := list(ctx, dir, []string{"CGO_ENABLED=1"}, "-deps", "./...")
	if err != nil {
		return err
	}
	for _, p := range all {
		for _, paths := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			m.shorten(paths)
		}
		m.packages[m.rel(p.ImportPath)] = p
	}
	m.own = slices.Sorted(maps.Keys(m.packages))
	m.own = slices.DeleteFunc(m.own, func(path string) bool {
		return m.rel(m.packages[path].ImportPath) == m.packages[path].ImportPath
	})
	return nil
}

func (m *module) loadExports(ctx context.Context, dir string) error {
	all, err := list(ctx, dir, nil, "-deps", "-export", "./pkg/...")
	for _, p := range all {
		m.exports[p.ImportPath] = p.Export
	}
	return err
}

// loadSources parses every Go file below dir, except those that the go
// command does not take for the module's: testdata, folders that begin with a
// dot or an underscore, and nested modules.
func (m *module) loadSources(_ context.Context, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && foreign(path):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		return m.loadSource(dir, path)
	})
}

func foreign(dir string) bool {
	name := filepath.Base(dir)
	if name == "testdata" || name[0] == '.' || name[0] == '_' {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func (m *module) loadSource(root, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("source file: %w", err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("source file: %w", err)
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return fmt.Errorf("source file: %w", err)
	}
	m.sources = append(m.sources, source{
		path:  filepath.ToSlash(rel),
		lines: bytes.Count(text, []byte("\n")),
		test:  strings.HasSuffix(path, "_test.go"),
		fset:  fset,
		ast:   file,
	})
	return nil
}

func list(ctx context.Context, dir string, env []string, args ...string) ([]*listed, error) {
	fields := "-json=ImportPath,Standard,Imports,TestImports,XTestImports,CgoFiles,Export"
	out, err := run(ctx, dir, env, append([]string{"list", fields}, args...)...)
	if err != nil {
		return nil, err
	}
	var all []*listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list's JSON: %w", err)
		}
		all = append(all, p)
	}
}

func run(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(cmd.Environ(), "GOWORK=off"), env...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}

// rel returns an import path relative to the module if it is one of its own.
func (m *module) rel(path string) string {
	return strings.TrimPrefix(path, m.path+"/")
}

func (m *module) shorten(paths []string) {
	for i := range paths {
		paths[i] = m.rel(paths[i])
	}
}
