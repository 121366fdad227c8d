package schema_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

func compiled(t *testing.T, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const editsSchema = `{"type":"object","properties":{
	"edits":{"type":"array","items":{"type":"object","properties":{"old":{"type":"string"},"tags":{"type":"array"}},"required":["old"]}},
	"note":{"type":"string"}, "either":{"type":["string","array"]}, "open":{},
	"union":{"anyOf":[{"type":"array"},{"type":"null"}]}, "mode":{"anyOf":[{"const":"auto"},{"type":"object"}]},
	"short":{"anyOf":[{"type":"string","maxLength":3},{"type":"array"}]},
	"ref":{"$ref":"#/$defs/o"}, "n":{"type":"integer"}
},"$defs":{"o":{"type":"object","additionalProperties":{"type":"object"}}}}`

func TestMendNestedStrings(t *testing.T) {
	t.Parallel()
	s := compiled(t, editsSchema)
	for args, want := range map[string]string{
		`{"edits":"[{\"old\":\"a\"}]","note":"{\"keep\":\"me\"}"}`:         `{"edits":[{"old":"a"}],"note":"{\"keep\":\"me\"}"}`,
		`{"edits": [ "{\"old\":\"a\",\"tags\":\"[1]\"}" ], "open": "[1]"}`: `{"edits":[{"old":"a","tags":[1]}],"open":"[1]"}`,
		`{"edits":"\"[]\""}`:                    `{"edits":[]}`,
		`{"union":" [1.0, 9007199254740993] "}`: `{"union":[1.0, 9007199254740993]}`,
		`{"ref":"{\"a\":\"{}\"}"}`:              `{"ref":{"a":{}}}`,
		`{"edits":"[]","either":"[1]"}`:         `{"edits":[],"either":"[1]"}`,
	} {
		got, repairs, err := s.Mend([]byte(args))
		if err != nil || string(got) != want || !slices.Equal(repairs, []string{schema.RepairNested}) {
			t.Errorf("%s: %s, %v, %v", args, got, repairs, err)
		}
	}
	for _, args := range []string{
		`{"edits":"[{\"old\":1}]"}`, `{"edits":"[{\"old\":\"a\"}"}`, `{"edits":"text"}`, `{"edits":"{}"}`, `{"edits":"[1,]"}`, `{"edits":""}`,
		`{"edits":"[{\"old\":\"a\",\"old\":\"b\"}]"}`, `{"mode":"{}"}`, `{"short":"[1,2,3]"}`, `{"n":"1"}`, `{"edits":"[]","n":"x"}`, `{"n":null}`,
		`{"edits":"\"\\\"\\\\\\\"[]\\\\\\\"\\\"\""}`, `[]`, `{"edits":`,
	} {
		got, repairs, err := s.Mend([]byte(args))
		want := s.Validate([]byte(args))
		if want == nil || got != nil && err == nil || repairs != nil || cmp.Diff(frames.AsError(want).Issues, frames.AsError(err).Issues) != "" {
			t.Errorf("%s: %s, %v, %v, want %v", args, got, repairs, err, want)
		}
	}
}

// case: arg-15-defaults-nested
func TestDefaults(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"type":"object","properties":{
		"n":{"type":"integer","default":5},
		"o":{"type":"object","properties":{"env":{"type":"string","default":"dev"}}},
		"list":{"type":"array","items":{"$ref":"#/$defs/item"}}, "big":{"$ref":"#/$defs/big"}
	},"allOf":[{"properties":{"n":{"default":6},"extra":{"default":{"<":[1.0]}}}}],
	"anyOf":[{"properties":{"not":{"default":1}}},true],
	"$defs":{"item":{"properties":{"k":{"default":null},"self":{"$ref":"#/$defs/item"}}},"big":{"default":9007199254740993}}}`)
	for args, want := range map[string]string{
		`{}`:                     `{"big":9007199254740993,"extra":{"<":[1.0]},"n":5}`,
		`{"o":{},"n":1,"big":1}`: `{"o":{"env":"dev"},"n":1,"big":1,"extra":{"<":[1.0]}}`,
		`{"n":1,"big":1,"extra":1, "o" : {"env" : "x"}}`:                          `{"n":1,"big":1,"extra":1, "o" : {"env" : "x"}}`,
		`{"n":1,"big":1,"extra":1,"list":[{},{"k":1,"self":{"self":{"k":2}}},7]}`: `{"n":1,"big":1,"extra":1,"list":[{"k":null},{"k":1,"self":{"self":{"k":2},"k":null}},7]}`,
	} {
		if got := string(s.WithDefaults([]byte(args))); got != want {
			t.Errorf("%s: %s", args, got)
		}
	}
	if _, _, err := s.Mend([]byte(`{"n":null}`)); frames.CodeOf(err) != frames.CodeValidationInput || frames.AsError(err).Issues[0].Path != "/n" {
		t.Errorf("null: %v", err)
	}
}

// A default that does not fit is left out, the others are not.
//
// case: arg-15-defaults-nested
func TestDefaultsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"properties":{"n":{"type":"integer","default":"five"}}}`:                                                                                `{}`,
		`{"properties":{"n":{"type":"integer","default":"five"},"m":{"default":1},"o":{"default":{"k":2},"properties":{"k":{"type":"string"}}}}}`: `{"m":1}`,
		`{"properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"integer","default":null}}}`:                                               `{}`,
		`{"properties":{"a":{"default":1},"b":{"default":2}},"maxProperties":1}`:                                                                  `{}`,
	} {
		if got := string(compiled(t, schema).WithDefaults([]byte(`{}`))); got != want {
			t.Errorf("%s: %s", schema, got)
		}
	}
}

