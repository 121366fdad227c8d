// Package jsontext judges JSON text without decoding it: one linear pass that
// holds the limits every argument, result and schema text has to keep before
// anything else reads it. It knows no schema, no frame and no Go type.
package jsontext
