package export

import (
	"slices"
)

// merge puts what allOf says, and at the root what $ref says, into n itself.
func (s *stricter) merge(n *node, at string, root bool) error {
	list := n.get("allOf")
	if list != nil && !list.isArray() {
		return refuse(at, "allOf is no list")
	}
	parts := slices.Clone(parts(n, "allOf"))
	ref := n.get("$ref")
	switch {
	case ref == nil && list == nil, ref != nil && len(parts) == 0 && !root:
		n.del("allOf")
		return nil
	case ref == nil && !root && len(parts) == 1 && len(parts[0].keys) == 1 && parts[0].has("$ref") && onlyWords(n):
		n.del("allOf")
		n.set("$ref", parts[0].get("$ref"))
		return nil
	case ref != nil:
		parts = slices.Insert(parts, 0, object("$ref", ref))
	}
	n.del("allOf", "$ref")
	for _, part := range parts {
		if err := s.mergePart(n, part, at); err != nil {
			return err
		}
	}
	return nil
}

func onlyWords(n *node) bool {
	return !slices.ContainsFunc(n.keys, func(key string) bool { return key != "allOf" && !annotation(key) })
}

func (s *stricter) mergePart(n, part *node, at string) error {
	if part.isTrue() {
		return nil
	}
	if !part.isObject() {
		return refuse(at, "allOf excludes every value")
	}
	if err := s.grow(at, part); err != nil {
		return err
	}
	part = part.clone()
	ref, all := part.get("$ref"), parts(part, "allOf")
	part.del("$ref", "allOf", "$defs", "definitions")
	if ref != nil {
		target := s.root.resolve(ref.str())
		if target == nil {
			return refuse(at, "$ref %s is not a place in the schema", clip(ref.str(), 100))
		}
		all = slices.Insert(slices.Clone(all), 0, target)
	}
	if err := mergeInto(n, part, at); err != nil {
		return err
	}
	for _, sub := range all {
		if err := s.mergePart(n, sub, at); err != nil {
			return err
		}
	}
	return nil
}

// mergeInto makes n say what part says too.
func mergeInto(n, part *node, at string) error {
	if err := closedApart(n, part, at); err != nil {
		return err
	}
	for i, key := range part.keys {
		value := part.items[i]
		mine := n.get(key)
		switch {
		case mine == nil:
			n.set(key, value)
		case annotation(key), slices.Contains(silent, key), same(mine, value):
		case key == "properties" && mine.isObject() && value.isObject():
			mergeProperties(mine, value)
		case key == "required":
			mergeRequired(mine, value)
		case key == "type":
			if err := mergeTypes(n, part, at); err != nil {
				return err
			}
		default:
			return refuse(at, "allOf says %s twice", key)
		}
	}
	return nil
}

// closedApart refuses objects of which one excludes properties of the other.
func closedApart(n, part *node, at string) error {
	for _, pair := range [][2]*node{{n, part}, {part, n}} {
		if !pair[0].get("additionalProperties").isFalse() && !pair[0].get("unevaluatedProperties").isFalse() {
			continue
		}
		if props := pair[1].get("properties"); props.isObject() {
			for _, key := range props.keys {
				if !pair[0].get("properties").has(key) {
					return refuse(at, "allOf both describes and excludes %q", clip(key, 64))
				}
			}
		}
	}
	return nil
}

func mergeProperties(mine, more *node) {
	for i, key := range more.keys {
		value := more.items[i]
		old := mine.get(key)
		switch {
		case old == nil:
			mine.set(key, value)
		case !same(old, value):
			mine.set(key, object("allOf", &node{kind: '[', items: []*node{old, value}}))
		}
	}
}

func mergeRequired(mine, more *node) {
	have := mine.strings()
	for _, name := range more.strings() {
		if !slices.Contains(have, name) {
			mine.items = append(mine.items, word(name))
		}
	}
}

func mergeTypes(n, part *node, at string) error {
	var out []string
	theirs := part.types()
	for _, t := range n.types() {
		switch {
		case slices.Contains(theirs, t), t == "integer" && slices.Contains(theirs, "number"):
			out = append(out, t)
		case t == "number" && slices.Contains(theirs, "integer"):
			out = append(out, "integer")
		}
	}
	if len(out) == 0 {
		return refuse(at, "allOf excludes every type")
	}
	n.set("type", typeNode(out))
	return nil
}

// typeNode writes one type as a word, several as a list.
func typeNode(types []string) *node {
	if len(types) == 1 {
		return word(types[0])
	}
	return words(types)
}
