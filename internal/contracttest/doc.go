// Package contracttest holds docs/contract.md, the table of what Weavebus must
// do, to the tests that prove it.
//
// A test names the rows that it proves in its comment, at most five of them:
//
//	// contract: P58, B15
//	func TestMalformedArgumentsAreForgotten(t *testing.T) {
//
// A command line script does the same in a line of its own: # contract: P16.
// A test, or an entry of its table, names the cases of docs/cases.md in a
// comment of the form "// case: WS-C06".
//
// The package's test fails when table and tests disagree. With -update it
// writes the table's column of tests, and marks rows of the parts in work that
// have one as done:
//
//	go test ./internal/contracttest -update
package contracttest
