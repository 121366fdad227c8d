package schema

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// MaxIssues is how many issues an error lists.
const MaxIssues = 8

// describer puts findings about one value into words.
type describer struct {
	value any
	nodes map[string]*jsonschema.Schema
}

func (s *Schema) issues(failed error, value any) (issues []frames.Issue, more int) {
	failure, ok := errors.AsType[*jsonschema.ValidationError](failed)
	if !ok {
		return []frames.Issue{{Message: "does not fit the schema"}}, 0
	}
	d := describer{value: value, nodes: s.nodes}
	return d.issues(failure)
}

// issues gives the first issues in the order of their paths, and how many more
// there are.
func (d describer) issues(failure *jsonschema.ValidationError) (issues []frames.Issue, more int) {
	found := order(d.leaves(failure))
	for _, f := range found[:min(len(found), MaxIssues)] {
		issues = append(issues, d.issue(f))
	}
	return issues, len(found) - len(issues)
}

func (d describer) issue(f finding) frames.Issue {
	i := d.wording(f)
	i.Path = jsontext.Clip(jsontext.Pointer(f.at...), jsontext.MaxPath)
	i.Expected = jsontext.Clip(i.Expected, maxList)
	if i.Got == "" {
		if v, ok := valueAt(d.value, f.at); ok {
			i.Got = preview(v)
		}
	}
	return i
}

// wording gives message, expected and, where the value itself says too little,
// got.
func (d describer) wording(f finding) frames.Issue {
	switch k := f.kind.(type) {
	case *kind.Type:
		v, _ := valueAt(d.value, f.at)
		return frames.Issue{Message: "wrong type", Expected: strings.Join(k.Want, " or "), Got: typed(v)}
	case *kind.Enum:
		return d.enum(f, k.Want)
	case *kind.Const:
		return frames.Issue{Message: "wrong value", Expected: literal(k.Want)}
	case *kind.Required:
		return d.missing(f, k.Missing, "")
	case *kind.DependentRequired:
		return d.missing(f, k.Missing, k.Prop)
	case *kind.Dependency:
		return d.missing(f, k.Missing, k.Prop)
	case *kind.AdditionalProperties:
		return d.unknown(f, k.Properties)
	case *kind.PropertyNames:
		return d.keyName(f, k.Property)
	case *kind.FalseSchema:
		return frames.Issue{Message: "not allowed here", Expected: "nothing"}
	case *kind.AnyOf, *kind.OneOf:
		return d.form(f)
	}
	if i, ok := boundIssue(f.kind); ok {
		return i
	}
	return otherIssue(f.kind)
}

func (d describer) enum(f finding, allowed []any) frames.Issue {
	i := frames.Issue{Message: "not one of the allowed values", Expected: listed(allowed, literal)}
	if len(allowed) > 1 {
		i.Expected = "one of " + i.Expected
	}
	if len(f.types) > 0 {
		i.Expected += " or " + strings.Join(f.types, " or ")
	}
	v, _ := valueAt(d.value, f.at)
	if got, ok := v.(string); ok {
		if name := nearest(got, stringsOf(allowed)); name != "" {
			i.Message += "; did you mean " + quote(name) + "?"
		}
	}
	return i
}

func stringsOf(values []any) []string {
	var out []string
	for _, v := range values {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func (d describer) missing(f finding, names []string, because string) frames.Issue {
	i := frames.Issue{Message: plural("missing required property ", "missing required properties ", names)}
	if because != "" {
		i.Message += ", which " + quote(because) + " needs beside it"
	}
	node := d.nodes[f.node]
	i.Expected = "property "
	if len(names) > 1 {
		i.Expected = "properties "
	}
	i.Expected += listed(names, func(name string) string {
		if t := typeName(property(node, name), 0); t != "" {
			return quote(name) + ": " + t
		}
		return quote(name)
	})
	if keys := d.keys(f); len(keys) > 0 {
		i.Got = keyList(keys)
	}
	return i
}

func plural(one, many string, names []string) string {
	if len(names) == 1 {
		return one + quote(names[0])
	}
	return many + listed(names, quote)
}

func (d describer) keys(f finding) []string {
	v, _ := valueAt(d.value, f.at)
	object, _ := v.(map[string]any)
	return slices.Sorted(maps.Keys(object))
}

func (d describer) unknown(f finding, names []string) frames.Issue {
	slices.Sort(names)
	known := []string{}
	if node := d.nodes[f.node]; node != nil {
		known = slices.Sorted(maps.Keys(node.Properties))
	}
	i := frames.Issue{
		Message:  plural("unknown property ", "unknown properties ", names),
		Expected: "no properties", Got: keyList(names),
	}
	if len(known) > 0 {
		i.Expected = "only " + listed(known, quote)
	}
	if hint := suggestions(names, known); hint != "" {
		i.Message += "; did you mean " + hint + "?"
	}
	return i
}

// suggestions gives the nearest known name of each of the first few.
func suggestions(names, known []string) string {
	var out []string
	for _, n := range names[:min(len(names), 4)] {
		if s := nearest(n, known); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return listed(out, quote)
}

func (d describer) keyName(f finding, name string) frames.Issue {
	i := frames.Issue{Message: "the key " + quote(name) + " is not allowed", Got: quote(name)}
	if len(f.forms) > 0 && len(f.forms[0]) > 0 {
		why := describer{value: name, nodes: d.nodes}.issue(f.forms[0][0])
		i.Expected = why.Expected
	}
	return i
}

// form words a choice: that several forms fit, or what each of them lacks.
func (d describer) form(f finding) frames.Issue {
	if k, ok := f.kind.(*kind.OneOf); ok && len(k.Subschemas) > 1 {
		return frames.Issue{
			Message:  "fits more than one of the allowed forms: numbers " + join(k.Subschemas, 1) + " in the schema's order",
			Expected: "exactly one form",
		}
	}
	const shown = 4
	var lacks []string
	for _, form := range f.forms[:min(len(f.forms), shown)] {
		lack := d.issue(form[0])
		text := lack.Expected
		if rest, ok := strings.CutPrefix(lack.Path, jsontext.Pointer(f.at...)); ok && rest != "" {
			text = rest + ": " + text
		}
		lacks = append(lacks, text)
	}
	i := frames.Issue{
		Message:  "fits none of the " + count(len(f.forms), "allowed form"),
		Expected: strings.Join(lacks, " | "),
	}
	if more := len(f.forms) - shown; more > 0 {
		i.Expected += " | " + count(more, "more form")
	}
	return i
}

func join(numbers []int, offset int) string {
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = strconv.Itoa(n + offset)
	}
	return strings.Join(out, " and ")
}

func property(node *jsonschema.Schema, name string) *jsonschema.Schema {
	if node == nil {
		return nil
	}
	return node.Properties[name]
}

// typeName says in a word what a schema takes; "" if it does not say.
func typeName(s *jsonschema.Schema, hops int) string {
	switch {
	case s == nil || hops > 8:
		return ""
	case s.Types != nil && !s.Types.IsEmpty():
		return strings.Join(s.Types.ToStrings(), " or ")
	case s.Ref != nil:
		return typeName(s.Ref, hops+1)
	}
	return ""
}
