package schema

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weavebus/weavebus/pkg/frames"
)

// location is where the compiler believes the schema lies; nothing is there.
const location = "weavebus:///schema"

// errNoLoading is why a reference that leaves the text fails.
var errNoLoading = errors.New("schemas load nothing")

// refusingLoader opens no file and no connection.
type refusingLoader struct{}

func (refusingLoader) Load(string) (any, error) { return nil, errNoLoading }

var _ jsonschema.URLLoader = refusingLoader{}

// compilation is the state of one [Compile].
type compilation struct {
	work     *meter
	patterns map[string]*pattern
	size     int // of all patterns, in instructions
	broken   *badPattern
	nodes    map[string]*jsonschema.Schema

	takesObject bool
}

func (c *compilation) compile(text []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, refused(frames.Issue{Message: "not JSON"}, err)
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, refused(frames.Issue{
			Message: "a schema is an object or a boolean", Expected: "object or boolean", Got: preview(doc),
		}, nil)
	}
	compiler, root, err := c.attempt(doc)
	if upgrade(doc, err) {
		compiler, root, err = c.attempt(doc)
	}
	if err != nil {
		return nil, c.explain(doc, err)
	}
	c.takesObject = objectFits(root, map[*jsonschema.Schema]bool{})
	c.nodes = reach(root, anchored(compiler, doc))
	for _, node := range c.nodes {
		guard(node, c.work)
	}
	return root, nil
}

// attempt compiles doc with a fresh compiler. A panic of the library, for which
// no input is known, is an error like any other.
func (c *compilation) attempt(doc any) (compiler *jsonschema.Compiler, root *jsonschema.Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the schema compiler failed: %v", r)
		}
	}()
	compiler = jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(refusingLoader{})
	compiler.UseRegexpEngine(c.pattern)
	if err := compiler.AddResource(location, doc); err != nil {
		return nil, nil, err
	}
	root, err = compiler.Compile(location)
	return compiler, root, err
}

// anchored gives the schemas that only a $dynamicRef finds, whose links the
// compiled form does not show.
func anchored(compiler *jsonschema.Compiler, doc any) []*jsonschema.Schema {
	var found []*jsonschema.Schema
	visit(doc, nil, func(at []string, key string, _ any) {
		if key != "$dynamicAnchor" {
			return
		}
		if s, err := compiler.Compile(location + "#" + fragment(at)); err == nil {
			found = append(found, s)
		}
	})
	return found
}
