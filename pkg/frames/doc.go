// Package frames holds what travels on a Weavebus mesh: typed frames, their
// msgpack and JSON encodings, and the one error shape with its closed list of
// codes. It knows no NATS. The format is specified in docs/protocol.md.
//
// A frame is one msgpack map with string keys; a message is one or more frames
// back to back, or the same as JSON objects. [Decode] checks a message in the one
// linear pass that reads it, trusts no length or count, and gives nothing of a
// message that is not whole: no input makes it allocate more than a small
// multiple of its own length.
package frames
