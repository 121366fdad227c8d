package export

import (
	"slices"
	"strings"
)

var allTypes = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// kinds makes the schema name its types, and its constants fit them.
func (s *stricter) kinds(n *node, at string) error {
	types := n.types()
	for _, t := range types {
		if !slices.Contains(allTypes, t) {
			return refuse(at, "%q is no type", clip(t, 64))
		}
	}
	values, listed := listedValues(n)
	if listed {
		return listedKinds(n, at, types, values)
	}
	if len(types) == 0 {
		types = impliedTypes(n)
	}
	if len(types) == 0 {
		return refuse(at, "takes any value")
	}
	setType(n, types)
	return nil
}

// setType puts the type first where there was none.
func setType(n *node, types []string) {
	if n.has("type") {
		n.set("type", typeNode(types))
		return
	}
	n.before("type", typeNode(types))
}

func impliedTypes(n *node) []string {
	switch {
	case n.has("properties"), n.has("additionalProperties"), n.has("required"):
		return []string{"object"}
	case n.has("items"):
		return []string{"array"}
	}
	return nil
}

// listedValues gives the values of enum or const.
func listedValues(n *node) ([]*node, bool) {
	if value := n.get("const"); value != nil {
		return []*node{value}, true
	}
	if list := n.get("enum"); list.isArray() {
		return list.items, true
	}
	return nil, false
}

func listedKinds(n *node, at string, types []string, values []*node) error {
	var fit []*node
	var used []string
	for _, v := range values {
		t := typeOf(v)
		if t == "object" || t == "array" {
			return refuse(at, "%s lists an %s", listKeyword(n), t)
		}
		if len(types) > 0 {
			if t = fitting(types, v, t); t == "" {
				continue
			}
		}
		fit = append(fit, v)
		if !slices.Contains(used, t) {
			used = append(used, t)
		}
	}
	if len(fit) == 0 || n.has("const") && n.has("enum") {
		return refuse(at, "%s lists no value that fits", listKeyword(n))
	}
	setType(n, used)
	if n.has("enum") {
		n.set("enum", &node{kind: '[', items: fit})
	}
	return nil
}

func listKeyword(n *node) string {
	if n.has("const") {
		return "const"
	}
	return "enum"
}

// fitting gives the one of types that a value has; "" if it has none of them.
func fitting(types []string, v *node, t string) string {
	switch {
	case slices.Contains(types, t):
		return t
	case t == "integer" && slices.Contains(types, "number"):
		return "number"
	case t == "number" && slices.Contains(types, "integer") && whole(v.raw):
		return "integer"
	}
	return ""
}

// typeOf gives the type word of a value.
func typeOf(n *node) string {
	switch {
	case n.isObject():
		return "object"
	case n.isArray():
		return "array"
	case n.isString():
		return "string"
	case n.isNull():
		return "null"
	case n.isTrue(), n.isFalse():
		return "boolean"
	case strings.ContainsAny(n.raw, ".eE"):
		return "number"
	}
	return "integer"
}
