// Package hook is what decides on tool calls, and looks at them, at the place
// where they are dispatched: the router's and the loop's chain of hooks. A [Hook]
// is a Go value in the Config of these services, or a policy service that answers
// on wb.hook.<name>: [Serve] makes one of a Hook, and docs/protocol.md says what
// one in another language reads and writes.
//
// Of one call, hooks run so:
//
//  1. Before, in the order of the list, once the tool was found and the arguments
//     fit: each proceeds, changes the arguments (which are validated again), skips
//     the tool with a result, or denies the call. A gate that fails, panics, takes
//     too long or decides nothing denies it: DENIED, with the hook's name.
//  2. The tool, with its retries.
//  3. OnError, in the order of the list, where that failed, whatever the failure:
//     the first that recovers wins.
//  4. After, in reverse order, where there is a result: each may replace it.
//  5. Observe, at the begin and at the end.
//
// What a hook gives in place of a result is held to the tool's output schema. A
// hook behind the tool that fails leaves what there was, and nothing that happens
// there runs the tool again. Every failure of a hook is counted and logged.
//
// Where a gate skipped the tool, the hooks that are listed before it see that
// result; it and those behind it do not.
//
// Calls of tools that a client serves for its own session are run by that client:
// gates, and hooks for errors, see them before they are handed over, Observe is told
// that they begin, and the client's result is seen by none.
package hook
