package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

const maxLines = 600

func sourceRules() []Rule {
	return []Rule{
		{
			Name:   "exit-at-the-edge",
			Reason: "a package that ends the process cannot be tested, drained or put beside others",
			find:   calls(notAtEdge, "os.Exit", "syscall.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln"),
		},
		{
			Name:   "environment-at-the-edge",
			Reason: "settings come in by Config or options; what a package reads in secret nobody can document or test",
			find: calls(notAtEdge, "os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv",
				"os.Setenv", "os.Unsetenv", "os.Clearenv", "syscall.Getenv", "syscall.Environ"),
		},
		{
			Name:   "no-mutable-globals",
			Reason: "what one test or one mesh in a process writes, another reads; state belongs to a value that somebody made",
			find:   mutableGlobals,
		},
		{
			Name:   "named-packages",
			Reason: "a package is called after what it provides; a drawer for everything grows without end",
			find:   drawers,
		},
		{
			Name:   "short-files",
			Reason: "a file over " + strconv.Itoa(maxLines) + " lines has more than one subject",
			find:   longFiles,
		},
		{
			Name:   "no-sleeping-tests",
			Reason: "a test waits for a signal, or in virtual time (testing/synctest); real sleeps are slow and lie on a busy machine",
			find:   sleeps,
		},
		{
			Name:   "no-skipped-tests",
			Reason: "a test that skips is a test that nobody notices missing",
			find:   skips,
		},
	}
}

// notAtEdge tells the files in which a process may not be ended and its
// environment not be read. Tests may: some run themselves again as a child.
func notAtEdge(s source) bool {
	return !s.test && !match(path.Dir(s.path),
		anyCommand, commandLine, "internal/app/...", anyExample, "test/...")
}

// calls finds uses of package-level names, written as "import path.Name".
func calls(where func(source) bool, names ...string) func(*module) []Finding {
	return func(m *module) []Finding {
		var found []Finding
		for _, s := range m.sources {
			if where(s) {
				found = append(found, s.uses(s.ast, names...)...)
			}
		}
		return found
	}
}

func (s source) uses(root ast.Node, names ...string) []Finding {
	imported := s.imports()
	var found []Finding
	ast.Inspect(root, func(n ast.Node) bool {
		if name := qualified(n, imported); slices.Contains(names, name) {
			found = append(found, s.at(n, "uses "+name))
		}
		return true
	})
	return found
}

// qualified returns "import path.Name" of a selector on an imported package.
func qualified(n ast.Node, imported map[string]string) string {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := selector.X.(*ast.Ident)
	if !ok || imported[pkg.Name] == "" {
		return ""
	}
	return imported[pkg.Name] + "." + selector.Sel.Name
}

// imports maps the local names of a file's imports to their paths.
func (s source) imports() map[string]string {
	local := map[string]string{}
	for _, spec := range s.ast.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(target)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = target
	}
	return local
}

func (s source) at(n ast.Node, detail string) Finding {
	return Finding{Place: fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line), Detail: detail}
}

func drawers(m *module) []Finding {
	names := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared"}
	var found []Finding
	for _, s := range m.sources {
		folder, name := path.Base(path.Dir(s.path)), strings.TrimSuffix(s.ast.Name.Name, "_test")
		if slices.Contains(names, folder) || slices.Contains(names, name) {
			found = append(found, Finding{Place: path.Dir(s.path), Detail: "package " + name})
		}
	}
	return found
}

func longFiles(m *module) []Finding {
	var found []Finding
	for _, s := range m.sources {
		if s.lines > maxLines && !ast.IsGenerated(s.ast) {
			found = append(found, Finding{Place: s.path, Detail: fmt.Sprintf("%d lines", s.lines)})
		}
	}
	return found
}

// sleeps finds time.Sleep in test files outside the function given to
// synctest.Test, where time is virtual.
func sleeps(m *module) []Finding {
	var found []Finding
	for _, s := range m.sources {
		if !s.test {
			continue
		}
		imported := s.imports()
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && qualified(call.Fun, imported) == "testing/synctest.Test" {
				return false
			}
			if qualified(n, imported) == "time.Sleep" {
				found = append(found, s.at(n, "uses time.Sleep outside synctest.Test"))
			}
			return true
		})
	}
	return found
}

// skips finds Skip, Skipf and SkipNow on anything that a file declares with a
// type of package testing or rapid, and testing.Short, which is a skip too.
func skips(m *module) []Finding {
	var found []Finding
	for _, s := range m.sources {
		found = append(found, s.uses(s.ast, "testing.Short")...)
		tests := s.testValues()
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if name := skipOn(n, tests); name != "" {
				found = append(found, s.at(n, "calls "+name))
			}
			return true
		})
	}
	return found
}

// testValues returns the names of parameters and fields such as t *testing.T.
func (s source) testValues() map[string]bool {
	imported, names := s.imports(), map[string]bool{}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || !testType(field.Type, imported) {
			return true
		}
		for _, name := range field.Names {
			names[name.Name] = true
		}
		return true
	})
	return names
}

func testType(t ast.Expr, imported map[string]string) bool {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	names := []string{"testing.T", "testing.B", "testing.F", "testing.TB", "pgregory.net/rapid.T"}
	return slices.Contains(names, qualified(t, imported))
}

// skipOn returns the skipping call that a node is, on a test value or on a
// field that holds one (s.t.Skip).
func skipOn(n ast.Node, tests map[string]bool) string {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, selector.Sel.Name) {
		return ""
	}
	switch on := selector.X.(type) {
	case *ast.Ident:
		if tests[on.Name] {
			return on.Name + "." + selector.Sel.Name
		}
	case *ast.SelectorExpr:
		if tests[on.Sel.Name] {
			return on.Sel.Name + "." + selector.Sel.Name
		}
	}
	return ""
}
