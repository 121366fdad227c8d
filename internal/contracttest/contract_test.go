package contracttest_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/contracttest"
)

var update = flag.Bool("update", false, "write the tests and counts into docs/contract.md and docs/cases.md")

// root is the module's folder.
var root = filepath.Join("..", "..")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTableAndTestsAgree(t *testing.T) {
	t.Parallel()
	tests, problems, err := contracttest.FindTests(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	table := contracttest.ParseTable(filled(t, "contract.md", func(text string) string { return contracttest.ParseTable(text).Fill(tests) }))
	for _, problem := range slices.Concat(problems, contracttest.Check(table, tests)) {
		t.Error(problem)
	}
}

func TestContractHasItsRows(t *testing.T) {
	t.Parallel()
	ids := contracttest.RowIDs()
	if len(ids) != 348 || ids[0] != "P1" || ids[347] != "B58" {
		t.Errorf("%d rows, %s to %s; want 348, P1 to B58", len(ids), ids[0], ids[len(ids)-1])
	}
}

func TestFindTests(t *testing.T) {
	t.Parallel()
	tests, problems, err := contracttest.FindTests(fstest.MapFS{
		"pkg/a/a_test.go":                   {Data: []byte(goTests)},
		"pkg/a/a.go":                        {Data: []byte("package a\n\n// contract: P1\nfunc TestNotATest() {}\n")},
		"cmd/x/testdata/script/run.txtar":   {Data: []byte("# contract: P16\nexec x\n-- f --\n# contract: P17\n")},
		"cmd/x/testdata/script/plain.txtar": {Data: []byte("exec x\n")},
		"pkg/a/testdata/ignored/b_test.go":  {Data: []byte("package b\n\n// contract: P1\nfunc TestB() {}\n")},
		".hidden/c_test.go":                 {Data: []byte("package c\n\n// contract: P1\nfunc TestC() {}\n")},
		"pkg/a/testdata/not-a-script.txtar": {Data: []byte("# contract: P1\n")},
		"pkg/a/prose_test.go":               {Data: []byte("package a\n\n// The contract of a.\nfunc TestProse() {}\n")},
		"examples/hello-tool/tool_test.go":  {Data: []byte("package main\n\n// contract: A1\nfunc ExampleTool() {}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantTests := []contracttest.Test{
		{Name: "cmd/x/testdata/script/run.txtar", Rows: []string{"P16"}},
		{Name: "examples/hello-tool.ExampleTool", Rows: []string{"A1"}},
		{Name: "pkg/a.TestOne", Rows: []string{"P58", "B15"}},
		{Name: "pkg/a.FuzzTwo", Rows: []string{"F7", "P57"}},
	}
	if diff := cmp.Diff(wantTests, tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	wantProblems := []string{
		`pkg/a/a_test.go:12:1: "// contract: P81": no row "P81"`,
		`pkg/a/a_test.go:15:1: "//contract: P1": want "contract: P58, B15"`,
		`pkg/a/a_test.go:17:2: names rows but stands above no test`,
		`pkg/a/a_test.go:20:1: names rows but stands above no test`,
	}
	if diff := cmp.Diff(wantProblems, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

const goTests = `package a

// contract: P58, B15
func TestOne(t *testing.T) {}

// FuzzTwo has a text.
//
// contract: F7
// contract: P57
func FuzzTwo(f *testing.F) {}

// contract: P81
func TestUnknownRow(t *testing.T) {}

//contract: P1
func TestMalformed(t *testing.T) {
	// contract: P2
}

// contract: P3
func TestMain(m *testing.M) {}
`

func TestFindTestsSaysWhatItCannotRead(t *testing.T) {
	t.Parallel()
	_, _, err := contracttest.FindTests(fstest.MapFS{
		"a_test.go": {Data: []byte("package a\n\n// contract: P1\nfunc {")},
	})
	if err == nil || !strings.Contains(err.Error(), "a_test.go:4") {
		t.Errorf("error %v, want one that names the place", err)
	}
}

// Each case spoils a table that is right, by one replacement.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	proof := []contracttest.Test{{Name: "pkg/a.TestOne", Rows: []string{"P1"}}}
	right := contracttest.ParseTable(fullTable()).Fill(proof)
	cases := []struct {
		name     string
		old, new string
		tests    []contracttest.Test
		want     string
	}{
		{name: "right", tests: proof},
		{"missing row", "| P2 | b |", "| none |", proof, "P2: missing from the table"},
		{"row twice", "| P2 | b |", "| P3 | b |", proof, "P3: 2 times in the table"},
		{"unknown row", "| P80 | b |", "| P81 | b |", proof, "P81: the contract has no such row"},
		{"unknown state", "| P2 | b | issue: call path |", "| P2 | b | soon |", proof, `P2: unknown state "soon"`},
		{"no reason", "| P2 | b | issue: call path |", "| P2 | b | not applicable: |", proof, "P2: unknown state"},
		{"no behaviour", "| P2 | b |", "| P2 |  |", proof, "P2: no behaviour"},
		{"done without test", "| P2 | b | issue: call path |", "| P2 | b | done |", proof, "P2: done without a test"},
		{"test is gone", "", "", nil, "P1: no test pkg/a.TestOne names this row"},
		{"test names another row", "", "", rows("P2"), "P1: no test pkg/a.TestOne names this row"},
		{"not applicable with a test", "| P1 | b | done |", "| P1 | b | not applicable: x |", proof, "P1: not applicable, yet pkg/a.TestOne names it"},
		{"too many rows", "", "", rows("P1", "P2", "P3", "P4", "P5", "P6"), "pkg/a.TestOne: names 6 rows, at most 5"},
		{"wrong counts", "| all | 348 |", "| all | 347 |", proof, "the counts are not those of the rows"},
		{"no counts", "<!-- end of counts -->", "", proof, "no place for its counts"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := contracttest.ParseTable(strings.Replace(right, c.old, c.new, 1))
			got := strings.Join(contracttest.Check(table, c.tests), "\n")
			if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
}

func TestCheckBoundsWhatIsNotApplicable(t *testing.T) {
	t.Parallel()
	state := func(n int) string {
		text := strings.Replace(fullTable(), "issue: call path", "not applicable: x", n)
		return strings.Join(contracttest.Check(contracttest.ParseTable(contracttest.ParseTable(text).Fill(nil)), nil), "\n")
	}
	if got := state(30); got != "" {
		t.Errorf("30 rows: %s", got)
	}
	if got, want := state(31), "31 rows are not applicable, at most 30 may be"; got != want {
		t.Errorf("31 rows: %q, want %q", got, want)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	text := `text with P1
<!-- counts: written by the test's -update -->
old
<!-- end of counts -->

| row | behaviour here | state | tests |
|---|---|---|---|
| P1 | one | issue: call path | |
| P2 | two | done | ` + "`pkg/a.TestGone`" + ` |
| P3 | three | not applicable: no such thing | |
`
	want := `text with P1
<!-- counts: written by the test's -update -->
| state | rows |
|---|---|
| done | 2 |
| issue: call path | 0 |
| issue: loop and harness | 0 |
| issue: durability | 0 |
| issue: workspace | 0 |
| issue: secure | 0 |
| issue: visible | 0 |
| not applicable | 1 |
| all | 3 |
<!-- end of counts -->

| row | behaviour here | state | tests |
|---|---|---|---|
| P1 | one | done | ` + "`pkg/a.TestOne`, `pkg/b.TestTwo`" + ` |
| P2 | two | done |  |
| P3 | three | not applicable: no such thing |  |
`
	tests := []contracttest.Test{
		{Name: "pkg/b.TestTwo", Rows: []string{"P1"}},
		{Name: "pkg/a.TestOne", Rows: []string{"P1"}},
	}
	got := contracttest.ParseTable(text).Fill(tests)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("filled (-want +got):\n%s", diff)
	}
	if again := contracttest.ParseTable(got).Fill(tests); again != got {
		t.Errorf("filling again changes the text:\n%s", cmp.Diff(got, again))
	}
}

// fullTable has every row, all built later.
func fullTable() string {
	var text strings.Builder
	text.WriteString("<!-- counts: written by the test's -update -->\n<!-- end of counts -->\n")
	for _, id := range contracttest.RowIDs() {
		text.WriteString(contracttest.Row{ID: id, Behaviour: "b", State: "issue: call path"}.String() + "\n")
	}
	return text.String()
}

func rows(ids ...string) []contracttest.Test {
	return []contracttest.Test{{Name: "pkg/a.TestOne", Rows: ids}}
}

// filled reads a page of docs; with -update it is filled and written first.
func filled(t *testing.T, page string, fill func(text string) string) string {
	t.Helper()
	path := filepath.Join(root, "docs", page)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !*update {
		return string(raw)
	}
	text := fill(string(raw))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}
