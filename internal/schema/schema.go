package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// MaxNodes is how many values the text of a schema may hold.
const MaxNodes = 6_000

// Schema is a compiled JSON Schema. It does not change and may be shared
// between goroutines.
type Schema struct {
	tool   string
	text   []byte
	digest [sha256.Size]byte
	root   *jsonschema.Schema
	nodes  map[string]*jsonschema.Schema
	work   *meter

	takesObject bool
	defaults    bool // some node has one
}

// Compile compiles the text of a schema; a blank text means
// [frames.DefaultSchema]. Without
// "$schema" it is draft 2020-12, in which the array form of "items" and the
// boolean exclusiveMinimum and exclusiveMaximum of older drafts are read as
// their authors meant them. References stay inside the text.
//
// The error is TOO_LARGE for a text over [frames.MaxSchema], else VALIDATION_INPUT with
// the reason bad_schema and an issue whose path points into the schema.
func Compile(text []byte) (*Schema, error) {
	text = declared(text)
	if err := checkText(text); err != nil {
		return nil, err
	}
	c := compilation{work: &meter{}, patterns: map[string]*pattern{}}
	root, err := c.compile(text)
	if err != nil {
		return nil, err
	}
	return &Schema{
		text: text, digest: sha256.Sum256(text),
		root: root, nodes: c.nodes, work: c.work, takesObject: c.takesObject, defaults: hasDefaults(c.nodes),
	}, nil
}

// declared gives a copy of the text, or the default for a blank one.
func declared(text []byte) []byte {
	if len(bytes.TrimSpace(text)) == 0 {
		return []byte(frames.DefaultSchema)
	}
	return bytes.Clone(text)
}

func checkText(text []byte) error {
	if len(text) > frames.MaxSchema {
		return frames.NewError(frames.CodeTooLarge,
			"the schema has %d bytes, more than the limit of %d", len(text), frames.MaxSchema).WithReason(reasonBadSchema)
	}
	if p := jsontext.Check(text, jsontext.Limits{Nodes: MaxNodes}); p != nil {
		return refused(problemIssue(text, p), nil)
	}
	return nil
}

// Named gives the same schema with the name of its tool in the texts that its
// errors hold for models.
func (s *Schema) Named(tool string) *Schema {
	c := *s
	c.tool = tool
	return &c
}

// Text gives the schema as it was declared, or the default. It is not to be changed.
func (s *Schema) Text() []byte { return s.text }

// Digest gives the SHA-256 of Text in hexadecimal.
func (s *Schema) Digest() string { return hex.EncodeToString(s.digest[:]) }

// Validate holds a call's arguments to the schema: one JSON object within
// jsontext's default limits that fits. The error is VALIDATION_INPUT with at
// most [MaxIssues] issues and a text for the model.
func (s *Schema) Validate(args []byte) error {
	return s.validate(args, inputReport)
}

// ValidateOutput holds a tool's result to the schema, of any JSON type. The
// error is VALIDATION_OUTPUT, whose text for the model says that the tool is at
// fault.
func (s *Schema) ValidateOutput(result []byte) error {
	return s.validate(result, outputReport)
}

// CheckOutput holds the result of a tool that declares no output schema to what
// JSON is; a blank text is no result. The error is VALIDATION_OUTPUT.
func CheckOutput(tool string, result []byte) error {
	r := outputReport
	r.tool = tool
	if p := jsontext.Check(result, jsontext.Limits{Nodes: -1}); p != nil {
		return r.problem(result, p)
	}
	return nil
}

func (s *Schema) validate(text []byte, r report) error {
	r.tool = s.tool
	if p := jsontext.Check(text, jsontext.Limits{}); p != nil {
		return r.problem(text, p)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return frames.NewError(frames.CodeInternal, "checked JSON does not decode: %w", err)
	}
	if _, ok := value.(map[string]any); !ok && r.objectOnly {
		return r.error([]frames.Issue{notObject(value)}, 0)
	}
	return s.check(value, r)
}

func (s *Schema) check(value any, r report) error {
	var failed error
	done, err := s.work.run(func() { failed = s.root.Validate(value) })
	switch {
	case err != nil:
		return err
	case !done:
		return r.error([]frames.Issue{tooMuchWork()}, 0)
	case failed == nil:
		return nil
	}
	return r.error(s.issues(failed, value))
}
