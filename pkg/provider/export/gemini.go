package export

import (
	"slices"
	"strings"
)

// Bounds of a schema in Gemini's subset, into which references are copied: what
// has more goes out as JSON Schema.
const (
	maxSubset = 8_000 // values
	maxUnion  = 100   // forms of one union
)

// subsetError says why a schema does not go out as `parameters`.
type subsetError string

func (e subsetError) Error() string { return string(e) }

const (
	errRecursive = subsetError("it refers to itself")
	errAnything  = subsetError("it takes values of any type")
	errTooLarge  = subsetError("it is too large without references")
	errNothing   = subsetError("it has a place that takes no value")
	errReference = subsetError("it has a reference that leads nowhere")
	errNames     = subsetError("it has a property name that may not stand there")
)

// subset rewrites schemas in the OpenAPI subset that Gemini's `parameters` takes.
type subset struct {
	root   *node
	within []*node
	size   int
	lost   []string
	flat   flattener
}

// parameters gives the schema in the subset; nil for one without properties.
func parameters(root *node) (out *node, lost []string, err error) {
	s := subset{root: root, flat: flattener{root: root}}
	out, err = s.schema(root)
	if err != nil {
		return nil, nil, err
	}
	if props := out.get("properties"); props == nil || len(props.keys) == 0 {
		if open := root.get("additionalProperties"); open != nil && !open.isFalse() || root.has("patternProperties") {
			return nil, nil, errAnything
		}
		return nil, nil, nil
	}
	return out, s.lost, nil
}

func (s *subset) schema(n *node) (*node, error) {
	switch {
	case n.isTrue():
		return nil, errAnything
	case !n.isObject():
		return nil, errNothing
	case slices.Contains(s.within, n):
		return nil, errRecursive
	}
	s.within = append(s.within, n)
	defer func() { s.within = s.within[:len(s.within)-1] }()
	if s.size += 1 + len(n.keys); s.size > maxSubset {
		return nil, errTooLarge
	}
	if n.has("$ref") {
		return s.ref(n)
	}
	if n.has("allOf") || n.has("properties") && (n.has("anyOf") || n.has("oneOf")) {
		return s.combined(n)
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if n.has(keyword) {
			return s.union(n, parts(n, keyword))
		}
	}
	return s.plain(n)
}

// ref puts what is referred to in the place of the reference; words beside it count
// more than its own.
func (s *subset) ref(n *node) (*node, error) {
	target := s.root.resolve(n.get("$ref").str())
	if target == nil {
		return nil, errReference
	}
	out, err := s.schema(target)
	if err != nil {
		return nil, err
	}
	return worded(out, n), nil
}

// worded gives out the title and description of n, if it has any.
func worded(out, n *node) *node {
	at := out
	if forms := out.get("anyOf"); forms != nil {
		at = forms.items[0] // beside anyOf nothing may stand
	}
	for _, key := range []string{"title", "description"} {
		if text := n.get(key); text.isString() && text.str() != "" {
			at.set(key, text)
		}
	}
	return out
}

// combined handles what several keywords say of one value.
func (s *subset) combined(n *node) (*node, error) {
	list := parts(n, "allOf")
	if len(list) == 1 && !slices.ContainsFunc(n.keys, func(key string) bool { return key != "allOf" && !annotation(key) }) {
		out, err := s.schema(list[0])
		if err != nil {
			return nil, err
		}
		return worded(out, n), nil
	}
	one := &node{kind: '{', keys: slices.Clone(n.keys), items: slices.Clone(n.items)}
	if !s.objects(n, 0) {
		s.gather(one)
		return s.schemaOnce(one)
	}
	s.flat.rules = nil
	s.flat.flatten(one)
	if s.flat.full() {
		return nil, errTooLarge
	}
	if told := s.flat.told(); told != "" {
		tell(one, told)
	}
	return s.schemaOnce(one)
}

// schemaOnce goes on with a schema that was made here.
func (s *subset) schemaOnce(n *node) (*node, error) {
	if n.has("allOf") {
		return nil, errTooLarge
	}
	return s.schema(n)
}

