package contracttest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Case is one line of docs/cases.md: an input that people really hit.
type Case struct {
	ID, Part string
	// Proofs are the tests that name the case, written as in [Test.Name].
	Proofs []string

	line int
}

// Cases is docs/cases.md: its text and the cases found in it.
type Cases struct {
	Cases []Case
	lines []string
}

// caseMention is a comment that names cases: "// case: WS-C06, res-01-nan".
var caseMention = regexp.MustCompile(`^(?://|#) case: (.+)$`)

// ParseCases finds the cases in the text: the lines of three cells below the
// table's head.
func ParseCases(text string) *Cases {
	c := &Cases{lines: strings.Split(text, "\n")}
	inside := false
	for i, line := range c.lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case strings.HasPrefix(line, "|---"):
			inside = i > 0 && strings.HasPrefix(c.lines[i-1], "| case |")
		case !strings.HasPrefix(line, "| "):
			inside = false
		case inside && len(cells) >= 2:
			one := Case{ID: cells[0], Part: strings.Trim(cells[1], "| "), line: i}
			if len(cells) > 2 {
				one.Proofs = splitTests(cells[2])
			}
			c.Cases = append(c.Cases, one)
		}
	}
	return c
}

// Fill returns the text with the tests that name each case, and the counts.
func (c *Cases) Fill(proofs map[string][]string) string {
	filled := &Cases{lines: slices.Clone(c.lines)}
	for _, one := range c.Cases {
		one.Proofs = proofs[one.ID]
		filled.Cases = append(filled.Cases, one)
		filled.lines[one.line] = one.String()
	}
	counts := &Table{lines: filled.lines}
	if begin, end := counts.countsPlace(); begin >= 0 {
		filled.lines = slices.Replace(filled.lines, begin+1, end, filled.Counts()...)
	}
	return strings.Join(filled.lines, "\n")
}

// String returns the case as a line of the table.
func (c Case) String() string {
	return fmt.Sprintf("| %s | %s | %s |", c.ID, c.Part, codeList(c.Proofs))
}

// Counts says, part by part and in all, how many cases a test names.
func (c *Cases) Counts() []string {
	lines := []string{"| part | tested | of |", "|---|---|---|"}
	var parts []string
	tested, all := map[string]int{}, map[string]int{}
	for _, one := range c.Cases {
		if !slices.Contains(parts, one.Part) {
			parts = append(parts, one.Part)
		}
		for _, part := range []string{one.Part, ""} {
			all[part]++
			if len(one.Proofs) > 0 {
				tested[part]++
			}
		}
	}
	for _, part := range parts {
		lines = append(lines, fmt.Sprintf("| %s | %d | %d |", part, tested[part], all[part]))
	}
	return append(lines, fmt.Sprintf("| all | %d | %d |", tested[""], all[""]))
}

// FindCases returns the tests below root that name each case, sorted, and the
// mentions that stand in no test.
func FindCases(root fs.FS) (proofs map[string][]string, problems []string, err error) {
	proofs = map[string][]string{}
	err = eachTestFile(root, " case: ", func(name string, text []byte, isScript bool) error {
		if !isScript {
			wrong, err := readGoCases(name, text, proofs)
			problems = append(problems, wrong...)
			return err
		}
		for line := range strings.Lines(string(text)) {
			addCases(proofs, strings.TrimSpace(line), name)
		}
		return nil
	})
	for id := range proofs {
		slices.Sort(proofs[id])
		proofs[id] = slices.Compact(proofs[id])
	}
	return proofs, problems, err
}

func readGoCases(name string, text []byte, proofs map[string][]string) (problems []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("test file: %w", err)
	}
	for _, comments := range file.Comments {
		for _, comment := range comments.List {
			owner := enclosing(file, comment.Pos())
			switch {
			case !caseMention.MatchString(comment.Text):
			case owner == "":
				problems = append(problems, fset.Position(comment.Pos()).String()+": names cases but stands in no test")
			default:
				addCases(proofs, comment.Text, path.Dir(name)+"."+owner)
			}
		}
	}
	return problems, nil
}

// enclosing names the test, or the function or table of one, at pos.
func enclosing(file *ast.File, pos token.Pos) string {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if inside(pos, d, d.Doc) {
				return d.Name.Name
			}
		case *ast.GenDecl:
			if value, ok := d.Specs[0].(*ast.ValueSpec); ok && inside(pos, d, d.Doc) {
				return value.Names[0].Name
			}
		}
	}
	return ""
}

func inside(pos token.Pos, node ast.Node, doc *ast.CommentGroup) bool {
	begin := node.Pos()
	if doc != nil {
		begin = doc.Pos()
	}
	return begin <= pos && pos < node.End()
}

func addCases(proofs map[string][]string, comment, test string) {
	match := caseMention.FindStringSubmatch(comment)
	if match == nil {
		return
	}
	for id := range strings.SplitSeq(match[1], ",") {
		id = strings.TrimSpace(id)
		proofs[id] = append(proofs[id], test)
	}
}

// CheckCases returns where docs/cases.md and the tests disagree.
func CheckCases(c *Cases, proofs map[string][]string) []string {
	var problems []string
	known := map[string]bool{}
	for _, one := range c.Cases {
		known[one.ID] = true
		if !slices.Equal(one.Proofs, proofs[one.ID]) {
			problems = append(problems, fmt.Sprintf(
				"%s: the page names %v, the tests are %v: run the test with -update", one.ID, one.Proofs, proofs[one.ID]))
		}
	}
	for id, tests := range proofs {
		if !known[id] {
			problems = append(problems, fmt.Sprintf("%s names the case %q, which is not in docs/cases.md", tests[0], id))
		}
	}
	slices.Sort(problems)
	return problems
}
