package contracttest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// A Test is a Go test or a command line script that proves rows.
type Test struct {
	// Name is <folder>.<function> of a Go test (pkg/frames.TestScan), or the
	// path of a script.
	Name string
	Rows []string
}

// mention is a comment that means to name rows, well formed or not.
var mention = regexp.MustCompile(`(?i)^(//|#)\s*contract:`)

// FindTests returns every test below root that names rows, and what is wrong
// with comments that try to.
func FindTests(root fs.FS) (tests []Test, problems []string, err error) {
	err = eachTestFile(root, "ontract:", func(name string, text []byte, isScript bool) error {
		var found []Test
		var wrong []string
		var err error
		if isScript {
			found, wrong = readScript(name, string(text))
		} else {
			found, wrong, err = readGo(name, text)
		}
		tests, problems = append(tests, found...), append(problems, wrong...)
		return err
	})
	return tests, problems, err
}

// eachTestFile calls see with each Go test and command line script below root
// whose text holds mark.
func eachTestFile(root fs.FS, mark string, see func(name string, text []byte, isScript bool) error) error {
	return fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		isTest := strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/")
		isScript := path.Ext(name) == ".txtar" && path.Base(path.Dir(name)) == "script"
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.ContainsAny(entry.Name()[:1], "._"):
			return fs.SkipDir
		case entry.IsDir() || !isTest && !isScript:
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil || !bytes.Contains(text, []byte(mark)) {
			return err
		}
		return see(name, text, isScript)
	})
}

func readScript(name, text string) (tests []Test, problems []string) {
	test := Test{Name: name}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "-- ") {
			break
		}
		rows, problem := rowsOf(strings.TrimSpace(line))
		test.Rows = append(test.Rows, rows...)
		problems = appendProblem(problems, name, problem)
	}
	if len(test.Rows) == 0 {
		return nil, problems
	}
	return []Test{test}, problems
}

func readGo(name string, text []byte) (tests []Test, problems []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, fmt.Errorf("test file: %w", err)
	}
	owners := testsByComment(file)
	for _, comments := range file.Comments {
		test := Test{Name: path.Dir(name) + "." + owners[comments]}
		for _, comment := range comments.List {
			place := fset.Position(comment.Pos()).String()
			rows, problem := rowsOf(comment.Text)
			if len(rows) > 0 && owners[comments] == "" {
				problem = "names rows but stands above no test"
			}
			test.Rows = append(test.Rows, rows...)
			problems = appendProblem(problems, place, problem)
		}
		if len(test.Rows) > 0 && owners[comments] != "" {
			tests = append(tests, test)
		}
	}
	return tests, problems, nil
}

func appendProblem(problems []string, place, problem string) []string {
	if problem == "" {
		return problems
	}
	return append(problems, place+": "+problem)
}

// testsByComment maps the comments above tests to the tests' names.
func testsByComment(file *ast.File) map[*ast.CommentGroup]string {
	owners := map[*ast.CommentGroup]string{}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Doc != nil && f.Recv == nil && testName(f.Name.Name) {
			owners[f.Doc] = f.Name.Name
		}
	}
	return owners
}

func testName(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) && name != "TestMain" {
			return true
		}
	}
	return false
}

// rowsOf reads "// contract: P58, B15". A comment that means to be one but
// reads otherwise is a problem.
func rowsOf(comment string) (rows []string, problem string) {
	if !mention.MatchString(comment) {
		return nil, ""
	}
	_, list, ok := strings.Cut(comment, " contract: ")
	if !ok {
		return nil, fmt.Sprintf("%q: want \"contract: P58, B15\"", comment)
	}
	for id := range strings.SplitSeq(list, ",") {
		id = strings.TrimSpace(id)
		if !knownID(id) {
			return nil, fmt.Sprintf("%q: no row %q", comment, id)
		}
		rows = append(rows, id)
	}
	return rows, ""
}
