package export

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// Where a keyword holds schemas.
const (
	holdsOne  = iota + 1 // a schema
	holdsList            // a list of schemas
	holdsMap             // schemas by name
)

func holds(keyword string) int {
	switch keyword {
	case "items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains",
		"propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema":
		return holdsOne
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return holdsList
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
		return holdsMap
	}
	return 0
}

// children calls visit for each schema directly in n.
func (n *node) children(visit func(*node)) {
	if !n.isObject() {
		return
	}
	for i, key := range n.keys {
		value := n.items[i]
		switch h := holds(key); {
		case h == holdsMap && value.isObject(), h == holdsList && value.isArray():
			for _, sub := range value.items {
				visit(sub)
			}
		case h == holdsOne && value.isArray(): // the tuple of older drafts
			for _, sub := range value.items {
				visit(sub)
			}
		case h == holdsOne:
			visit(value)
		}
	}
}

// each calls visit for n and every schema below it, parents first.
func (n *node) each(visit func(*node)) {
	visit(n)
	n.children(func(sub *node) { sub.each(visit) })
}

// resolve finds what a reference inside the text points to; nil if it points
// elsewhere, or nowhere.
func (n *node) resolve(ref string) *node {
	tokens, ok := pointer(ref)
	if !ok {
		return nil
	}
	return n.follow(tokens)
}

func (n *node) follow(tokens []string) *node {
	at := n
	for _, token := range tokens {
		switch {
		case at.isObject():
			at = at.get(token)
		case at.isArray():
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at.items) {
				return nil
			}
			at = at.items[i]
		default:
			return nil
		}
	}
	return at
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// pointer gives the tokens of a reference "#/a/b".
func pointer(ref string) ([]string, bool) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	if plain, err := url.PathUnescape(fragment); err == nil {
		fragment = plain
	}
	if fragment == "" {
		return nil, true
	}
	if fragment[0] != '/' {
		return nil, false // an anchor
	}
	return tokensOf(fragment), true
}

// tokensOf gives the tokens of a JSON Pointer other than the root's.
func tokensOf(path string) []string {
	tokens := strings.Split(path[1:], "/")
	for i := range tokens {
		tokens[i] = unescaper.Replace(tokens[i])
	}
	return tokens
}

// refTo writes the reference to a place.
func refTo(tokens ...string) *node {
	return word("#" + (&url.URL{Fragment: jsontext.Pointer(tokens...)}).EscapedFragment())
}

// types gives the type words of a schema; nil if it names none.
func (n *node) types() []string {
	t := n.get("type")
	if t.isString() {
		return []string{t.str()}
	}
	return t.strings()
}
