package contracttest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/contracttest"
)

func TestCasesAndTestsAgree(t *testing.T) {
	t.Parallel()
	proofs, problems, err := contracttest.FindCases(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	page := contracttest.ParseCases(filled(t, "cases.md", func(text string) string { return contracttest.ParseCases(text).Fill(proofs) }))
	for _, problem := range slices.Concat(problems, contracttest.CheckCases(page, proofs)) {
		t.Error(problem)
	}
	t.Log(strings.Join(page.Counts(), "\n"))
}

const caseTests = `package a

// case: one-a, one-b
func TestOne(t *testing.T) {
	for _, c := range []int{
		1, // case: one-c
		// case: one-d
		2,
	} {
		_ = c
	}
}

// A table of a test.
var entries = []string{
	"x", // case: table-a
}

// case: lost

// In case: nobody means this.
const x = 1
`

func TestFindCases(t *testing.T) {
	t.Parallel()
	proofs, problems, err := contracttest.FindCases(fstest.MapFS{
		"pkg/a/a_test.go":                  {Data: []byte(caseTests)},
		"pkg/a/a.go":                       {Data: []byte("package a\n\n// case: not-a-test\nfunc F() {}\n")},
		"cmd/x/testdata/script/a.txtar":    {Data: []byte("# case: one-a\nexec x\n")},
		"cmd/x/testdata/script/b.txtar":    {Data: []byte("exec x\n")},
		"pkg/a/testdata/ignored/b_test.go": {Data: []byte("package b\n\n// case: ignored\nfunc TestB() {}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"one-a":   {"cmd/x/testdata/script/a.txtar", "pkg/a.TestOne"},
		"one-b":   {"pkg/a.TestOne"},
		"one-c":   {"pkg/a.TestOne"},
		"one-d":   {"pkg/a.TestOne"},
		"table-a": {"pkg/a.entries"},
	}
	if diff := cmp.Diff(want, proofs); diff != "" {
		t.Errorf("proofs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"pkg/a/a_test.go:19:1: names cases but stands in no test"}, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

const casesPage = `# Cases

<!-- counts: written by the test's -update -->
old
<!-- end of counts -->

| case | part | tests |
|---|---|---|
| one-a | router |  |
| one-b | loop | ` + "`pkg/a.TestGone`" + ` |
| two | loop |  |
`

func TestFillCases(t *testing.T) {
	t.Parallel()
	proofs := map[string][]string{"one-a": {"pkg/a.TestOne", "pkg/b.TestTwo"}, "one-b": {"pkg/a.TestOne"}}
	got := contracttest.ParseCases(casesPage).Fill(proofs)
	want := `# Cases

<!-- counts: written by the test's -update -->
| part | tested | of |
|---|---|---|
| router | 1 | 1 |
| loop | 1 | 2 |
| all | 2 | 3 |
<!-- end of counts -->

| case | part | tests |
|---|---|---|
| one-a | router | ` + "`pkg/a.TestOne`, `pkg/b.TestTwo`" + ` |
| one-b | loop | ` + "`pkg/a.TestOne`" + ` |
| two | loop |  |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("filled (-want +got):\n%s", diff)
	}
	if problems := contracttest.CheckCases(contracttest.ParseCases(got), proofs); problems != nil {
		t.Errorf("a filled page has problems: %q", problems)
	}
}

func TestCheckCasesFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	got := contracttest.CheckCases(contracttest.ParseCases(casesPage),
		map[string][]string{"one-a": {"pkg/a.TestOne"}, "unknown": {"pkg/a.TestOne"}})
	want := []string{
		"one-a: the page names [], the tests are [pkg/a.TestOne]: run the test with -update",
		"one-b: the page names [pkg/a.TestGone], the tests are []: run the test with -update",
		`pkg/a.TestOne names the case "unknown", which is not in docs/cases.md`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
