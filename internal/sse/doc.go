// Package sse reads server-sent events from a model endpoint: bounded, by
// bytes, and without any judgement of what the data is. Event data may hold
// bytes that are no UTF-8 by themselves, as when a server cuts a character in
// two; joining them is the reader's matter.
package sse
