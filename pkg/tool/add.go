package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Add adds a tool that is a function of a struct, or of a map. Its schema is
// that of the Go type In: fields by their json names, required unless marked
// omitempty or omitzero, described by their jsonschema tags, and no others; an enum
// or a bound wants an [InputSchema]. The
// result is the value in JSON; an Out of struct{} is {}, and a [Result] says
// more than its value. Where fn gives an error its value is dropped: see
// [Result] to keep it.
func Add[In, Out any](s *Set, name string, fn func(ctx context.Context, in In) (Out, error), opts ...Option) error {
	decl := frames.Declaration{Name: name}
	for _, set := range opts {
		if err := set(&decl); err != nil {
			return err
		}
	}
	if err := deriveSchemas[In, Out](&decl); err != nil {
		return err
	}
	if fn == nil {
		return s.AddRaw(decl, nil)
	}
	return s.AddRaw(decl, func(ctx context.Context, c *Call) (*frames.ToolResult, error) {
		in, err := Decode[In](c)
		if err != nil {
			return nil, err
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return resultOf(out)
	})
}

// SchemaFor gives the JSON Schema of an input type as [Add] derives it.
func SchemaFor[T any]() (json.RawMessage, error) {
	return schema.For[T]()
}

// Decode reads a call's arguments into a Go value. The error is
// VALIDATION_INPUT for arguments that do not fit the type.
func Decode[T any](c *Call) (T, error) {
	var v T
	err := schema.Decode(c.Arguments, &v)
	return v, err
}

func deriveSchemas[In, Out any](d *frames.Declaration) error {
	var err error
	if k := reflect.TypeFor[In]().Kind(); k != reflect.Struct && k != reflect.Map {
		return frames.NewError(frames.CodeValidationInput,
			"input type of tool %s: arguments are objects, want a struct or a map, not %v", d.Name, reflect.TypeFor[In]())
	}
	if d.Schema == nil {
		if d.Schema, err = SchemaFor[In](); err != nil {
			return underivable(d.Name, "input", err)
		}
	}
	if d.OutputSchema == nil {
		if d.OutputSchema, err = outputSchema[Out](); err != nil {
			return underivable(d.Name, "output", err)
		}
	}
	if len(d.OutputSchema) == 0 {
		d.OutputSchema = nil
	}
	return nil
}

func underivable(name, side string, err error) error {
	return frames.NewError(frames.CodeValidationInput, "%s type of tool %s has no JSON Schema: %w", side, name, err)
}

// outputSchema is the schema of a struct that says in its fields how it is
// encoded; nil for all else.
func outputSchema[T any]() (json.RawMessage, error) {
	var zero T
	if r, ok := any(zero).(richResult); ok {
		return r.outputSchema()
	}
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct || t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil, nil
	}
	return schema.ForResult[T]()
}

// Result is an output that says more than its value: return it from a function
// given to [Add].
type Result[T any] struct {
	// Value is the result for programs, and for the model where Parts is empty.
	Value T
	// Parts are what the model sees instead.
	Parts []frames.Part
	// Details are for people's screens, never for a model; nil for none.
	Details any
	// Terminate is "", frames.TerminateRound or frames.TerminateNow.
	Terminate string
	// Usage is the tool's own use of models; nil for none.
	Usage any
	// Err makes it an error result that the value stands beside, such as a
	// command's output beside its exit status; nil for none.
	Err error
}

// richResult is any [Result].
type richResult interface {
	outputSchema() (json.RawMessage, error)
	toolResult() (*frames.ToolResult, error)
}

var _ richResult = Result[struct{}]{}

func (Result[T]) outputSchema() (json.RawMessage, error) { return outputSchema[T]() }

func (r Result[T]) toolResult() (*frames.ToolResult, error) {
	out := &frames.ToolResult{Parts: r.Parts, Terminate: r.Terminate}
	if r.Err != nil {
		out.Err = said(r.Err)
	}
	for _, field := range []struct {
		to    *json.RawMessage
		value any
	}{{&out.Result, r.Value}, {&out.Details, r.Details}, {&out.Usage, r.Usage}} {
		if field.value == nil && field.to != &out.Result {
			continue
		}
		var err error
		if *field.to, err = encode(field.value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Text makes the result of a tool that gives text: a JSON string for programs,
// and the same text as it is for the model.
func Text(text string) *frames.ToolResult {
	value, err := encode(text)
	if err != nil {
		return &frames.ToolResult{Err: frames.AsError(err)}
	}
	return &frames.ToolResult{Result: value, Parts: []frames.Part{{Type: "text", Text: text}}}
}

func resultOf(out any) (*frames.ToolResult, error) {
	switch v := out.(type) {
	case richResult:
		return v.toolResult()
	case struct{}:
		return nil, nil //nolint:nilnil // no result is {}
	}
	value, err := encode(out)
	if err != nil {
		return nil, err
	}
	return &frames.ToolResult{Result: value}, nil
}

// encode gives a value as compact JSON, with <, > and & as they are.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, &unencodable{err}
	}
	return json.RawMessage(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// unencodable is a value that has no JSON form.
type unencodable struct{ cause error }

func (e *unencodable) Error() string { return e.cause.Error() }
func (e *unencodable) Unwrap() error { return e.cause }
