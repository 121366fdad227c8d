package contracttest

import (
	"fmt"
	"slices"
	"strings"
)

// Check returns where the table and the tests disagree, in the table's order.
func Check(t *Table, tests []Test) []string {
	return slices.Concat(
		checkIDs(t), checkStates(t), checkProofs(t, tests), checkTests(tests), checkCounts(t))
}

func checkIDs(t *Table) []string {
	var problems []string
	times := map[string]int{}
	for _, row := range t.Rows {
		times[row.ID]++
		if !knownID(row.ID) {
			problems = append(problems, row.ID+": the contract has no such row")
		}
	}
	for _, id := range RowIDs() {
		switch times[id] {
		case 0:
			problems = append(problems, id+": missing from the table")
		case 1:
		default:
			problems = append(problems, fmt.Sprintf("%s: %d times in the table", id, times[id]))
		}
	}
	return problems
}

func checkStates(t *Table) []string {
	var problems []string
	for _, row := range t.Rows {
		if !validState(row.State) {
			problems = append(problems, fmt.Sprintf("%s: unknown state %q", row.ID, row.State))
		}
		if row.Behaviour == "" {
			problems = append(problems, row.ID+": no behaviour")
		}
	}
	if n := t.count("not applicable"); n > MaxNotApplicable {
		problems = append(problems, fmt.Sprintf("%d rows are not applicable, at most %d may be", n, MaxNotApplicable))
	}
	return problems
}

// checkProofs holds each row to its tests: those that it lists name the row,
// a row that is done has one, one that is not applicable has none.
func checkProofs(t *Table, tests []Test) []string {
	var problems []string
	proofs := byRow(tests)
	for _, row := range t.Rows {
		for _, name := range row.Tests {
			if !slices.Contains(proofs[row.ID], name) {
				problems = append(problems, fmt.Sprintf("%s: no test %s names this row", row.ID, name))
			}
		}
		switch {
		case row.State == stateDone && len(row.Tests) == 0:
			problems = append(problems, row.ID+": done without a test")
		case strings.HasPrefix(row.State, prefixNotAppliable) && len(proofs[row.ID]) > 0:
			problems = append(problems, fmt.Sprintf("%s: not applicable, yet %s names it", row.ID, proofs[row.ID][0]))
		}
	}
	return problems
}

func checkTests(tests []Test) []string {
	var problems []string
	for _, test := range tests {
		if n := len(test.Rows); n > MaxRowsOfTest {
			problems = append(problems, fmt.Sprintf("%s: names %d rows, at most %d may be", test.Name, n, MaxRowsOfTest))
		}
	}
	return problems
}

func checkCounts(t *Table) []string {
	begin, end := t.countsPlace()
	if begin < 0 {
		return []string{"the table has no place for its counts"}
	}
	if !slices.Equal(t.lines[begin+1:end], t.counts()) {
		return []string{"the counts are not those of the rows: run the test with -update"}
	}
	return nil
}
