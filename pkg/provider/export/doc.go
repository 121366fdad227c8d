// Package export puts tools into the forms in which model providers, the Vercel AI
// SDK and MCP take them, and reads a model's calls back in the tools' own terms. It
// is pure: no mesh, no network, and the same tools give the same bytes.
//
// # What is changed
//
// The mesh checks each call by the tool's own schema, so an export may say less than
// that schema does, never anything else:
//
//   - Names that a provider refuses are mapped, see [Names]. Names of properties too,
//     where the provider has a rule for them: Anthropic's of the root, and those of
//     Gemini's parameters.
//   - The root is one object with `type` and `properties`. Combinations at the root
//     ($ref, allOf, anyOf, oneOf), which providers refuse, become one object that
//     takes what any of them takes, and a sentence in the description that says which
//     arguments belong together. Arrays without `items` get empty ones. Keywords of
//     older drafts are written as draft 2020-12 has them.
//   - strict is a transform: each object is closed, an optional property is required
//     and may be null, keywords that a provider refuses are said in the description.
//     A schema that cannot be strict (maps, values of any type, conditions, tuples, a
//     union at the root, more properties or levels than the provider's limits) goes
//     out with strict false, and a [Note] says why.
//   - Gemini's parameters have references put in place, null as `nullable`, constants
//     as enums of strings. What the subset cannot say (recursion, values of any type)
//     goes out as parametersJsonSchema.
//   - MCP gets the schema as it is, with the type of the root.
//
// Key order and number literals are those of the tool's schema.
package export
