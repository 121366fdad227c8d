package export

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/provider"
)

// maxBack bounds the work of reading arguments back, in looks at a value.
const maxBack = 2_000_000

// Arguments reads back what a model gave for the strict export of a schema: a
// null for a property that the export made nullable is taken out, a null that the
// schema itself allows stays. Everything else keeps its text, numbers and the
// order of keys too. Arguments that are not JSON, or of a schema that has no
// strict form, come back as they are.
func Arguments(schema json.RawMessage, arguments string) string {
	n, err := read(schema)
	if err != nil {
		return arguments
	}
	modernize(n)
	_, plain, _, err := strict(n, openAIStrict())
	if err != nil {
		return arguments
	}
	return withoutNulls(plain, arguments)
}

// OwnArguments reads back what a model gave for the export of a schema in a format:
// names of properties that the format changed and, for a strict format, nulls as
// [Arguments] does. Who has the [Set] of the export asks that.
func OwnArguments(f Format, schema json.RawMessage, arguments string) string {
	const name = "tool"
	set, err := Export(f, []Tool{{Tool: provider.Tool{Name: name, Schema: schema}}})
	if err != nil {
		return arguments
	}
	_, arguments = set.Own(name, arguments)
	return arguments
}

func withoutNulls(plain *node, arguments string) string {
	if !strings.Contains(arguments, "null") || jsontext.Check([]byte(arguments), jsontext.Limits{}) != nil {
		return arguments
	}
	v := parse([]byte(arguments))
	r := reader{root: plain, known: map[pairing]*reading{}, left: maxBack, objects: map[*node]*objectSchema{}, nulls: newNulls(plain)}
	if got := r.read(plain, v).value; got != v && r.left > 0 {
		return string(got.text())
	}
	return arguments
}

// reader reads values of a closed schema as values of the plain one.
type reader struct {
	root    *node
	known   map[pairing]*reading
	objects map[*node]*objectSchema
	nulls   nulls
	left    int
}

type pairing struct{ schema, value *node }

// reading is a value without the nulls that stand for absence, and whether it fits
// the schema, as far as that tells the forms of a union apart. A value that is not
// changed is the same node.
type reading struct {
	value *node
	fits  bool
}

type objectSchema struct {
	props    map[string]*node
	required map[string]bool
}

func (r *reader) read(n, v *node) reading {
	key := pairing{n, v}
	if done := r.known[key]; done != nil {
		return *done
	}
	if r.left--; r.left < 0 {
		return reading{value: v}
	}
	r.known[key] = &reading{value: v} // a schema that refers to itself without end fits nothing
	done := r.readNew(n, v)
	r.known[key] = &done
	return done
}

func (r *reader) readNew(n, v *node) reading {
	if ref := n.get("$ref"); ref != nil {
		if target := r.root.resolve(ref.str()); target != nil {
			return r.read(target, v)
		}
		return reading{value: v}
	}
	if forms := n.get("anyOf"); forms != nil {
		return r.union(forms.items, v)
	}
	fits := fitsType(n, v) && fitsList(n, v)
	switch {
	case v.isObject() && n.has("properties"):
		return r.object(n, v, fits)
	case v.isArray() && n.has("items"):
		return r.array(n.get("items"), v, fits)
	}
	return reading{v, fits}
}

// union reads by the first form that fits; where none does, by the only one of the
// value's type.
func (r *reader) union(forms []*node, v *node) reading {
	var typed []reading
	for _, form := range forms {
		got := r.read(form, v)
		if got.fits {
			return got
		}
		if form.has("$ref") || fitsType(form, v) {
			typed = append(typed, got)
		}
	}
	if len(typed) == 1 {
		return typed[0]
	}
	return reading{value: v}
}

func (r *reader) describe(n *node) *objectSchema {
	if known := r.objects[n]; known != nil {
		return known
	}
	o := &objectSchema{props: map[string]*node{}, required: map[string]bool{}}
	props := n.get("properties")
	for i, key := range props.keys {
		o.props[key] = props.items[i]
	}
	for _, key := range n.get("required").strings() {
		o.required[key] = true
	}
	r.objects[n] = o
	return o
}

func (r *reader) object(n, v *node, fits bool) reading {
	o := r.describe(n)
	out, changed, required := &node{kind: '{'}, false, 0
	for i, key := range v.keys {
		item := v.items[i]
		schema := o.props[key]
		switch {
		case schema == nil:
			fits = false // the object is closed
		case o.required[key]:
			required++
		case item.isNull() && !r.nulls.fit(schema):
			changed = true
			continue
		}
		if schema != nil {
			got := r.read(schema, item)
			fits = fits && got.fits
			changed = changed || got.value != item
			item = got.value
		}
		out.keys, out.items = append(out.keys, key), append(out.items, item)
	}
	fits = fits && required == len(o.required)
	if !changed {
		out = v
	}
	return reading{out, fits}
}

func (r *reader) array(items, v *node, fits bool) reading {
	out, changed := &node{kind: '['}, false
	for _, item := range v.items {
		got := r.read(items, item)
		fits = fits && got.fits
		changed = changed || got.value != item
		out.items = append(out.items, got.value)
	}
	if !changed {
		out = v
	}
	return reading{out, fits}
}

func fitsType(n, v *node) bool {
	types := n.types()
	return len(types) == 0 || fitting(types, v, typeOf(v)) != ""
}

func fitsList(n, v *node) bool {
	values, listed := listedValues(n)
	return !listed || slices.ContainsFunc(values, func(x *node) bool { return equal(x, v) })
}

// equal compares scalars as JSON Schema does.
func equal(a, b *node) bool {
	switch {
	case a.isNumber() && b.isNumber():
		x, y := number(a.raw), number(b.raw)
		return x != nil && y != nil && x.Cmp(y) == 0
	case a.isString() && b.isString():
		return a.str() == b.str()
	}
	return a.kind == b.kind && a.raw == b.raw
}

// number reads a literal that passed jsontext's limits.
func number(literal string) *big.Rat {
	r, ok := new(big.Rat).SetString(literal)
	if !ok {
		return nil
	}
	return r
}

func whole(literal string) bool {
	r := number(literal)
	return r != nil && r.IsInt()
}
