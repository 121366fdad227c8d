package contracttest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxNotApplicable is how many rows at most may be not applicable.
const MaxNotApplicable = 30

// MaxRowsOfTest is how many rows at most one test may prove.
const MaxRowsOfTest = 5

// States of a row other than "not applicable: <reason>".
const (
	stateDone          = "done"
	prefixNotAppliable = "not applicable: "
)

// A group of rows, numbered from 1, by the system that they come from.
type group struct {
	letter string
	rows   int
}

func groups() []group {
	return []group{{"P", 80}, {"A", 36}, {"W", 42}, {"S", 43}, {"E", 20}, {"G", 61}, {"F", 8}, {"B", 58}}
}

// RowIDs returns the id of every row of the contract, in order.
func RowIDs() []string {
	var ids []string
	for _, g := range groups() {
		for n := range g.rows {
			ids = append(ids, g.letter+strconv.Itoa(n+1))
		}
	}
	return ids
}

func knownID(id string) bool { return slices.Contains(RowIDs(), id) }

// inWork returns the states of the parts of the work that are under way: a row
// is done there as soon as a test names it.
func inWork() []string { return []string{"issue: call path", "issue: loop and harness"} }

// later returns the states that name the part of the work which builds a row.
func later() []string {
	return append(inWork(),
		"issue: durability",
		"issue: workspace",
		"issue: secure",
		"issue: visible",
	)
}

func validState(state string) bool {
	reason, ok := strings.CutPrefix(state, prefixNotAppliable)
	return state == stateDone || ok && strings.TrimSpace(reason) != "" || slices.Contains(later(), state)
}

// idForm is what a row id looks like, whether it is known or not.
var idForm = regexp.MustCompile(`^[A-Z]\d+$`)
