package scripted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// chunks is a text, or a list of texts.
type chunks []string

// UnmarshalYAML takes scalars too: text: 5 is "5".
func (c *chunks) UnmarshalYAML(node ast.Node) error {
	list := []ast.Node{node}
	if seq, ok := node.(*ast.SequenceNode); ok {
		list = seq.Values
	}
	*c = make(chunks, 0, len(list))
	for _, item := range list {
		text, ok := scalar(item)
		if !ok {
			return at(item, "a text or a list of texts should be here")
		}
		*c = append(*c, text)
	}
	return nil
}

// span is a duration: 50ms, 2m.
type span time.Duration

// UnmarshalYAML reads what time.ParseDuration reads.
func (s *span) UnmarshalYAML(node ast.Node) error {
	text, _ := scalar(node)
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return at(node, "a duration such as 50ms should be here")
	}
	*s = span(d)
	return nil
}

// The words of a script that come from a closed list.
type (
	count string
	after string
	stop  string
	code  string
)

// UnmarshalYAML takes all and user.
func (c *count) UnmarshalYAML(node ast.Node) error { return oneOf(node, c, "all", "user") }

// UnmarshalYAML takes error and last.
func (a *after) UnmarshalYAML(node ast.Node) error { return oneOf(node, a, "error", "last") }

// UnmarshalYAML takes the stop reasons.
func (s *stop) UnmarshalYAML(node ast.Node) error {
	return oneOf(node, s, stop(provider.StopDone), stop(provider.StopToolCalls), stop(provider.StopLength),
		stop(provider.StopContentFilter), stop(provider.StopError))
}

// UnmarshalYAML takes the codes of the protocol.
func (c *code) UnmarshalYAML(node ast.Node) error {
	word, _ := scalar(node)
	if !frames.Code(word).Valid() {
		return at(node, fmt.Sprintf("there is no error code %q", bounded(word, 50)))
	}
	*c = code(word)
	return nil
}

func oneOf[T ~string](node ast.Node, to *T, words ...T) error {
	word, _ := scalar(node)
	if !slices.Contains(words, T(word)) {
		return at(node, fmt.Sprintf("%q is none of %v", bounded(word, 50), words))
	}
	*to = T(word)
	return nil
}

func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// object is a YAML mapping as JSON text, in its order, with numbers as they
// are written.
type object string

// UnmarshalYAML refuses anything but a mapping.
func (o *object) UnmarshalYAML(node ast.Node) error {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	default:
		return at(node, "arguments are not a mapping")
	}
	var b bytes.Buffer
	err := appendJSON(&b, node)
	*o = object(b.String())
	return err
}

func at(node ast.Node, what string) error {
	return fmt.Errorf("line %d: %s", node.GetToken().Position.Line, what)
}

func appendJSON(b *bytes.Buffer, node ast.Node) error {
	switch n := node.(type) {
	case *ast.MappingNode:
		return appendObject(b, n.Values)
	case *ast.MappingValueNode:
		return appendObject(b, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		return appendArray(b, n.Values)
	case *ast.StringNode:
		return appendString(b, n)
	case *ast.LiteralNode:
		return appendText(b, n.Value.Value)
	case *ast.BoolNode:
		b.WriteString(strconv.FormatBool(n.Value))
	case *ast.NullNode:
		b.WriteString("null")
	case *ast.IntegerNode:
		appendInteger(b, n)
	case *ast.FloatNode:
		return appendFloat(b, n)
	default:
		return at(node, "anchors, tags, NaN and Infinity are not read in arguments")
	}
	return nil
}

func appendObject(b *bytes.Buffer, members []*ast.MappingValueNode) error {
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		key, ok := scalar(m.Key)
		if !ok {
			return at(m.Key, "a key that is no text")
		}
		if err := appendText(b, key); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := appendJSON(b, m.Value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func appendArray(b *bytes.Buffer, items []ast.Node) error {
	b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := appendJSON(b, item); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

// appendString writes a plain word that is a JSON number as one: the YAML
// reader takes 1e3 and integers over 64 bits for text.
func appendString(b *bytes.Buffer, n *ast.StringNode) error {
	if n.Token.Type == token.StringType && isNumber(n.Value) {
		b.WriteString(n.Value)
		return nil
	}
	return appendText(b, n.Value)
}

func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9') && json.Valid([]byte(s))
}

func appendText(b *bytes.Buffer, s string) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(s)
	b.Truncate(b.Len() - 1) // the line feed of the encoder
	return err
}

func appendInteger(b *bytes.Buffer, n *ast.IntegerNode) {
	if isNumber(n.Token.Value) {
		b.WriteString(n.Token.Value)
		return
	}
	fmt.Fprint(b, n.Value) // 0x10, 0o7, 1_000
}

func appendFloat(b *bytes.Buffer, n *ast.FloatNode) error {
	if isNumber(n.Token.Value) {
		b.WriteString(n.Token.Value)
		return nil
	}
	text, err := json.Marshal(n.Value)
	b.Write(text)
	return err
}
