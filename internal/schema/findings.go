package schema

import (
	"cmp"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// finding is one thing that is wrong with a value: a leaf of the validator's
// tree of errors, or a choice between forms none of which is the nearest.
type finding struct {
	at    []string
	kind  jsonschema.ErrorKind
	node  string      // location of the schema that objects
	types []string    // that would do beside the values of an Enum
	forms [][]finding // of a choice, or what a key's name lacks
}

// leaves walks to what really went wrong.
func (d describer) leaves(e *jsonschema.ValidationError) []finding {
	self := finding{at: e.InstanceLocation, kind: e.ErrorKind, node: e.SchemaURL}
	switch k := e.ErrorKind.(type) {
	case nil:
		return nil
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		return d.leavesOf(e.Causes)
	case *kind.AnyOf:
		return d.choice(self, e.Causes)
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			return d.choice(self, e.Causes)
		}
	case *kind.PropertyNames:
		self.forms = [][]finding{d.leavesOf(e.Causes)}
	case *kind.Format:
		if enum, ok := asEnum(k); ok {
			self.kind = enum
		}
	}
	return []finding{self}
}

func (d describer) leavesOf(causes []*jsonschema.ValidationError) []finding {
	out := make([]finding, 0, len(causes))
	for _, c := range causes {
		out = append(out, d.leaves(c)...)
	}
	return out
}

// choice reduces the failures of all branches of an anyOf or oneOf to what
// helps: the types or values that would do, else the failures of the branch
// that was nearest, else the forms there are.
func (d describer) choice(self finding, branches []*jsonschema.ValidationError) []finding {
	forms := make([][]finding, 0, len(branches))
	fits := make([]likeness, 0, len(branches))
	schemas := d.branchesOf(self)
	for i, b := range branches {
		if f := d.leaves(b); len(f) > 0 {
			forms = append(forms, f)
			fits = append(fits, d.likeness(self, branchAt(schemas, i)))
		}
	}
	if f, ok := mergedTypes(self, forms); ok {
		return []finding{f}
	}
	if f, ok := mergedValues(self, forms); ok {
		return []finding{f}
	}
	if nearest := nearestForm(self, forms, fits); nearest >= 0 {
		return forms[nearest]
	}
	self.forms = forms
	return []finding{self}
}

// mergedTypes answers for branches that all want another type.
func mergedTypes(self finding, forms [][]finding) (finding, bool) {
	merged := &kind.Type{}
	for _, form := range forms {
		k, ok := form[0].kind.(*kind.Type)
		if !ok || !otherType(self, form) {
			return finding{}, false
		}
		merged.Got = k.Got
		for _, want := range k.Want {
			if !slices.Contains(merged.Want, want) {
				merged.Want = append(merged.Want, want)
			}
		}
	}
	self.kind = merged
	return self, len(forms) > 0
}

// otherType says that a branch failed for the type of the whole value.
func otherType(self finding, form []finding) bool {
	return len(form) == 1 && typesOf(form[0]) != nil && len(form[0].at) == len(self.at)
}

// typesOf gives the types that f wants, nil if it is about something else.
func typesOf(f finding) []string {
	if k, ok := f.kind.(*kind.Type); ok {
		return k.Want
	}
	return nil
}

// mergedValues answers for branches that are told apart by one value, such as
// the field "kind" of a union, when it fits none of them.
func mergedValues(self finding, forms [][]finding) (finding, bool) {
	merged, at, node := &kind.Enum{}, []string(nil), ""
	var types []string
	for _, form := range forms {
		if otherType(self, form) {
			types = append(types, typesOf(form[0])...)
			continue
		}
		i := slices.IndexFunc(form, func(f finding) bool { return tellsApart(self, f) })
		if i < 0 || at != nil && !slices.Equal(at, form[i].at) {
			return finding{}, false
		}
		at, node = append([]string{}, form[i].at...), form[i].node
		merged.Want = append(merged.Want, wanted(form[i].kind)...)
	}
	if len(at) > len(self.at) {
		types = nil
	}
	return finding{at: at, kind: merged, node: node, types: types}, len(merged.Want) > 0
}

