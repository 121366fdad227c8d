// Package assets names, creates and opens what a mesh keeps in JetStream:
// streams, buckets and durable consumers. Commands (init, up) create them with
// [Ensure]; services only open them, with [Stream], [Consumer] and [Sessions].
package assets
