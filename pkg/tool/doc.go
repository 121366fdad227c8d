// Package tool is what the author of a tool writes against. A [Set] holds the
// tools of one service, [Serve] puts them on the bus.
//
// [Add] takes a typed function: the schemas come from its Go types, arguments
// are decoded, the value is encoded, and an error becomes a result that the
// model sees. [Set.AddRaw] takes a declaration and a [Handler], which reads the
// JSON arguments itself and decides on all of the result. Both are held to their
// schemas on both sides, run under a deadline, and answer each call exactly
// once, whatever the function does.
//
// What a function returns as an error is the tool's failure. An *frames.Error
// keeps its code where it is one that a tool may say: EXECUTION,
// VALIDATION_INPUT, DENIED, NOT_FOUND, CONFLICT, TOO_LARGE and LIMIT; the others
// are for the mesh to say and become EXECUTION, with the code in small letters
// as the reason. Any other error is EXECUTION with its text, which the model
// reads: return [Fail] where the text should be another.
package tool
