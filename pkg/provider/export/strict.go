package export

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// dialect is what a provider takes as strict.
type dialect struct {
	// nullable: every property is required, an optional one may be null.
	nullable bool
	// recursive schemas are taken.
	recursive bool
	keeps     []string
	formats   []string
	limits    limits
}

// limits of a strict schema; 0 is none.
type limits struct {
	properties, optional, depth, enum, text, longEnum, longEnumText int
}

var structure = []string{
	"type", "properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs", "definitions",
	"enum", "const", "title", "description", "default", "format",
}

// openAIStrict holds the rules of Structured Outputs.
func openAIStrict() dialect {
	return dialect{
		nullable: true, recursive: true,
		keeps: slices.Concat(structure, []string{
			"pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
			"multipleOf", "minItems", "maxItems",
		}),
		formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
		limits: limits{
			properties: 5_000, depth: 10, enum: 1_000, text: 120_000, longEnum: 250, longEnumText: 15_000,
		},
	}
}

func anthropicStrict() dialect {
	return dialect{
		keeps:   structure,
		formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
		limits:  limits{optional: 24},
	}
}

// strict gives the two forms of a schema that can be strict: the one that a
// provider gets, and the plain one by which its arguments are read back. The
// error says why a schema cannot be strict. Lost are keywords that were turned
// into words.
func strict(root *node, d dialect) (closed, plain *node, lost []string, err error) {
	s := stricter{dialect: d, root: root.clone()}
	if err := s.all(); err != nil {
		return nil, nil, nil, err
	}
	s.nulls = newNulls(s.root)
	closed = s.close(s.root)
	if err := d.limits.check(closed); err != nil {
		return nil, nil, nil, err
	}
	return closed, s.root, s.lost, nil
}

// stricter rewrites a schema, in place, until it says all it says by keywords that
// are kept.
type stricter struct {
	dialect
	root  *node
	grown int // values added by references that were put in
	lost  []string
	used  []string // definitions that are referred to, "$defs" + name
	links map[string][]string
	def   string // the definition at hand
	nulls nulls
}

func refuse(at, format string, args ...any) error {
	if at == "" {
		at = "the root"
	}
	return errors.New(clip(at, 200) + ": " + fmt.Sprintf(format, args...))
}

func (s *stricter) all() error {
	s.links = map[string][]string{}
	if err := s.schema(s.root, "", true); err != nil {
		return err
	}
	for next := 0; ; next++ { // each may lead to more
		if next == len(s.used) {
			break
		}
		s.def = s.used[next]
		if err := s.schema(s.root.follow(tokensOf(s.def)), s.def, false); err != nil {
			return err
		}
	}
	s.prune()
	if !s.recursive && s.cyclic() {
		return refuse("", "the schema refers to itself")
	}
	return nil
}

// prune drops the definitions that nothing refers to.
func (s *stricter) prune() {
	for _, key := range []string{"$defs", "definitions"} {
		defs := s.root.get(key)
		if !defs.isObject() {
			s.root.del(key)
			continue
		}
		for _, name := range slices.Clone(defs.keys) {
			if !slices.Contains(s.used, jsontext.Pointer(key, name)) {
				defs.del(name)
			}
		}
		s.root.del(key)
		if len(defs.keys) > 0 {
			s.root.set(key, defs)
		}
	}
}

// cyclic reports whether a definition leads back to itself.
func (s *stricter) cyclic() bool {
	const open, done = 1, 2
	state := map[string]int{}
	var visit func(at string) bool
	visit = func(at string) bool {
		if state[at] != 0 {
			return state[at] == open
		}
		state[at] = open
		loops := slices.ContainsFunc(s.links[at], visit)
		state[at] = done
		return loops
	}
	return visit("")
}

func (s *stricter) schema(n *node, at string, root bool) error {
	if !n.isObject() {
		return refuse(at, "takes any value, or none")
	}
	if err := s.merge(n, at, root); err != nil {
		return err
	}
	if err := s.keywords(n, at, root); err != nil {
		return err
	}
	switch {
	case n.has("$ref"):
		return s.ref(n, at)
	case n.has("anyOf"):
		if root {
			return refuse(at, "a union at the root")
		}
		return s.union(n, at)
	}
	if err := s.kinds(n, at); err != nil {
		return err
	}
	if err := s.object(n, at, root); err != nil {
		return err
	}
	return s.array(n, at)
}

// structural are the keywords without which the rest of a schema means something
// else.
var structural = []string{
	"patternProperties", "if", "then", "else", "dependentSchemas", "dependencies", "prefixItems",
	"$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "unevaluatedProperties",
}

// silent are the keywords that say nothing of which values fit.
var silent = []string{
	"$schema", "$id", "id", "$comment", "$vocabulary", "examples", "example", "readOnly", "writeOnly", "deprecated", "nullable",
}

// keywords drops what is not kept; what asserts something goes into the description.
func (s *stricter) keywords(n *node, at string, root bool) error {
	if n.get("unevaluatedProperties").isFalse() {
		n.del("unevaluatedProperties")
		n.set("additionalProperties", boolean(false))
	}
	if n.has("oneOf") {
		if n.has("anyOf") {
			return refuse(at, "oneOf beside anyOf")
		}
		n.rename("oneOf", "anyOf")
	}
	for _, key := range slices.Clone(n.keys) {
		switch {
		case slices.Contains(structural, key), key == "$id" && !root:
			return refuse(at, "%s cannot be strict", key)
		case !s.kept(n, key), !root && (key == "$defs" || key == "definitions"):
			s.drop(n, key)
		}
	}
	return nil
}

