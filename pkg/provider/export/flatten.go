package export

import (
	"slices"
	"strconv"
	"strings"
)

// Bounds of flattening: a schema that leads to more is flattened as far as that.
const (
	maxShapes       = 1_000
	maxAlternatives = 64 << 10 // bytes of forms of all properties that have several
	maxRule         = 512      // bytes
)

// flattener takes combinations of schemas (anyOf, oneOf, allOf, $ref) that describe
// one object apart and puts together one object that takes all that any of them
// takes. What is lost is told in words: the mesh checks calls by the tool's own
// schema.
type flattener struct {
	root  *node
	rules []string

	shapes, bytes int
	within        []*node
}

// shape is what is known of an object's properties.
type shape struct {
	props    *node // by name
	required []string
	closed   bool
}

// flat reports whether n says all it says by keywords of its own.
func flat(n *node) bool {
	return !n.has("$ref") && !n.has("allOf") && !n.has("anyOf") && !n.has("oneOf")
}

// flatten rewrites n, in place, without combinations.
func (f *flattener) flatten(n *node) {
	if flat(n) {
		return
	}
	f.describeBy(n)
	s := f.shape(n)
	n.del("$ref", "allOf", "anyOf", "oneOf", "properties", "required", "additionalProperties")
	if !n.has("type") {
		n.before("type", word("object"))
	}
	n.set("properties", s.props)
	if len(s.required) > 0 {
		n.set("required", words(s.required))
	}
	if s.closed {
		n.set("additionalProperties", boolean(false))
	}
}

// full reports whether the bounds were met: something may be missing.
func (f *flattener) full() bool { return f.shapes > maxShapes || f.bytes > maxAlternatives }

// describeBy takes title and description of what n refers to, where n has none.
func (f *flattener) describeBy(n *node) {
	target := f.root.resolve(n.get("$ref").str())
	for _, key := range []string{"title", "description"} {
		if text := target.get(key); text.isString() && !n.has(key) {
			n.set(key, text)
		}
	}
}

// shape gives the properties that n allows, by whatever keyword.
func (f *flattener) shape(n *node) shape {
	s := shape{props: object()}
	if f.shapes++; f.shapes > maxShapes || !n.isObject() || slices.Contains(f.within, n) {
		return s
	}
	f.within = append(f.within, n)
	defer func() { f.within = f.within[:len(f.within)-1] }()
	if props := n.get("properties"); props.isObject() {
		s.props = &node{kind: '{', keys: slices.Clone(props.keys), items: slices.Clone(props.items)}
	}
	s.required = n.get("required").strings()
	s.closed = n.get("additionalProperties").isFalse()
	if ref := n.get("$ref"); ref.isString() {
		s = both(s, f.shape(f.root.resolve(ref.str())))
	}
	for _, part := range parts(n, "allOf") {
		s = both(s, f.shape(part))
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if forms := parts(n, keyword); len(forms) > 0 {
			s = both(s, f.either(keyword, forms))
		}
	}
	return s
}

func parts(n *node, keyword string) []*node {
	if list := n.get(keyword); list.isArray() {
		return list.items
	}
	return nil
}

// both gives what two schemas that hold together allow. A property of both is
// described by the first that describes it.
func both(a, b shape) shape {
	for i, key := range b.props.keys {
		if mine := a.props.get(key); mine == nil || vague(mine) && !vague(b.props.items[i]) {
			a.props.set(key, b.props.items[i])
		}
	}
	for _, key := range b.required {
		if !slices.Contains(a.required, key) {
			a.required = append(a.required, key)
		}
	}
	a.closed = a.closed || b.closed
	return a
}

// vague reports whether a schema says nothing of its value's type.
func vague(n *node) bool {
	return !n.isObject() || !slices.ContainsFunc([]string{"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties"}, n.has)
}

// either gives what one of several forms allows.
func (f *flattener) either(keyword string, forms []*node) shape {
	out := f.shape(forms[0])
	sets := [][]string{out.required}
	for _, form := range forms[1:] {
		s := f.shape(form)
		sets = append(sets, s.required)
		for i, key := range s.props.keys {
			out.props.set(key, f.alternative(out.props.get(key), s.props.items[i]))
		}
		out.required = slices.DeleteFunc(slices.Clone(out.required), func(key string) bool { return !slices.Contains(s.required, key) })
		out.closed = out.closed && s.closed
	}
	f.rule(keyword, sets)
	return out
}

