package scripted

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/weavebus/weavebus/internal/yamltext"
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
		text, ok := yamltext.Scalar(item)
		if !ok {
			return yamltext.At(item, "a text or a list of texts should be here")
		}
		*c = append(*c, text)
	}
	return nil
}

// span is a duration: 50ms, 2m.
type span time.Duration

// UnmarshalYAML reads what time.ParseDuration reads.
func (s *span) UnmarshalYAML(node ast.Node) error {
	text, _ := yamltext.Scalar(node)
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return yamltext.At(node, "a duration such as 50ms should be here")
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
	word, _ := yamltext.Scalar(node)
	if !frames.Code(word).Valid() {
		return yamltext.At(node, fmt.Sprintf("there is no error code %q", bounded(word, 50)))
	}
	*c = code(word)
	return nil
}

func oneOf[T ~string](node ast.Node, to *T, words ...T) error {
	word, _ := yamltext.Scalar(node)
	if !slices.Contains(words, T(word)) {
		return yamltext.At(node, fmt.Sprintf("%q is none of %v", bounded(word, 50), words))
	}
	*to = T(word)
	return nil
}

// object is a YAML mapping as JSON text, in its order, with numbers as they
// are written.
type object string

// UnmarshalYAML refuses anything but a mapping.
func (o *object) UnmarshalYAML(node ast.Node) error {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	default:
		return yamltext.At(node, "arguments are not a mapping")
	}
	text, err := yamltext.Node(node)
	*o = object(text)
	return err
}
