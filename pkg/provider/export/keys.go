package export

import (
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// renameProperties gives the root's properties names that fit the rule, in place,
// and returns how they are called by both sides; nil where all fit.
func renameProperties(root *node, r rule) *Names {
	props := root.get("properties")
	if !props.isObject() {
		return nil
	}
	names := mapNames(r, props.keys)
	if len(names.Changed()) == 0 {
		return nil
	}
	for i, key := range props.keys {
		props.keys[i] = names.Wire(key)
	}
	root.del("propertyNames") // it speaks of the own names
	seen := map[*node]bool{}  // a property may stand in two places
	root.each(func(n *node) {
		if !seen[n] {
			seen[n] = true
			rewriteRef(n, names)
		}
	})
	for _, keyword := range []string{"required", "dependentRequired", "dependentSchemas", "dependencies"} {
		renameIn(root.get(keyword), names)
	}
	for _, keyword := range []string{"if", "then", "else", "not"} {
		renameBranch(root.get(keyword), names)
	}
	return names
}

// renameBranch renames in a schema that speaks of the same object.
func renameBranch(n *node, names *Names) {
	if !n.isObject() {
		return
	}
	if props := n.get("properties"); props.isObject() {
		for i, key := range props.keys {
			props.keys[i] = names.Wire(key)
		}
	}
	renameIn(n.get("required"), names)
}

// renameIn renames in a list of names, and in a map by names to such lists.
func renameIn(n *node, names *Names) {
	switch {
	case n.isArray():
		for i, item := range n.items {
			if item.isString() {
				n.items[i] = word(names.Wire(item.str()))
			}
		}
	case n.isObject():
		for i, key := range n.keys {
			n.keys[i] = names.Wire(key)
			if n.items[i].isArray() {
				renameIn(n.items[i], names)
			} else {
				renameBranch(n.items[i], names)
			}
		}
	}
}

// rewriteRef follows a reference to a property that was renamed.
func rewriteRef(n *node, names *Names) {
	ref := n.get("$ref")
	if !ref.isString() {
		return
	}
	if tokens, ok := pointer(ref.str()); ok && len(tokens) > 1 && tokens[0] == "properties" {
		tokens[1] = names.Wire(tokens[1])
		n.set("$ref", refTo(tokens...))
	}
}

// renameKeys renames the keys of an object text by f. A text that is no sound
// object, or in which two keys would become one, comes back as it is.
func renameKeys(text string, f func(string) string) string {
	if jsontext.Check([]byte(text), jsontext.Limits{}) != nil {
		return text
	}
	v := parse([]byte(text))
	if !v.isObject() {
		return text
	}
	changed, seen := false, map[string]bool{}
	for i, key := range v.keys {
		name := f(key)
		if seen[name] {
			return text
		}
		seen[name] = true
		changed = changed || name != key
		v.keys[i] = name
	}
	if !changed {
		return text
	}
	return strings.TrimSpace(string(v.text()))
}
