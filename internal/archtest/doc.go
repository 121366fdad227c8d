// Package archtest holds the rules that the module's packages and sources
// keep, each with its reason, and proves them in its tests: which package may
// import which, what an exported signature may mention, where a process may
// end or read its environment, and how tests may wait.
//
// Check judges any module folder, so the tests also run it on a module that
// breaks every rule: a rule that cannot fail is no rule.
package archtest
