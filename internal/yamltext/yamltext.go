// Package yamltext reads YAML as the JSON that it means: in its order, with numbers
// as they are written, and without what JSON has no word for (anchors, tags, NaN).
// It stands between the YAML reader, which panics on some texts and takes minutes
// for others, and all that reads files.
package yamltext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// JSON gives the one document of a text as JSON. The error begins with the line
// where there is one.
func JSON(data []byte) (json.RawMessage, error) {
	if line := TooDeep(data); line > 0 {
		return nil, fmt.Errorf("line %d: nested too deep", line)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc document
	err := Decode(dec, &doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && doc == nil:
		return nil, errors.New("there is nothing in it")
	case err != nil:
		return nil, errors.New(Message(err))
	}
	if err := Decode(dec, new(document)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one document")
	}
	return json.RawMessage(doc), nil
}

// document is a whole document as JSON.
type document json.RawMessage

// UnmarshalYAML takes any value.
func (d *document) UnmarshalYAML(node ast.Node) error {
	text, err := Node(node)
	*d = document(text)
	return err
}

// Decode reads the next document. The YAML reader panics on some texts that it
// cannot read, such as a tag where a list should be: that is an error here.
func Decode(dec *yaml.Decoder, v any) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("the YAML reader fails on it: %v", fault)
		}
	}()
	return dec.Decode(v)
}

// Message gives an error of the YAML reader with its line, and without the
// excerpt that the reader draws.
func Message(err error) string {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		return fmt.Sprintf("line %d: %s", at.GetToken().Position.Line, at.GetMessage())
	}
	return err.Error()
}

// TooDeep gives the line at which brackets, or list items on one line, nest
// deeper than any file that means something; 0 if none does. The YAML reader takes
// minutes for that. Brackets in texts count too.
func TooDeep(data []byte) int {
	const most = 200
	line, brackets, dashes := 1, 0, 0
	for _, c := range data {
		switch c {
		case '\n':
			line++
			dashes = 0
		case '[', '{':
			brackets++
		case ']', '}':
			brackets = max(0, brackets-1)
		case '-', '?':
			dashes++
		case ' ', '\t':
		default:
			dashes = 0
		}
		if brackets > most || dashes > most {
			return line
		}
	}
	return 0
}

// Node gives a node as JSON.
func Node(node ast.Node) (json.RawMessage, error) {
	var b bytes.Buffer
	err := appendJSON(&b, node)
	return b.Bytes(), err
}

// Scalar gives the text of a plain value, as it is written; ok is false for lists,
// mappings and null.
func Scalar(node ast.Node) (text string, ok bool) {
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

// At is an error at a node's line.
func At(node ast.Node, what string) error {
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
		return At(node, "anchors, tags, NaN and Infinity are not read here")
	}
	return nil
}

func appendObject(b *bytes.Buffer, members []*ast.MappingValueNode) error {
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		key, ok := Scalar(m.Key)
		if !ok {
			return At(m.Key, "a key that is no text")
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
