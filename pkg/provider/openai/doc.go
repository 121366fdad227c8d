// Package openai is a [provider.Provider] for any endpoint that speaks OpenAI's
// chat completions: OpenAI itself, and servers and gateways that follow it more
// or less. It streams over net/http and reads no environment.
//
// # What it puts up with
//
// Calls are put together from deltas in this order: a known id is that call; a
// new id opens one; without an id, a known index is the newest call there; a
// name opens a call; everything else goes to the newest call. Indexes may be
// missing, negative, huge, or 0 throughout; ids may be missing, late, blank,
// repeated or new in each chunk; names may come late or in each chunk;
// arguments may be text in pieces, one text, or an object. A new name and a
// fresh object after a complete one is a new call. Text is joined by bytes: a
// server may cut a character, or a pair of surrogate escapes, between two
// chunks. Only the first choice is read. Usage may come in each chunk: the last
// counts. A stream without [DONE] is complete if it gave a finish_reason.
//
// # Tools
//
// Tools go out as package export has them: names and schemas in the form that
// OpenAI takes. A call comes back under the tool's own name, with its own arguments.
// The setting strictTools (true, false) chooses strict for the tools that do not
// choose for themselves; without it nothing is said of it.
//
// # Errors
//
//	401, 402, 403         DENIED
//	404, unknown model    NOT_FOUND
//	408, 409, 425, 5xx    UNAVAILABLE, retryable, with Retry-After
//	429                   BUSY, retryable unless the quota is used up, with Retry-After
//	413, context too long LIMIT, reason context_length
//	other 4xx             VALIDATION_INPUT, reason request_refused, not retryable
//	3xx to another host   UNAVAILABLE, not retryable
//	no connection         UNAVAILABLE
//	stream broke off      NO_RESULT, retryable: a model request has no effect
//	silence               TIMEOUT, likewise
//	over a limit          TOO_LARGE, which names it
//
// An error object inside the stream is read like the status it stands for.
// Messages are bounded and never hold the key.
package openai
