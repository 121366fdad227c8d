package contracttest

import (
	"fmt"
	"slices"
	"strings"
)

// A Row is one line of the table.
type Row struct {
	ID        string
	Behaviour string
	// State is "done", "issue: <part>" or "not applicable: <reason>".
	State string
	// Tests are written as in [Test.Name].
	Tests []string

	line int // index into the table's lines
}

// A Table is docs/contract.md: its text and the rows found in it.
type Table struct {
	Rows  []Row
	lines []string
}

// The lines between these two are written by [Table.Fill].
const (
	countsBegin = "<!-- counts: written by the test's -update -->"
	countsEnd   = "<!-- end of counts -->"
)

// ParseTable finds the rows in the text: lines of four cells whose first is a
// row id. Everything else is text for people.
func ParseTable(text string) *Table {
	t := &Table{lines: strings.Split(text, "\n")}
	for i, line := range t.lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || !idForm.MatchString(cells[0]) {
			continue
		}
		row := Row{ID: cells[0], line: i}
		if len(cells) > 2 {
			row.Behaviour, row.State = cells[1], strings.Trim(cells[2], "| ")
		}
		if len(cells) > 3 {
			row.Tests = splitTests(cells[3])
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func splitTests(cell string) []string {
	return strings.FieldsFunc(cell, func(r rune) bool { return r == ',' || r == ' ' || r == '`' })
}

// Fill returns the table's text with the tests that name each row, the rows of
// the parts in work that have one marked as done, and the counts brought up to
// date. A row that is not applicable stays so, and one that a later part builds
// in full: its tests show how far it is.
func (t *Table) Fill(tests []Test) string {
	proofs := byRow(tests)
	filled := &Table{lines: slices.Clone(t.lines)}
	for _, row := range t.Rows {
		row.Tests = proofs[row.ID]
		if len(row.Tests) > 0 && slices.Contains(inWork(), row.State) {
			row.State = stateDone
		}
		filled.Rows = append(filled.Rows, row)
		filled.lines[row.line] = row.String()
	}
	filled.replaceCounts()
	return strings.Join(filled.lines, "\n")
}

// String returns the row as a line of the table.
func (r Row) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s |", r.ID, r.Behaviour, r.State, codeList(r.Tests))
}

func codeList(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// byRow returns the sorted names of the tests that prove each row.
func byRow(tests []Test) map[string][]string {
	proofs := map[string][]string{}
	for _, test := range tests {
		for _, id := range test.Rows {
			proofs[id] = append(proofs[id], test.Name)
		}
	}
	for id := range proofs {
		slices.Sort(proofs[id])
		proofs[id] = slices.Compact(proofs[id])
	}
	return proofs
}

func (t *Table) replaceCounts() {
	begin, end := t.countsPlace()
	if begin >= 0 {
		t.lines = slices.Replace(t.lines, begin+1, end, t.counts()...)
	}
}

// countsPlace returns the lines that stand around the counts, or -1.
func (t *Table) countsPlace() (begin, end int) {
	begin, end = slices.Index(t.lines, countsBegin), slices.Index(t.lines, countsEnd)
	if end < begin {
		return -1, -1
	}
	return begin, end
}

func (t *Table) counts() []string {
	lines := []string{"| state | rows |", "|---|---|"}
	for _, state := range slices.Concat([]string{stateDone}, later(), []string{"not applicable"}) {
		lines = append(lines, fmt.Sprintf("| %s | %d |", state, t.count(state)))
	}
	return append(lines, fmt.Sprintf("| all | %d |", len(t.Rows)))
}

// count counts rows whose state is, or begins with, the given one.
func (t *Table) count(state string) int {
	n := 0
	for _, row := range t.Rows {
		if row.State == state || strings.HasPrefix(row.State, state+": ") {
			n++
		}
	}
	return n
}