func (s *stricter) kept(n *node, key string) bool {
	value := n.get(key)
	switch key {
	case "format":
		return slices.Contains(s.formats, value.str())
	case "pattern":
		return slices.Contains(s.keeps, key) && simplePattern(value.str())
	case "minItems":
		return slices.Contains(s.keeps, key) || value.raw == "0" || value.raw == "1"
	}
	return slices.Contains(s.keeps, key)
}

// simplePattern reports a pattern without look-around, back-references and classes
// by name.
func simplePattern(p string) bool {
	if strings.Contains(strings.ReplaceAll(p, "(?:", ""), "(?") {
		return false
	}
	for i := range len(p) - 1 {
		if p[i] == '\\' && strings.IndexByte("pPk123456789", p[i+1]) >= 0 {
			return false
		}
	}
	return true
}

// drop takes a keyword out and says it in words, unless it asserts nothing.
func (s *stricter) drop(n *node, key string) {
	value := n.get(key)
	n.del(key)
	if slices.Contains(silent, key) || holds(key) == holdsMap || !asserts(key) || value.isFalse() {
		return
	}
	tell(n, key+": "+clip(string(value.text()), 200))
	if key != "format" && !strings.HasPrefix(key, "content") && !slices.Contains(s.lost, key) {
		s.lost = append(s.lost, key)
	}
}

// asserts reports the keywords that a value can break, or that tell how it is made.
func asserts(key string) bool {
	return slices.Contains([]string{
		"not", "dependentRequired", "propertyNames", "minProperties", "maxProperties", "uniqueItems", "contains", "minContains",
		"maxContains", "unevaluatedItems", "contentEncoding", "contentMediaType", "contentSchema", "format", "pattern",
		"minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
	}, key)
}

// tell adds words to a description.
func tell(n *node, words string) {
	if text := n.get("description").str(); text != "" {
		words = text + " (" + words + ")"
	}
	n.set("description", word(words))
}

// ref keeps a reference to the root or to a definition, with words beside it.
func (s *stricter) ref(n *node, at string) error {
	for _, key := range n.keys {
		if !annotation(key) && key != "$ref" && key != "$defs" && key != "definitions" {
			return refuse(at, "%s beside $ref", key)
		}
	}
	ref := n.get("$ref").str()
	tokens, ok := pointer(ref)
	switch {
	case !ok, s.root.resolve(ref) == nil:
		return refuse(at, "$ref %s is not a place in the schema", clip(ref, 100))
	case len(tokens) == 0:
		s.link("")
		n.set("$ref", word("#"))
		return nil
	case len(tokens) != 2 || tokens[0] != "$defs" && tokens[0] != "definitions":
		return refuse(at, "$ref %s is not to a definition", clip(ref, 100))
	}
	place := jsontext.Pointer(tokens...)
	if !slices.Contains(s.used, place) {
		s.used = append(s.used, place)
	}
	s.link(place)
	n.set("$ref", refTo(tokens...))
	return nil
}

func (s *stricter) link(to string) { s.links[s.def] = append(s.links[s.def], to) }

func annotation(key string) bool {
	return key == "title" || key == "description" || key == "default"
}

// union gives each form what stands beside them.
func (s *stricter) union(n *node, at string) error {
	forms := n.get("anyOf")
	if !forms.isArray() || len(forms.items) == 0 {
		return refuse(at, "a union of nothing")
	}
	beside := object()
	for _, key := range slices.Clone(n.keys) {
		if !annotation(key) && key != "anyOf" {
			beside.set(key, n.get(key))
			n.del(key)
		}
	}
	for i, form := range forms.items {
		if len(beside.keys) > 0 {
			form = object("allOf", &node{kind: '[', items: []*node{beside.clone(), form}})
			if err := s.grow(at, beside); err != nil {
				return err
			}
			forms.items[i] = form
		}
		if err := s.schema(form, at+jsontext.Pointer("anyOf", fmt.Sprint(i)), false); err != nil {
			return err
		}
	}
	return nil
}

// grow counts values that are put in a second time.
func (s *stricter) grow(at string, n *node) error {
	if s.grown += n.size(); s.grown > maxNodes {
		return refuse(at, "the schema grows beyond %d values", maxNodes)
	}
	return nil
}

// object proves that the properties of an object are known.
func (s *stricter) object(n *node, at string, root bool) error {
	if !slices.Contains(n.types(), "object") {
		n.del("properties", "required", "additionalProperties")
		return nil
	}
	open := n.get("additionalProperties")
	props := n.get("properties")
	switch {
	case open != nil && !open.isFalse():
		return refuse(at, "an object with any keys")
	case props == nil && (root || open != nil):
		props = object()
		n.set("properties", props)
	case !props.isObject(), len(props.keys) == 0 && open == nil && !root:
		return refuse(at, "an object with any keys")
	}
	for _, name := range n.get("required").strings() {
		if !props.has(name) {
			return refuse(at, "requires %q, which it does not describe", clip(name, 64))
		}
	}
	for i, name := range props.keys {
		if err := s.schema(props.items[i], at+jsontext.Pointer("properties", name), false); err != nil {
			return err
		}
	}
	return nil
}

func (s *stricter) array(n *node, at string) error {
	if !slices.Contains(n.types(), "array") {
		n.del("items")
		return nil
	}
	if !n.has("items") {
		return refuse(at, "an array of anything")
	}
	return s.schema(n.get("items"), at+"/items", false)
}
