package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
)

// sleeps finds time.Sleep, and <-time.After that stands alone, in tests where
// time is real. It is virtual inside the function given to synctest.Test, and in
// what only such code reaches. A case <-time.After of a select is a bound, no sleep.
func sleeps(m *module) []Finding {
	folders := map[string][]source{}
	for _, s := range m.sources {
		if s.test {
			folders[path.Dir(s.path)] = append(folders[path.Dir(s.path)], s)
		}
	}
	var found []Finding
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		found = append(found, realSleeps(folders[folder])...)
	}
	return found
}

func realSleeps(files []source) []Finding {
	b := newBubbles(files)
	var found []Finding
	for _, s := range files {
		imported, cases := s.imports(), map[ast.Node]bool{}
		s.declared(func(in *ast.FuncDecl, n ast.Node) {
			if clause, ok := n.(*ast.CommClause); ok {
				cases[clause.Comm] = true
			}
			if cases[n] {
				return
			}
			if name := sleep(n, imported); name != "" && !b.virtual(in, n) {
				found = append(found, s.at(n, "uses "+name+" outside synctest.Test"))
			}
		})
	}
	return found
}

// sleep returns what a node sleeps by.
func sleep(n ast.Node, imported map[string]string) string {
	if qualified(n, imported) == "time.Sleep" {
		return "time.Sleep"
	}
	block, ok := n.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	receive, ok := block.X.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return ""
	}
	call, ok := receive.X.(*ast.CallExpr)
	if !ok || qualified(call.Fun, imported) != "time.After" {
		return ""
	}
	return "<-time.After"
}

// declared visits every node of a file with the function that declares it.
func (s source) declared(visit func(*ast.FuncDecl, ast.Node)) {
	for _, decl := range s.ast.Decls {
		in, _ := decl.(*ast.FuncDecl)
		ast.Inspect(decl, func(n ast.Node) bool {
			visit(in, n)
			return true
		})
	}
}

// A use is a place that names a function of the folder's tests.
type use struct {
	in *ast.FuncDecl
	at ast.Node
}

// bubbles tells where in a folder's tests time is virtual. Functions are told
// apart by name only, methods whatever their receiver: where a name stands in
// real time too, its sleeps are taken for real. The table of a test that opens
// a bubble is taken to run in that bubble.
type bubbles struct {
	regions   []ast.Node                // arguments of calls that open a bubble
	functions map[bool]map[string]bool  // method? → name → only reached in virtual time
	uses      map[bool]map[string][]use // method? → name
	openers   map[string]bool           // functions that run a parameter in a bubble
	opening   map[*ast.FuncDecl]bool    // functions that open a bubble
	keys      map[*ast.Ident]bool       // names of fields in composite literals
}

var entry = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)|^init$`)

func newBubbles(files []source) *bubbles {
	b := &bubbles{
		functions: map[bool]map[string]bool{false: {}, true: {}},
		uses:      map[bool]map[string][]use{false: {}, true: {}},
		openers:   map[string]bool{},
		opening:   map[*ast.FuncDecl]bool{},
		keys:      map[*ast.Ident]bool{},
	}
	for _, s := range files {
		b.findFunctions(s)
	}
	for _, s := range files {
		b.findRegions(s)
	}
	for _, s := range files {
		b.findUses(s)
	}
	b.settle(len(b.regions) > 0)
	return b
}

func (b *bubbles) findFunctions(s source) {
	imported := s.imports()
	s.declared(func(in *ast.FuncDecl, n ast.Node) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			b.functions[n.Recv != nil][n.Name.Name] = !entry.MatchString(n.Name.Name)
		case *ast.CallExpr:
			if in != nil && qualified(n.Fun, imported) == "testing/synctest.Test" && runsParameter(n) {
				b.openers[in.Name.Name] = true
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				b.keys[key] = true
			}
		}
	})
}

// runsParameter tells a call that calls, or passes on, a function which its
// own function was given.
func runsParameter(call *ast.CallExpr) bool {
	found := false
	ast.Inspect(call, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && name.Obj != nil {
			if field, ok := name.Obj.Decl.(*ast.Field); ok && !within(call, field) {
				_, isFunction := field.Type.(*ast.FuncType)
				found = found || isFunction
			}
		}
		return true
	})
	return found
}

func (b *bubbles) findRegions(s source) {
	imported := s.imports()
	s.declared(func(in *ast.FuncDecl, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		name, _ := call.Fun.(*ast.Ident)
		if qualified(call.Fun, imported) == "testing/synctest.Test" || name != nil && b.openers[name.Name] {
			b.opening[in] = true
			for _, arg := range call.Args {
				b.regions = append(b.regions, arg)
			}
		}
	})
}

func (b *bubbles) findUses(s source) {
	selected := map[*ast.Ident]bool{}
	s.declared(func(in *ast.FuncDecl, n ast.Node) {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if b.opening[in] {
				b.regions = append(b.regions, n)
			}
		case *ast.SelectorExpr:
			selected[n.Sel] = true
			b.use(true, n.Sel, in)
		case *ast.Ident:
			local := n.Obj != nil && n.Obj.Kind != ast.Fun
			if !selected[n] && !local && !b.keys[n] && (in == nil || n != in.Name) {
				b.use(false, n, in)
			}
		}
	})
}

func (b *bubbles) use(method bool, name *ast.Ident, in *ast.FuncDecl) {
	if _, ok := b.functions[method][name.Name]; ok {
		b.uses[method][name.Name] = append(b.uses[method][name.Name], use{in, name})
	}
}

// settle takes every function for virtual but the entries, then drops those
// that real time reaches, until nothing changes. What nobody names is called
// by the code under test.
func (b *bubbles) settle(anywhere bool) {
	for changed := true; changed; {
		changed = false
		for method, names := range b.functions {
			for name, virtual := range names {
				if virtual && (!anywhere || !b.onlyVirtual(b.uses[method][name])) {
					names[name], changed = false, true
				}
			}
		}
	}
}

func (b *bubbles) onlyVirtual(uses []use) bool {
	return !slices.ContainsFunc(uses, func(u use) bool { return !b.virtual(u.in, u.at) })
}

// virtual tells whether time is virtual at a node of the function in.
func (b *bubbles) virtual(in *ast.FuncDecl, n ast.Node) bool {
	if in != nil && b.functions[in.Recv != nil][in.Name.Name] {
		return true
	}
	return slices.ContainsFunc(b.regions, func(region ast.Node) bool { return within(region, n) })
}

// within tells a node inside another. Positions of two files never overlap:
// all files of a load share one file set.
func within(outer, inner ast.Node) bool {
	return outer.Pos() != token.NoPos && outer.Pos() <= inner.Pos() && inner.End() <= outer.End()
}
