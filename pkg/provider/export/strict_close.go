package export

import (
	"slices"
)

// close gives the schema with closed objects. An optional property becomes one
// that is required and may be null, if the dialect wants that.
func (s *stricter) close(n *node) *node {
	out := n.clone()
	for _, key := range []string{"$defs", "definitions"} {
		if defs := n.get(key); defs.isObject() {
			out.set(key, s.closeAll(defs))
		}
	}
	if forms := n.get("anyOf"); forms.isArray() {
		out.set("anyOf", s.closeAll(forms))
	}
	if items := n.get("items"); items.isObject() {
		out.set("items", s.close(items))
	}
	if props := n.get("properties"); props.isObject() {
		s.closeObject(n, out, props)
	}
	return out
}

// closeAll closes the schemas of a list or a map.
func (s *stricter) closeAll(n *node) *node {
	out := &node{kind: n.kind, keys: slices.Clone(n.keys)}
	for _, item := range n.items {
		out.items = append(out.items, s.close(item))
	}
	return out
}

func (s *stricter) closeObject(n, out, props *node) {
	closed := s.closeAll(props)
	required := n.get("required").strings()
	if s.nullable {
		for i, name := range props.keys {
			if !slices.Contains(required, name) && !s.nulls.fit(props.items[i]) {
				closed.items[i] = nullable(closed.items[i])
			}
		}
		required = props.keys
	}
	out.set("properties", closed)
	out.set("required", words(required))
	out.set("additionalProperties", boolean(false))
}

// nulls knows which plain schemas take null.
type nulls struct {
	root  *node
	known map[*node]bool
}

func newNulls(root *node) nulls { return nulls{root: root, known: map[*node]bool{}} }

func (k nulls) fit(n *node) bool {
	fits, ok := k.known[n]
	if !ok {
		fits = k.reach(n, map[*node]bool{})
		k.known[n] = fits
	}
	return fits
}

// reach looks at each schema that n leads to by references and unions, once.
func (k nulls) reach(n *node, seen map[*node]bool) bool {
	if n == nil || seen[n] {
		return false
	}
	seen[n] = true
	if ref := n.get("$ref"); ref != nil {
		return k.reach(k.root.resolve(ref.str()), seen)
	}
	if forms := n.get("anyOf"); forms != nil {
		return slices.ContainsFunc(forms.items, func(form *node) bool { return k.reach(form, seen) })
	}
	return slices.Contains(n.types(), "null")
}

// nullable gives a schema that takes null too.
func nullable(n *node) *node {
	switch {
	case n.has("$ref"):
		out := object("anyOf", &node{kind: '[', items: []*node{object("$ref", n.get("$ref")), object("type", "null")}})
		for _, key := range []string{"default", "description", "title"} {
			if text := n.get(key); text != nil {
				out.before(key, text)
			}
		}
		return out
	case n.has("anyOf"):
		forms := n.get("anyOf")
		forms.items = append(forms.items, object("type", "null"))
		return n
	}
	n.set("type", words(append(n.types(), "null")))
	if value := n.get("const"); value != nil {
		n.rename("const", "enum")
		n.set("enum", &node{kind: '[', items: []*node{value}})
	}
	if list := n.get("enum"); list.isArray() {
		list.items = append(list.items, null())
	}
	return n
}

// check holds a closed schema to the limits.
func (l limits) check(n *node) error {
	m := measure{limits: l}
	m.schema(n, 0)
	for _, c := range []struct {
		what      string
		got, most int
	}{
		{"properties", m.properties, l.properties}, {"optional properties", m.optional, l.optional},
		{"levels", m.depth, l.depth}, {"values in enums", m.enum, l.enum},
		{"characters of names and constants", m.text, l.text}, {"characters in one long enum", m.longEnumText, l.longEnumText},
	} {
		if c.most > 0 && c.got > c.most {
			return refuse("", "%d %s, more than the limit of %d", c.got, c.what, c.most)
		}
	}
	return nil
}

// measure counts what limits bound.
type measure struct {
	limits
	properties, optional, depth, enum, text, longEnumText int
}

func (m *measure) schema(n *node, depth int) {
	if props := n.get("properties"); props.isObject() {
		depth++
		m.properties += len(props.keys)
		m.optional += len(props.keys) - len(n.get("required").strings())
		for _, key := range props.keys {
			m.text += len(key)
		}
	}
	if n.has("items") {
		depth++
	}
	m.depth = max(m.depth, depth)
	m.constants(n)
	for _, key := range []string{"$defs", "definitions"} {
		if defs := n.get(key); defs.isObject() {
			for i, name := range defs.keys {
				m.text += len(name)
				m.schema(defs.items[i], 0)
			}
		}
	}
	for _, list := range []*node{n.get("properties"), n.get("anyOf")} {
		if list != nil {
			for _, sub := range list.items {
				m.schema(sub, depth)
			}
		}
	}
	if items := n.get("items"); items != nil {
		m.schema(items, depth)
	}
}

func (m *measure) constants(n *node) {
	values, _ := listedValues(n)
	size := 0
	for _, v := range values {
		size += len(v.raw)
	}
	m.enum += len(values)
	m.text += size
	if len(values) > m.longEnum {
		m.longEnumText = max(m.longEnumText, size)
	}
}
