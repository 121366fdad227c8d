// Package engine is the tool loop: a model is asked, its calls run, their results
// go back to it, until it answers without a call or a limit is met.
//
// The package has two halves. [Machine] decides and does no input or output: it
// is told what happened and says what to commit and what to do next. [Runner]
// drives it: it streams the model, runs the calls and commits each transition to
// a [Journal] before it acts on it. A run that ended with its process goes on
// from what its journal holds.
//
// The rules of a round, an assistant message with calls and all their results:
//   - Calls start in the model's order. A sequential call is a barrier: it starts
//     when all earlier ones have ended, and later ones wait for it. Calls of one
//     lock run one at a time.
//   - The model is asked again when every call of the round has its one result.
//     A call that must not run (unknown tool, arguments that do not parse or were
//     cut off, a limit) has one too: it tells the model why.
//   - Tools, tool choice and system prompt go with every request. After the last
//     round comes one request with tools off; calls in its answer end the run.
package engine
