package export

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// node is a JSON value that keeps the order of keys and the text of scalars.
type node struct {
	kind  byte     // '{', '[', or 0 for a scalar
	raw   string   // a scalar's text
	keys  []string // an object's
	items []*node  // an object's values, or an array's items
}

// parse reads a text that passed jsontext.Check.
func parse(text []byte) *node {
	p := parser{text: text}
	return p.value()
}

type parser struct {
	text []byte
	at   int
}

func (p *parser) peek() byte {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			p.at++
		default:
			return c
		}
	}
	return 0
}

func (p *parser) value() *node {
	switch c := p.peek(); c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		return &node{raw: p.str()}
	}
	return &node{raw: p.word()}
}

func (p *parser) object() *node {
	n := &node{kind: '{'}
	for p.at++; p.peek() == '"'; {
		n.keys = append(n.keys, jsontext.Unquote([]byte(p.str())))
		n.items = append(n.items, p.value())
	}
	p.at++
	return n
}

func (p *parser) array() *node {
	n := &node{kind: '['}
	for p.at++; ; {
		if c := p.peek(); c == ']' || c == 0 {
			p.at++
			return n
		}
		n.items = append(n.items, p.value())
	}
}

func (p *parser) str() string {
	start := p.at
	for p.at++; p.at < len(p.text) && p.text[p.at] != '"'; p.at++ {
		if p.text[p.at] == '\\' {
			p.at++
		}
	}
	p.at = min(p.at+1, len(p.text))
	return string(p.text[start:p.at])
}

func (p *parser) word() string {
	start := p.at
	for p.at++; p.at < len(p.text) && strings.IndexByte(" \t\n\r,:]}", p.text[p.at]) < 0; {
		p.at++
	}
	p.at = min(p.at, len(p.text))
	return string(p.text[min(start, p.at):p.at])
}

// text writes the value, compactly and in its order.
func (n *node) text() json.RawMessage { return n.append(nil) }

func (n *node) append(b []byte) []byte {
	switch n.kind {
	case '{':
		b = append(b, '{')
		for i, key := range n.keys {
			b = comma(b, i)
			b = append(appendString(b, key), ':')
			b = n.items[i].append(b)
		}
		return append(b, '}')
	case '[':
		b = append(b, '[')
		for i, item := range n.items {
			b = item.append(comma(b, i))
		}
		return append(b, ']')
	}
	return append(b, n.raw...)
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) //nolint:errchkjson // a string always has a JSON form
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

func object(pairs ...any) *node {
	n := &node{kind: '{'}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, _ := pairs[i].(string)
		n.set(key, toNode(pairs[i+1]))
	}
	return n
}

func toNode(v any) *node {
	switch v := v.(type) {
	case *node:
		return v
	case string:
		return word(v)
	case []string:
		return words(v)
	case bool:
		return boolean(v)
	}
	return &node{raw: "null"}
}

func word(s string) *node { return &node{raw: string(appendString(nil, s))} }

func words(list []string) *node {
	n := &node{kind: '['}
	for _, s := range list {
		n.items = append(n.items, word(s))
	}
	return n
}

func boolean(v bool) *node {
	if v {
		return &node{raw: "true"}
	}
	return &node{raw: "false"}
}

func null() *node { return &node{raw: "null"} }

func (n *node) isObject() bool { return n != nil && n.kind == '{' }
func (n *node) isArray() bool  { return n != nil && n.kind == '[' }
func (n *node) isNull() bool   { return n != nil && n.raw == "null" }
func (n *node) isTrue() bool   { return n != nil && n.raw == "true" }
func (n *node) isFalse() bool  { return n != nil && n.raw == "false" }
func (n *node) isString() bool { return n != nil && n.raw != "" && n.raw[0] == '"' }

func (n *node) isNumber() bool {
	return n != nil && n.raw != "" && (n.raw[0] == '-' || '0' <= n.raw[0] && n.raw[0] <= '9')
}

// str gives a string's value; "" for anything else.
func (n *node) str() string {
	if !n.isString() {
		return ""
	}
	return jsontext.Unquote([]byte(n.raw))
}

// strings gives the strings of an array.
func (n *node) strings() []string {
	var out []string
	if n.isArray() {
		for _, item := range n.items {
			if item.isString() {
				out = append(out, item.str())
			}
		}
	}
	return out
}

func (n *node) index(key string) int {
	if !n.isObject() {
		return -1
	}
	return slices.Index(n.keys, key)
}

// get gives a member, or nil.
func (n *node) get(key string) *node {
	if i := n.index(key); i >= 0 {
		return n.items[i]
	}
	return nil
}

func (n *node) has(key string) bool { return n.index(key) >= 0 }

// set replaces a member in its place, or adds it at the end.
func (n *node) set(key string, value *node) {
	if i := n.index(key); i >= 0 {
		n.items[i] = value
		return
	}
	n.keys, n.items = append(n.keys, key), append(n.items, value)
}

// before puts a member ahead of all others.
func (n *node) before(key string, value *node) {
	n.del(key)
	n.keys, n.items = slices.Insert(n.keys, 0, key), slices.Insert(n.items, 0, value)
}

func (n *node) del(keys ...string) {
	for _, key := range keys {
		if i := n.index(key); i >= 0 {
			n.keys, n.items = slices.Delete(n.keys, i, i+1), slices.Delete(n.items, i, i+1)
		}
	}
}

func (n *node) clone() *node {
	c := &node{kind: n.kind, raw: n.raw, keys: slices.Clone(n.keys)}
	if n.items != nil {
		c.items = make([]*node, len(n.items))
	}
	for i, item := range n.items {
		c.items[i] = item.clone()
	}
	return c
}

// size is how many values there are.
func (n *node) size() int {
	count := 1
	for _, item := range n.items {
		count += item.size()
	}
	return count
}

func same(a, b *node) bool { return bytes.Equal(a.text(), b.text()) }
