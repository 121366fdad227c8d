package export

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// maxNodes is how many values the text of a schema may hold: as many as a tool
// may declare.
const maxNodes = 6_000

// read parses the schema of a tool's arguments; a blank one has no parameters.
func read(text []byte) (*node, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return object("type", "object", "properties", object()), nil
	}
	if len(text) > frames.MaxSchema {
		return nil, frames.TooLarge("the schema", int64(len(text)), frames.MaxSchema)
	}
	if p := jsontext.Check(text, jsontext.Limits{Nodes: maxNodes}); p != nil {
		return nil, frames.NewError(frames.CodeValidationInput, "the schema is not JSON: %s", p).WithReason("bad_schema")
	}
	n := parse(text)
	switch {
	case n.isTrue():
		return object("type", "object", "properties", object()), nil
	case !n.isObject():
		return nil, frames.NewError(frames.CodeValidationInput, "the schema is no object").WithReason("bad_schema")
	}
	return n, nil
}

// modernize rewrites, in place, what older drafts said otherwise.
func modernize(root *node) {
	tuples := false
	root.each(func(n *node) {
		if tuple := n.get("items"); tuple.isArray() {
			tuples = true
			n.rename("items", "prefixItems")
			if rest := n.get("additionalItems"); rest != nil {
				n.set("items", rest)
			}
			n.del("additionalItems")
		}
		exclusive(n, "exclusiveMinimum", "minimum")
		exclusive(n, "exclusiveMaximum", "maximum")
	})
	if tuples {
		root.each(func(n *node) { n.followTuple(root) })
	}
	root.del("$schema")
}

// followTuple mends a reference into a tuple that has another name now.
func (n *node) followTuple(root *node) {
	ref := n.get("$ref")
	tokens, ok := pointer(ref.str())
	if !ok || root.resolve(ref.str()) != nil {
		return
	}
	for i := range tokens[:max(0, len(tokens)-1)] {
		if _, err := strconv.Atoi(tokens[i+1]); err == nil && tokens[i] == "items" {
			tokens[i] = "prefixItems"
		}
	}
	if to := refTo(tokens...); root.resolve(to.str()) != nil {
		n.set("$ref", to)
	}
}

func (n *node) rename(old, name string) {
	value := n.get(old)
	n.del(name)
	if i := n.index(old); i >= 0 {
		n.keys[i], n.items[i] = name, value
	}
}

func exclusive(n *node, keyword, bound string) {
	switch flag := n.get(keyword); {
	case flag.isFalse():
		n.del(keyword)
	case flag.isTrue():
		n.del(keyword)
		if n.has(bound) {
			n.rename(bound, keyword)
		}
	}
}

// complete gives every array its items, and the root its type and properties:
// several providers refuse a schema without.
func complete(root *node) {
	root.each(func(n *node) {
		if n.isObject() && slices.Contains(n.types(), "array") && !n.has("items") {
			n.set("items", object())
		}
	})
	completeRoot(root)
}

func completeRoot(root *node) {
	if !root.get("properties").isObject() {
		root.set("properties", object())
	}
	if t := root.get("type"); !t.isString() || t.str() != "object" {
		root.before("type", word("object"))
	}
}