// tellsApart reports whether f is about a constant of the value, or of a direct
// member of it.
func tellsApart(self, f finding) bool {
	return len(f.at) <= len(self.at)+1 && wanted(f.kind) != nil
}

func wanted(k jsonschema.ErrorKind) []any {
	switch k := k.(type) {
	case *kind.Const:
		return []any{k.Want}
	case *kind.Enum:
		return k.Want
	}
	return nil
}

// nearestForm gives the branch that fails least, of those the one that names most
// of the value's members, or -1 if several do.
func nearestForm(self finding, forms [][]finding, fits []likeness) int {
	best, tied := -1, false
	var least likeness
	for i, form := range forms {
		s := likeness{strange: score(self, form) + fits[i].strange, named: fits[i].named}
		switch c := s.compare(least); {
		case best < 0 || c < 0:
			best, least, tied = i, s, false
		case c == 0:
			tied = true
		}
	}
	if tied {
		return -1
	}
	return best
}

// likeness is how many members of a value a branch names, and how many it does not.
type likeness struct{ strange, named int }

func (l likeness) compare(than likeness) int {
	return cmp.Or(cmp.Compare(l.strange, than.strange), cmp.Compare(than.named, l.named))
}

// branchesOf gives the schemas of a choice, in the order in which their failures
// come: all of them fail where none fits.
func (d describer) branchesOf(self finding) []*jsonschema.Schema {
	node := d.nodes[self.node]
	if node == nil {
		return nil
	}
	if _, ok := self.kind.(*kind.OneOf); ok {
		return node.OneOf
	}
	return node.AnyOf
}

func branchAt(list []*jsonschema.Schema, i int) *jsonschema.Schema {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// likeness is 0 for a branch that names no members.
func (d describer) likeness(self finding, branch *jsonschema.Schema) (l likeness) {
	for hops := 0; branch != nil && branch.Ref != nil && hops < 8; hops++ {
		branch = branch.Ref
	}
	if branch == nil || len(branch.Properties) == 0 {
		return l
	}
	for _, key := range d.keys(self) {
		if branch.Properties[key] != nil {
			l.named++
		} else {
			l.strange++
		}
	}
	return l
}

// score weighs how far a branch is from the value: a type or constant that
// tells branches apart weighs more than any number of other failures.
func score(self finding, form []finding) int {
	if otherType(self, form) {
		return 1 << 30
	}
	sum := 0
	for _, f := range form {
		switch k := f.kind.(type) {
		case *kind.Required:
			sum += len(k.Missing)
		case *kind.AdditionalProperties:
			sum += len(k.Properties)
		default:
			sum++
		}
		if tellsApart(self, f) {
			sum += 1 << 20
		}
	}
	return min(sum, 1<<30-1)
}

// order sorts findings by place, so that the same value always reads the same
// (the validator walks maps), and drops what is said twice.
func order(all []finding) []finding {
	type keyed struct {
		finding
		path, what string
	}
	list := make([]keyed, len(all))
	for i, f := range all {
		list[i] = keyed{f, jsontext.Pointer(f.at...), f.node + what(f.kind)}
	}
	slices.SortStableFunc(list, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.what, b.what))
	})
	list = slices.CompactFunc(list, func(a, b keyed) bool { return a.path == b.path && a.what == b.what })
	out := make([]finding, len(list))
	for i, k := range list {
		out[i] = k.finding
	}
	return out
}

// what tells findings of one schema apart.
func what(k jsonschema.ErrorKind) string {
	text := " " + jsontext.Pointer(k.KeywordPath()...)
	if p, ok := k.(*kind.PropertyNames); ok {
		text += " " + p.Property
	}
	return text
}
