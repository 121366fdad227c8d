// Package argstream turns the pieces of calls' argument texts into arguments.
//
// It is pure and bounded: [Calls] holds the calls that are open and puts each
// piece to its call, [Parse] reads a whole text strictly, and [Repair] makes the
// lossless repairs of docs/protocol.md, section 3, each by its name. There is no
// clock: time is passed in. Nothing is judged before the last piece is there, so
// pieces may be cut anywhere: inside a rune, an escape, a surrogate pair.
//
// No text is accepted that two readers could understand differently: one JSON
// object, no duplicate keys, valid UTF-8, no lone surrogates, bounded depth and
// numbers, by package jsontext. A text that was cut off is told apart from one
// that is wrong; neither is completed.
package argstream