// objects reports whether a combination is about objects.
func (s *subset) objects(n *node, hops int) bool {
	if s.size++; !n.isObject() || hops > 8 || s.size > maxSubset {
		return false
	}
	if n.has("properties") || slices.Contains(n.types(), "object") {
		return true
	}
	if ref := n.get("$ref"); ref != nil && s.objects(s.root.resolve(ref.str()), hops+1) {
		return true
	}
	return slices.ContainsFunc(parts(n, "allOf"), func(part *node) bool { return s.objects(part, hops+1) })
}

// gather takes the keywords of allOf's parts into n, the first of each.
func (s *subset) gather(n *node) {
	todo := parts(n, "allOf")
	n.del("allOf")
	for hops := 0; len(todo) > 0 && hops < maxShapes; hops++ {
		part := todo[0]
		todo = todo[1:]
		if ref := part.get("$ref"); ref != nil {
			todo = append(todo, s.root.resolve(ref.str()))
		}
		todo = append(todo, parts(part, "allOf")...)
		if !part.isObject() {
			continue
		}
		for i, key := range part.keys {
			if key != "$ref" && key != "allOf" && !n.has(key) {
				n.set(key, part.items[i])
			}
		}
	}
}

// union writes the forms of a union; null among them makes the others nullable.
func (s *subset) union(n *node, forms []*node) (*node, error) {
	if len(forms) > maxUnion {
		return nil, errTooLarge
	}
	out := &node{kind: '['}
	nullable := false
	for _, form := range forms {
		if slices.Equal(form.types(), []string{"null"}) || form.get("const").isNull() {
			nullable = true
			continue
		}
		one, err := s.form(n, form)
		if err != nil {
			return nil, err
		}
		if inner := one.get("anyOf"); inner != nil {
			out.items = append(out.items, inner.items...)
		} else {
			out.items = append(out.items, one)
		}
	}
	return alternatives(out.items, nullable, n)
}

// form writes one form; what stands beside the union names its type, if it does not.
func (s *subset) form(n, form *node) (*node, error) {
	if form.isObject() && len(form.types()) == 0 && n.has("type") && flat(form) {
		typed := &node{kind: '{', keys: slices.Clone(form.keys), items: slices.Clone(form.items)}
		for _, key := range []string{"enum", "items", "type"} {
			if value := n.get(key); value != nil && !typed.has(key) {
				typed.before(key, value)
			}
		}
		form = typed
	}
	return s.schema(form)
}

// alternatives gives one schema for several.
func alternatives(forms []*node, nullable bool, words *node) (*node, error) {
	var out *node
	switch len(forms) {
	case 0:
		return nil, errNothing
	case 1:
		out = forms[0]
	default:
		out = object("anyOf", &node{kind: '[', items: forms})
	}
	if nullable {
		for _, form := range forms {
			form.set("nullable", boolean(true))
		}
	}
	return worded(out, words), nil
}

// plain writes a schema without combinations, once for each of its types.
func (s *subset) plain(n *node) (*node, error) {
	types := n.types()
	if values, listed := listedValues(n); listed {
		types = typesOf(types, values)
	} else if len(types) == 0 {
		types = impliedTypes(n)
	}
	if len(types) == 0 {
		return nil, errAnything
	}
	nullable := slices.Contains(types, "null")
	var forms []*node
	for _, t := range types {
		if t == "null" {
			continue
		}
		form, err := s.typed(n, t)
		if err != nil {
			return nil, err
		}
		forms = append(forms, form)
	}
	if len(forms) == 0 {
		return nil, errNothing
	}
	return alternatives(forms, nullable, object())
}

