// Package argstream turns the pieces of a call's argument text into arguments.
//
// It is pure and bounded: a [Joiner] joins the pieces of one call (which call a
// piece belongs to is the caller's to know), and [Parse] reads the whole text
// strictly. Nothing is judged before the last piece is there, so pieces may be
// cut anywhere: inside a rune, an escape, a surrogate pair.
//
// Parse never changes what it accepts, and accepts no text that two readers
// could understand differently: one JSON object, no duplicate keys, valid UTF-8,
// no lone surrogates, bounded depth and numbers. A text that was cut off is told
// apart from one that is wrong; neither is completed.
//
// The lossless repairs of PROTOCOL section 3 and the state of calls that stream
// through the router belong here too: repairs between a failed Parse and the
// error, the state around the Joiner.
package argstream