// A member that is required is not missed if it has a default that fits.
//
// case: arg-15-defaults-nested
func TestDefaultsOfRequiredMembers(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"properties":{"n":{"type":"integer","default":5},"l":{"type":"array","items":{"properties":{"k":{"default":"d"}},"required":["k"]}},
		"bad":{"type":"integer"}},"required":["n"]}`)
	for args, want := range map[string]string{
		`{}`:               `{"n":5}`,
		`{"l":[{}]}`:       `{"l":[{"k":"d"}],"n":5}`,
		`{"l":"[{}]"}`:     `{"l":[{"k":"d"}],"n":5}`,
		`{"bad":"x"}`:      "",
		`{"n":null}`:       "",
		`{"n":1,"l":["["]`: "",
	} {
		got, _, err := s.Mend([]byte(args))
		if string(got) != want && err == nil || (want == "") != (err != nil) {
			t.Errorf("%s: %s, %v", args, got, err)
		}
		if fit, err := s.Fit([]byte(args)); err == nil && string(fit) != want {
			t.Errorf("%s fits as %s", args, fit)
		}
	}
	bad := compiled(t, `{"properties":{"n":{"type":"integer","default":"five"}},"required":["n"]}`)
	if _, err := bad.Fit([]byte(`{}`)); frames.CodeOf(err) != frames.CodeValidationInput {
		t.Errorf("a default that does not fit: %v", err)
	}
}

// A schema that takes too much work leaves the arguments as they are.
func TestDefaultsAreBounded(t *testing.T) {
	t.Parallel()
	all := strings.TrimSuffix(strings.Repeat(`{"properties":{"a":{"default":1}}},`, 500), ",")
	s := compiled(t, `{"properties":{"l":{"items":{"allOf":[`+all+`]}}}}`)
	args := `{"l":[` + strings.TrimSuffix(strings.Repeat(`{"a":2},`, 2000), ",") + `,{}]}`
	if got := string(s.WithDefaults([]byte(args))); got != args {
		t.Errorf("filled %d bytes", len(got))
	}
}

// Arguments that fit are never touched, and what Mend gives fits.
func TestMendTouchesMisfitsOnly(t *testing.T) {
	t.Parallel()
	s := compiled(t, editsSchema)
	value := rapid.OneOf(
		rapid.SampledFrom([]any{nil, true, 1, "", "[]", "{}", "[1]", `"[]"`, `{"old":"a"}`, `[{"old":"a"}]`, []any{}, map[string]any{}}),
		rapid.SliceOf(rapid.SampledFrom([]any{"[1]", map[string]any{"old": "a", "tags": "[]"}, `{"old":"b"}`})).AsAny())
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SampledFrom([]string{"edits", "note", "either", "open", "union", "mode", "short", "ref", "n"})
		args, err := json.Marshal(rapid.MapOf(names, value).Draw(rt, "args"))
		if err != nil {
			rt.Fatal(err)
		}
		got, repairs, err := s.Mend(args)
		switch {
		case s.Validate(args) == nil:
			if err != nil || string(got) != string(args) || repairs != nil {
				rt.Fatalf("%s: %s, %v, %v", args, got, repairs, err)
			}
		case err == nil:
			if s.Validate(got) != nil || repairs == nil {
				rt.Fatalf("%s: %s, %v", args, got, repairs)
			}
		}
	})
}
