// Package schema is what the mesh knows about JSON Schema: it compiles the
// schemas of tool declarations, holds arguments and results to them with errors
// that a model can act on, derives schemas from Go types and decodes arguments
// into them.
//
// Everything that comes in is hostile until proved otherwise. No schema ever
// loads anything; every text passes [jsontext.Check] before anything decodes
// it; the work that one validation may cost is bounded. Errors leave as
// *frames.Error.
package schema