// alternative gives a schema for what either takes.
func (f *flattener) alternative(a, b *node) *node {
	if a == nil {
		return b
	}
	text := b.text()
	if len(text) == len(a.text()) && same(a, b) {
		return a
	}
	if f.bytes += len(text); f.bytes > maxAlternatives {
		return a
	}
	if consts := constants(a, b); consts != nil {
		return consts
	}
	if a.isObject() && len(a.keys) == 1 && a.has("anyOf") {
		if slices.ContainsFunc(a.get("anyOf").items, func(x *node) bool { return same(x, b) }) {
			return a
		}
		return object("anyOf", &node{kind: '[', items: append(slices.Clone(a.get("anyOf").items), b)})
	}
	return object("anyOf", &node{kind: '[', items: []*node{a, b}})
}

// constants joins two lists of constant strings, such as the tags by which forms
// are told apart; nil where one is more than that.
func constants(a, b *node) *node {
	x, y := constant(a), constant(b)
	if x == nil || y == nil {
		return nil
	}
	for _, v := range y {
		if !slices.Contains(x, v) {
			x = append(x, v)
		}
	}
	out := object("type", "string")
	for _, key := range []string{"title", "description"} {
		if text := a.get(key); text != nil {
			out.set(key, text)
		}
	}
	out.set("enum", words(x))
	return out
}

func constant(n *node) []string {
	if !n.isObject() {
		return nil
	}
	for _, key := range n.keys {
		if !slices.Contains([]string{"type", "const", "enum", "title", "description"}, key) {
			return nil
		}
	}
	if value := n.get("const"); value.isString() && !n.has("enum") {
		return []string{value.str()}
	}
	if list := n.get("enum"); list.isArray() && !n.has("const") && len(list.strings()) == len(list.items) {
		return list.strings()
	}
	return nil
}

// flattenRoot flattens the root. What other places refer to inside its combinations
// moves to the definitions.
func flattenRoot(root *node) (told string) {
	if flat(root) {
		return ""
	}
	rehome(root)
	f := flattener{root: root}
	f.flatten(root)
	return f.told()
}

func rehome(root *node) {
	moved := map[string]string{}
	root.each(func(n *node) {
		tokens, ok := pointer(n.get("$ref").str())
		if !ok || len(tokens) == 0 || !slices.Contains([]string{"allOf", "anyOf", "oneOf"}, tokens[0]) {
			return
		}
		ref := n.get("$ref").str()
		target := root.resolve(ref)
		if target == nil {
			return
		}
		if moved[ref] == "" {
			moved[ref] = define(root, target)
		}
		n.set("$ref", refTo("$defs", moved[ref]))
	})
}

// define adds a definition under a name of its own.
func define(root, schema *node) string {
	if !root.get("$defs").isObject() {
		root.set("$defs", object())
	}
	defs := root.get("$defs")
	name := "moved"
	for i := 1; defs.has(name); i++ {
		name = "moved" + strconv.Itoa(i)
	}
	defs.set(name, schema)
	return name
}

// rule tells which arguments have to come together.
func (f *flattener) rule(keyword string, sets [][]string) {
	if slices.ContainsFunc(sets, func(set []string) bool { return len(set) == 0 }) || len(sets) < 2 {
		return
	}
	word := "at least one"
	if keyword == "oneOf" {
		word = "exactly one"
	}
	var told []string
	for _, set := range sets {
		one := strings.Join(set, " + ")
		if !slices.Contains(told, one) {
			told = append(told, one)
		}
	}
	if len(told) < 2 {
		return
	}
	f.rules = append(f.rules, "Give "+word+" of these: "+strings.Join(told, "; ")+".")
}

// excludedBy tells which arguments a root's not forbids to come together; "" where it
// is about something else.
func excludedBy(not *node) string {
	var told []string
	for _, n := range append(parts(not, "anyOf"), not) {
		if !n.isObject() || slices.ContainsFunc(n.keys, func(key string) bool { return key != "required" && key != "type" }) {
			continue
		}
		if set := n.get("required").strings(); len(set) > 0 {
			told = append(told, strings.Join(set, " + "))
		}
	}
	if len(told) == 0 {
		return ""
	}
	return clip("Do not give any of these together: "+strings.Join(told, "; ")+".", maxRule)
}

// told gives the rules as one bounded text.
func (f *flattener) told() string { return clip(strings.Join(f.rules, " "), maxRule) }
