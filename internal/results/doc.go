// Package results makes of a call's result what a model sees of it, kept to the
// limits of the tool's declaration, and lets a model read what was left out by the
// tool read_result.
package results
