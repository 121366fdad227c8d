package schema

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// reasonBadSchema is the reason of every error of [Compile] and [For].
const reasonBadSchema = "bad_schema"

// refused is the error of a schema that cannot be used; nothing to retry.
func refused(issue frames.Issue, cause error, more ...frames.Issue) error {
	issues := append([]frames.Issue{issue}, more...)
	lines := make([]string, len(issues))
	for i, issue := range issues {
		lines[i] = issueText(issue)
	}
	text := strings.Join(lines, "; ")
	e := frames.NewError(frames.CodeValidationInput, "schema refused: %s", text)
	if cause != nil {
		e = frames.NewError(frames.CodeValidationInput, "schema refused: %s%w", text, silent{cause})
	}
	return e.With(func(e *frames.Error) {
		e.Reason, e.Retryable = reasonBadSchema, false
		e.Issues = issues
	})
}

// silent keeps a cause for errors.Is and errors.As out of the text.
type silent struct{ cause error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.cause }

// explain says where and why doc does not compile.
func (c *compilation) explain(doc any, err error) error {
	if c.broken != nil {
		return refused(patternIssue(doc, c.broken), c.broken.err)
	}
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return invalidSchema(doc, invalid)
	}
	return refused(compileIssue(doc, err), err)
}

func compileIssue(doc any, err error) frames.Issue {
	switch e := err.(type) { //nolint:errorlint // the compiler does not wrap its errors
	case *jsonschema.LoadURLError:
		return loadIssue(doc, e.URL)
	case *jsonschema.JSONPointerNotFoundError:
		return refIssue(doc, e.URL, "refers to a place that the schema does not have")
	case *jsonschema.InvalidJsonPointerError:
		return refIssue(doc, e.URL, "is no valid JSON Pointer")
	case *jsonschema.AnchorNotFoundError:
		return refIssue(doc, e.Reference, "refers to an anchor that the schema does not have")
	case *jsonschema.UnsupportedDraftError, *jsonschema.InvalidMetaSchemaURLError,
		*jsonschema.MetaSchemaCycleError, *jsonschema.UnsupportedVocabularyError:
		return frames.Issue{Path: "/$schema", Message: "$schema names no draft that is known here", Expected: knownDrafts}
	case *jsonschema.DuplicateIDError:
		return frames.Issue{Path: e.Ptr1, Message: "the same $id as at " + orRoot(e.Ptr2)}
	case *jsonschema.DuplicateAnchorError:
		return frames.Issue{Path: e.Ptr1, Message: "the same anchor as at " + orRoot(e.Ptr2), Got: quote(e.Anchor)}
	case *jsonschema.ParseIDError:
		return frames.Issue{Path: pointerIn(e.URL), Message: "its $id is no URL"}
	case *jsonschema.ParseAnchorError:
		return frames.Issue{Path: pointerIn(e.URL), Message: "its $id has a broken fragment"}
	case *jsonschema.ParseURLError:
		return refIssue(doc, e.URL, "is no URL")
	}
	return frames.Issue{Message: "it does not compile: " + jsontext.Clip(err.Error(), 200)}
}

const knownDrafts = "draft 2020-12, 2019-09, 7, 6 or 4 of json-schema.org"

// keywords that name another schema.
func refers(keyword string) bool {
	switch keyword {
	case "$ref", "$dynamicRef", "$recursiveRef", "$schema":
		return true
	}
	return false
}

// reference finds the keyword that resolves to target; without fragment, any
// fragment will do.
func reference(doc any, target string) (at []string, value string) {
	base, _ := url.Parse(location)
	wanted, frag, _ := strings.Cut(target, "#")
	visit(doc, nil, func(place []string, key string, v any) {
		ref, ok := v.(string)
		if value != "" || !ok || !refers(key) {
			return
		}
		resolved, err := base.Parse(ref)
		if err != nil && ref != target {
			return
		}
		if err == nil {
			got, _, _ := strings.Cut(resolved.String(), "#")
			if got != wanted || frag != "" && pointerIn(ref) != pointerIn(target) {
				return
			}
		}
		at, value = append(append(at, place...), key), ref
	})
	return at, value
}

func refIssue(doc any, target, message string) frames.Issue {
	at, value := reference(doc, target)
	if value == "" {
		value = "#" + pointerIn(target)
	}
	return frames.Issue{Path: jsontext.Pointer(at...), Message: "the reference " + quote(value) + " " + message}
}

func loadIssue(doc any, target string) frames.Issue {
	at, value := reference(doc, target)
	if len(at) > 0 && at[len(at)-1] == "$schema" {
		return frames.Issue{
			Path: jsontext.Pointer(at...), Message: "$schema names no draft that is known here",
			Expected: knownDrafts, Got: quote(value),
		}
	}
	if value == "" {
		value = target
	}
	return frames.Issue{
		Path: jsontext.Pointer(at...), Message: "the reference " + quote(value) + " leaves the schema, and schemas load nothing",
		Expected: `a reference within the schema, such as "#/$defs/name"`,
	}
}

// patternIssue finds where the broken pattern stands.
func patternIssue(doc any, bad *badPattern) frames.Issue {
	var found []string
	visit(doc, nil, func(at []string, key string, value any) {
		isName := key == bad.source && len(at) > 0 && at[len(at)-1] == "patternProperties"
		if found == nil && (isName || key == "pattern" && value == any(bad.source)) {
			found = append(append(found, at...), key)
		}
	})
	return frames.Issue{
		Path:     jsontext.Pointer(found...),
		Message:  fmt.Sprintf("the pattern %s cannot be used: %s", quote(bad.source), patternFault(bad.err)),
		Expected: "a regular expression of RE2 syntax (no look-around, no back-references)",
	}
}

func patternFault(err error) string {
	text := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	return jsontext.Clip(strings.TrimSpace(text), 120)
}

// invalidSchema is the error of a keyword that is used wrongly.
func invalidSchema(doc any, invalid *jsonschema.SchemaValidationError) error {
	failure, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err)
	if !ok {
		return refused(frames.Issue{Message: "it does not compile"}, invalid)
	}
	d := describer{value: doc}
	issues, _ := d.issues(failure)
	if len(issues) == 0 {
		return refused(frames.Issue{Message: "it does not compile"}, invalid)
	}
	return refused(issues[0], invalid, issues[1:]...)
}
