package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// mutableGlobals finds package variables that a function writes to, and those
// of a type that exists to be changed (package sync). Tests may.
func mutableGlobals(m *module) []Finding {
	globals := map[string]map[string]bool{} // folder → names
	for _, s := range m.sources {
		folder := path.Dir(s.path)
		if globals[folder] == nil {
			globals[folder] = map[string]bool{}
		}
		maps.Copy(globals[folder], s.globals())
	}
	var found []Finding
	for _, s := range m.sources {
		if !s.test {
			found = append(found, s.changeable()...)
			found = append(found, s.writes(globals[path.Dir(s.path)])...)
		}
	}
	return found
}

// globalSpecs returns the package variables that a file declares.
func (s source) globalSpecs() []*ast.ValueSpec {
	var specs []*ast.ValueSpec
	for _, decl := range s.ast.Decls {
		vars, ok := decl.(*ast.GenDecl)
		if !ok || vars.Tok != token.VAR {
			continue
		}
		for _, spec := range vars.Specs {
			if spec, ok := spec.(*ast.ValueSpec); ok {
				specs = append(specs, spec)
			}
		}
	}
	return specs
}

func (s source) globals() map[string]bool {
	names := map[string]bool{}
	for _, spec := range s.globalSpecs() {
		for _, name := range spec.Names {
			names[name.Name] = name.Name != "_"
		}
	}
	return names
}

func (s source) changeable() []Finding {
	imported := s.imports()
	var found []Finding
	for _, spec := range s.globalSpecs() {
		if spec.Type == nil {
			continue
		}
		name := qualified(spec.Type, imported)
		if generic, ok := spec.Type.(*ast.IndexExpr); ok { // atomic.Pointer[T]
			name = qualified(generic.X, imported)
		}
		// A pool holds nothing that anybody could read.
		if name != "sync.Pool" && (strings.HasPrefix(name, "sync.") || strings.HasPrefix(name, "sync/atomic.")) {
			found = append(found, s.at(spec, "package variable of type "+name))
		}
	}
	return found
}

func (s source) writes(globals map[string]bool) []Finding {
	own := s.globalSpecs()
	global := func(target ast.Expr) bool {
		name := root(target)
		if name == nil || !globals[name.Name] {
			return false
		}
		if name.Obj == nil { // declared in another file of the package
			return true
		}
		spec, ok := name.Obj.Decl.(*ast.ValueSpec)
		return ok && slices.Contains(own, spec)
	}
	var found []Finding
	ast.Inspect(s.ast, func(n ast.Node) bool {
		for _, target := range written(n) {
			if global(target) {
				found = append(found, s.at(n, "writes package variable "+root(target).Name))
			}
		}
		return true
	})
	return found
}

// written returns what a node writes to: the left sides of an assignment, what
// it counts up, or the map that it deletes from.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// root returns the variable at the bottom of x.y[z].
func root(target ast.Expr) *ast.Ident {
	for {
		switch t := target.(type) {
		case *ast.Ident:
			return t
		case *ast.SelectorExpr:
			target = t.X
		case *ast.IndexExpr:
			target = t.X
		case *ast.ParenExpr:
			target = t.X
		case *ast.StarExpr:
			target = t.X
		default:
			return nil
		}
	}
}
