package archtest

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"strings"
)

func apiRules() []Rule {
	return []Rule{{
		Name:   "no-internal-in-api",
		Reason: "a user of a public package can neither name nor make an internal type",
		find:   internalInAPI,
	}}
}

// internalInAPI reads what the compiler exports of each public package and
// finds internal types in what a user of the package can see.
func internalInAPI(m *module) []Finding {
	imp := importer.ForCompiler(token.NewFileSet(), "gc", m.export)
	var found []Finding
	for _, path := range m.own {
		if !match(path, anyPublic) || m.exports[m.packages[path].ImportPath] == "" {
			continue
		}
		pkg, err := imp.Import(m.packages[path].ImportPath)
		if err != nil {
			found = append(found, Finding{Place: path, Detail: "unreadable export data: " + err.Error()})
			continue
		}
		if pkg.Name() != "main" {
			found = append(found, scopeFindings(m, path, pkg.Scope())...)
		}
	}
	return found
}

func (m *module) export(path string) (io.ReadCloser, error) {
	if m.exports[path] == "" {
		return nil, fmt.Errorf("no export data of %s", path)
	}
	file, err := os.Open(m.exports[path])
	if err != nil {
		return nil, fmt.Errorf("export data of %s: %w", path, err)
	}
	return file, nil
}

func scopeFindings(m *module, path string, scope *types.Scope) []Finding {
	var found []Finding
	for _, name := range scope.Names() {
		object := scope.Lookup(name)
		if !object.Exported() {
			continue
		}
		w := &apiWalk{module: m, seen: map[types.Type]bool{}}
		w.object(object)
		for _, internal := range w.internal {
			found = append(found, Finding{Place: path + "." + name, Detail: "mentions " + internal})
		}
	}
	return found
}

// apiWalk collects the internal types that one exported object shows.
type apiWalk struct {
	module   *module
	seen     map[types.Type]bool
	internal []string
}

func (w *apiWalk) object(object types.Object) {
	name, ok := object.(*types.TypeName)
	if !ok {
		w.typ(object.Type())
		return
	}
	if name.IsAlias() {
		w.typ(types.Unalias(name.Type()))
		return
	}
	named, ok := name.Type().(*types.Named)
	if !ok {
		return
	}
	for param := range named.TypeParams().TypeParams() {
		w.typ(param.Constraint())
	}
	w.typ(named.Underlying())
	for method := range named.Methods() {
		w.exported(method)
	}
}

func (w *apiWalk) exported(object types.Object) {
	if object.Exported() {
		w.typ(object.Type())
	}
}

// typ walks into a type's parts, but not into other named types: these are
// judged where they are declared.
func (w *apiWalk) typ(t types.Type) {
	if t == nil || w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		w.named(t.Obj(), t.TypeArgs())
	case *types.Named:
		w.named(t.Obj(), t.TypeArgs())
	case *types.Signature:
		w.tuple(t.Params())
		w.tuple(t.Results())
		for param := range t.TypeParams().TypeParams() {
			w.typ(param.Constraint())
		}
	case *types.Struct:
		for field := range t.Fields() {
			w.exported(field)
		}
	case *types.Interface:
		w.iface(t)
	case *types.Union:
		for term := range t.Terms() {
			w.typ(term.Type())
		}
	case *types.Map:
		w.typ(t.Key())
		w.typ(t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		w.typ(t.Elem())
	}
}

func (w *apiWalk) iface(t *types.Interface) {
	for method := range t.ExplicitMethods() {
		w.exported(method)
	}
	for embedded := range t.EmbeddedTypes() {
		w.typ(embedded)
	}
}

func (w *apiWalk) tuple(t *types.Tuple) {
	for v := range t.Variables() {
		w.typ(v.Type())
	}
}

func (w *apiWalk) named(name *types.TypeName, args *types.TypeList) {
	for arg := range args.Types() {
		w.typ(arg)
	}
	if name.Pkg() == nil {
		return
	}
	path := w.module.rel(name.Pkg().Path())
	if path != name.Pkg().Path() && strings.Contains("/"+path+"/", "/internal/") {
		w.internal = append(w.internal, path+"."+name.Name())
	}
}
