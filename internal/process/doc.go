// Package process runs one program to its end: in a session and process group of
// its own, of which nothing is left afterwards, also where this process is killed, with an environment picked from a
// list and with output that is bounded in memory. A program that leaves its group
// (by setsid) escapes that; the boundary of a program is its user.
//
// The package works on Linux and macOS.
package process
