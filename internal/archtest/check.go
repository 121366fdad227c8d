package archtest

import (
	"cmp"
	"context"
	"slices"
)

// A Rule is one thing that the module keeps to.
type Rule struct {
	// Name is short, unique and stands in every finding of the rule.
	Name string
	// Reason says what would be lost without the rule.
	Reason string

	find func(*module) []Finding
}

// A Finding is one place that breaks a rule.
type Finding struct {
	// Rule is the name of the broken rule.
	Rule string
	// Place is a package, a file or a file with its line, relative to the
	// module's folder.
	Place string
	// Detail says what was found there.
	Detail string
}

// String returns the finding on one line.
func (f Finding) String() string { return f.Rule + ": " + f.Place + ": " + f.Detail }

// Rules returns every rule, in the order in which they are judged.
func Rules() []Rule {
	return slices.Concat(importRules(), apiRules(), sourceRules())
}

// Check loads the module in dir with the go command and returns what breaks
// the rules, ordered by rule and place. The error is about loading only.
func Check(ctx context.Context, dir string) ([]Finding, error) {
	m, err := load(ctx, dir)
	if err != nil {
		return nil, err
	}
	var all []Finding
	for _, rule := range Rules() {
		found := rule.find(m)
		for i := range found {
			found[i].Rule = rule.Name
		}
		slices.SortFunc(found, byPlace)
		all = append(all, slices.Compact(found)...)
	}
	return all, nil
}

func byPlace(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Detail, b.Detail))
}