// typesOf gives the types of listed values, as far as they are allowed.
func typesOf(allowed []string, values []*node) []string {
	var out []string
	for _, v := range values {
		t := typeOf(v)
		if len(allowed) > 0 {
			t = fitting(allowed, v, t)
		}
		if t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// typed writes the keywords that speak of one type.
func (s *subset) typed(n *node, t string) (*node, error) {
	out := object("type", t)
	if text := n.get("description"); text.isString() { // words that are told go behind it
		out.set("description", text)
	}
	for i, key := range n.keys {
		if err := s.keyword(out, n, t, key, n.items[i]); err != nil {
			return nil, err
		}
	}
	if t == "array" && !out.has("items") {
		return nil, errAnything
	}
	return out, nil
}

func (s *subset) keyword(out, n *node, t, key string, value *node) error {
	switch key {
	case "description":
	case "title", "default":
		out.set(key, value)
	case "enum", "const":
		s.list(out, n, t)
	case "format":
		s.format(out, t, value)
	case "properties", "required", "minProperties", "maxProperties":
		if t == "object" {
			return s.member(out, n, key, value)
		}
	case "items", "minItems", "maxItems":
		if t == "array" {
			return s.item(out, key, value)
		}
	case "pattern", "minLength", "maxLength":
		if t == "string" {
			out.set(key, value)
		}
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		if t == "number" || t == "integer" {
			s.bound(out, key, value)
		}
	default:
		s.lose(out, key, value)
	}
	return nil
}

// bound writes a bound that excludes its own value as one that includes it.
func (s *subset) bound(out *node, key string, value *node) {
	if plain, ok := strings.CutPrefix(key, "exclusive"); ok {
		s.lose(out, key, value)
		key = strings.ToLower(plain)
	}
	if value.isNumber() && !out.has(key) {
		out.set(key, value)
	}
}

// lose says a keyword in words, unless it asserts nothing.
func (s *subset) lose(out *node, key string, value *node) {
	if value.isFalse() || !asserts(key) && key != "additionalProperties" && key != "patternProperties" && key != "prefixItems" {
		return
	}
	s.losing(key)
	if len(value.text()) <= 200 && asserts(key) {
		tell(out, key+": "+string(value.text()))
	}
}

func (s *subset) losing(key string) {
	if !slices.Contains(s.lost, key) {
		s.lost = append(s.lost, key)
	}
}

// list writes enum and const: as strings that are not empty, which is all that an
// enum may hold; others in words.
func (s *subset) list(out, n *node, t string) {
	values, _ := listedValues(n)
	list, fit := &node{kind: '['}, &node{kind: '['}
	for _, v := range values {
		own := typeOf(v)
		if fitting([]string{t}, v, own) == "" || own == "null" {
			continue
		}
		fit.items = append(fit.items, v)
		if own != "string" {
			v = word(string(v.text()))
		}
		if !slices.Contains(list.strings(), v.str()) {
			list.items = append(list.items, v)
		}
	}
	switch {
	case t == "string" && !slices.Contains(list.strings(), ""):
		out.set("enum", list)
	case t == "integer" || t == "number":
		out.set("format", word("enum"))
		out.set("enum", list)
	case t == "boolean" && len(list.items) > 1:
	default:
		s.losing(listKeyword(n))
		if len(fit.text()) <= 200 {
			tell(out, "one of "+string(fit.text()))
		}
	}
}

func (s *subset) format(out *node, t string, value *node) {
	known := map[string][]string{
		"string": {"date-time", "enum"}, "number": {"float", "double"}, "integer": {"int32", "int64"},
	}[t]
	switch {
	case out.has("format"):
	case slices.Contains(known, value.str()):
		out.set("format", value)
	case value.isString():
		tell(out, "format: "+clip(value.str(), 64))
	}
}

func (s *subset) member(out, n *node, key string, value *node) error {
	switch {
	case key == "properties" && value.isObject():
		props := object()
		for i, name := range value.keys {
			if r, _ := GeminiParameters.properties(); !r.fits(name) {
				return errNames
			}
			sub, err := s.schema(value.items[i])
			if err != nil {
				return err
			}
			props.set(name, sub)
		}
		out.set(key, props)
	case key == "required":
		var known []string
		for _, name := range value.strings() {
			if n.get("properties").has(name) {
				known = append(known, name)
			}
		}
		if len(known) > 0 {
			out.set(key, words(known))
		}
	case value.isNumber():
		out.set(key, value)
	}
	return nil
}

func (s *subset) item(out *node, key string, value *node) error {
	if key != "items" {
		out.set(key, value)
		return nil
	}
	sub, err := s.schema(value)
	if err == nil {
		out.set(key, sub)
	}
	return err
}
