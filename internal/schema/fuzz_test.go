package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

// FuzzCompile proves that no schema text panics, and that what compiles can
// validate.
func FuzzCompile(f *testing.F) {
	for _, s := range append(fuzzed(),
		`{"$ref":"file:///etc/passwd"}`, `{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","properties":{"a":{"$ref":"#/definitions/b"}}}`,
		`{"$id":"a:b","$anchor":"c","$dynamicAnchor":"d","$dynamicRef":"#d","$recursiveRef":"#"}`, `{"pattern":"\\u00e9(?=x)"}`,
		`{"items":[{}],"additionalItems":false,"exclusiveMinimum":true,"minimum":1}`, `{"properties":{"%25~0/":{"$ref":"#/properties/%2525~00~1"}}}`,
	) {
		f.Add([]byte(s), []byte(`{"a":[1,"x",null],"b":{}}`))
	}
	f.Fuzz(func(t *testing.T, text, args []byte) {
		s, err := schema.Compile(text)
		if err != nil {
			proper(t, err)
			return
		}
		_ = s.ForArguments()
		proper(t, s.Validate(args))
		proper(t, s.ValidateOutput(args))
	})
}

// proper proves that an error is one of the mesh and bounded.
func proper(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var e *frames.Error
	if !errors.As(err, &e) || !e.Code.Valid() || e.Code == frames.CodeInternal {
		t.Fatalf("%#v", err)
	}
	if len(e.Issues) > schema.MaxIssues || len(e.ForModel()) > 8<<10 || strings.Count(e.LLMMessage, "\n") > schema.MaxIssues+2 {
		t.Fatalf("%d issues, %d bytes: %s", len(e.Issues), len(e.ForModel()), e.ForModel())
	}
}

// fuzzed are schemas that use every keyword that is treated specially.
func fuzzed() []string {
	return []string{
		readFile,
		`{"propertyNames":{"pattern":"^[a-c]","maxLength":3},"additionalProperties":{"enum":[0,1,2.5,"a","b",null,true,[1],{"a":1},-0.0,1e2]}}`,
		`{"patternProperties":{"^a":{"type":"integer"},"b$":{"multipleOf":0.5}},"minProperties":1,"unevaluatedProperties":false,"allOf":[{"properties":{"c":{}}}]}`,
		`{"properties":{"a":{"oneOf":[{"type":"string"},{"const":1},{"items":{"$ref":"#"}}]},"b":{"contains":{"type":"string"},"uniqueItems":true}},"dependentRequired":{"a":["b"]}}`,
		`{"anyOf":[{"required":["a"],"additionalProperties":{"$ref":"#"}},{"not":{"required":["a"]}}],"if":{"required":["b"]},"then":{"maxProperties":2},"else":{"minProperties":0}}`,
	}
}

// FuzzValidate proves that what guards the validator does not change its
// verdicts: the library alone says the same.
func FuzzValidate(f *testing.F) {
	texts := fuzzed()
	ours, plain := make([]*schema.Schema, len(texts)), make([]*jsonschema.Schema, len(texts))
	for i, text := range texts {
		ours[i], plain[i] = mustCompile(f, text), library(f, text)
	}
	for _, s := range []string{
		`{"path":"a","offset":1.0,"mode":"head"}`, `{"a":100,"b":2.50,"c":0,"abcd":1}`, `{"a":1,"b":["x","y","x"],"c":{"a":1}}`,
		`{"a":{"a":{"a":{}}}}`, `{"ab":1,"b":0.5}`, `{"a":1e2,"b":[1,1.0]}`, `{"a":[{"a":1}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		for i, s := range ours {
			err := s.Validate(args)
			proper(t, err)
			var e *frames.Error
			if errors.As(err, &e) && e.Reason != "" {
				return
			}
			value, decodeErr := jsonschema.UnmarshalJSON(bytes.NewReader(args))
			if _, ok := value.(map[string]any); decodeErr != nil || !ok {
				continue
			}
			if want := plain[i].Validate(value); (want == nil) != (err == nil) {
				t.Fatalf("schema %d, %s: %v, the library alone: %v", i, args, err, want)
			}
		}
	})
}

func library(t testing.TB, text string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("test:///s", doc); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("test:///s")
}

type fuzzTarget struct {
	A int            `json:"a"`
	B []float64      `json:"b"`
	C map[string]any `json:"c"`
	D *fuzzInner     `json:"d"`
	E string         `json:"e"`
	F any            `json:"f"`
}

type fuzzInner struct {
	X int8   `json:"x"`
	Y []byte `json:"y"`
}

// FuzzDecode compares with encoding/json on texts where both mean the same.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":[1.5,2],"c":{"k":[null,true]},"d":{"x":127,"y":"aGk="},"e":"ä","f":{"z":1}}`,
		`{"a":1e2,"A":5}`, `{"d":null,"b":null}`, `{"d":{"x":1000}}`, `{"b":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want fuzzTarget
		err := schema.Decode(text, &got)
		proper(t, err)
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		theirs := dec.Decode(&want)
		if err != nil || theirs != nil || bytes.ContainsAny(text, "\\") || bytes.IndexFunc(text, folds) >= 0 {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ngot  %+v\nwant %+v", text, got, want)
		}
	})
}

// folds reports letters that encoding/json may take for another case of a key.
func folds(r rune) bool { return r >= 'A' && r <= 'Z' || r > 127 }

// Whatever encoding/json writes of a value fits the schema of its type and
// decodes to the same value.
func TestValuesFitTheirTypesSchema(t *testing.T) {
	t.Parallel()
	type item struct {
		Name  string            `json:"name"`
		Count *int64            `json:"count,omitempty"`
		Tags  []string          `json:"tags,omitempty"`
		Attrs map[string]uint16 `json:"attrs,omitempty"`
	}
	type value struct {
		ID    int64   `json:"id"`
		Ratio float64 `json:"ratio"`
		On    bool    `json:"on"`
		Maybe *string `json:"maybe"`
		Data  []byte  `json:"data,omitempty"`
		Items [2]item `json:"items"`
	}
	args, err := schema.For[value]()
	if err != nil {
		t.Fatal(err)
	}
	result, err := schema.ForResult[value]()
	if err != nil {
		t.Fatal(err)
	}
	in, out := mustCompile(t, string(args)), mustCompile(t, string(result))
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Make[value]().Draw(t, "value")
		if math.IsNaN(v.Ratio) || math.IsInf(v.Ratio, 0) {
			v.Ratio = 0.5
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Validate(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := out.ValidateOutput(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var back value
		if err := schema.Decode(text, &back); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		again, _ := json.Marshal(back)
		if !bytes.Equal(text, again) {
			t.Fatalf("%s came back as %s", text, again)
		}
	})
}
