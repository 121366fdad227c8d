package schema

import (
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/weavebus/weavebus/pkg/frames"
)

// boundIssue words the keywords that bound a number or a size.
func boundIssue(k jsonschema.ErrorKind) (frames.Issue, bool) {
	switch k := k.(type) {
	case *kind.Minimum:
		return frames.Issue{Message: "too small", Expected: "at least " + decimal(k.Want)}, true
	case *kind.Maximum:
		return frames.Issue{Message: "too large", Expected: "at most " + decimal(k.Want)}, true
	case *kind.ExclusiveMinimum:
		return frames.Issue{Message: "too small", Expected: "more than " + decimal(k.Want)}, true
	case *kind.ExclusiveMaximum:
		return frames.Issue{Message: "too large", Expected: "less than " + decimal(k.Want)}, true
	case *kind.MultipleOf:
		return frames.Issue{Message: "not a multiple", Expected: "a multiple of " + decimal(k.Want)}, true
	case *kind.MinLength:
		return sizeIssue("too short", "at least ", k.Want, k.Got, "character"), true
	case *kind.MaxLength:
		return sizeIssue("too long", "at most ", k.Want, k.Got, "character"), true
	case *kind.MinItems:
		return sizeIssue("too few items", "at least ", k.Want, k.Got, "item"), true
	case *kind.MaxItems:
		return sizeIssue("too many items", "at most ", k.Want, k.Got, "item"), true
	case *kind.MinProperties:
		return sizeIssue("too few members", "at least ", k.Want, k.Got, "member"), true
	case *kind.MaxProperties:
		return sizeIssue("too many members", "at most ", k.Want, k.Got, "member"), true
	case *kind.AdditionalItems:
		return frames.Issue{Message: "too many items", Expected: count(k.Count, "item") + " fewer"}, true
	}
	return frames.Issue{}, false
}

func sizeIssue(message, bound string, want, got int, noun string) frames.Issue {
	return frames.Issue{Message: message, Expected: bound + count(want, noun), Got: count(got, noun)}
}

// otherIssue words the rest.
func otherIssue(k jsonschema.ErrorKind) frames.Issue {
	switch k := k.(type) {
	case *kind.Pattern:
		return frames.Issue{Message: "does not match the pattern", Expected: "text that matches " + quote(k.Want)}
	case *kind.Format:
		return frames.Issue{Message: "wrong format", Expected: "format " + quote(k.Want)}
	case *kind.UniqueItems:
		return frames.Issue{
			Message:  fmt.Sprintf("items %d and %d are equal", k.Duplicates[0], k.Duplicates[1]),
			Expected: "items that all differ",
		}
	case *kind.Contains:
		return frames.Issue{Message: "no item is of the kind that must be in it", Expected: "at least 1 such item"}
	case *kind.MinContains:
		return sizeIssue("too few items of the kind that must be in it", "at least ", k.Want, len(k.Got), "such item")
	case *kind.MaxContains:
		return sizeIssue("too many items of the kind that is limited", "at most ", k.Want, len(k.Got), "such item")
	case *kind.Not:
		return frames.Issue{Message: "of a form that the schema excludes", Expected: "another value"}
	case *kind.RefCycle:
		return frames.Issue{Message: "the schema refers to itself without end, no value can be checked", Expected: "nothing"}
	}
	return frames.Issue{Message: "does not fit the schema"}
}
