// Package cuttext keeps text to limits of bytes and lines, and reads what was left
// out: from an offset, the head, the tail, or the lines that match.
//
// What is kept is valid UTF-8 where the text is. Cuts fall between lines where that
// costs little, else between characters. In JSON text an escape is one character,
// and an escaped line feed ends a line as a plain one does.
package cuttext
