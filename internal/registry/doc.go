// Package registry is the live catalogue of a mesh's tools and of the instances
// that serve them.
//
// It is filled from three sources: the last announcement on each subject of the
// WB_CATALOG stream, read to its exact end at the start; every announcement after
// that, heard on the bus itself; and answers to DESCRIBE, which find the services
// that announce nothing. The stream is read again after each time in which
// announcements may have been missed: the connection was lost, the process stood
// still, messages were dropped, or an instance names a tool that is not known.
//
// An instance is gone when it says END, when its alive is older than
// [AliveLimit], or when a dispatcher finds nobody listening. Nobody is judged by a
// silence in which there was no connection.
//
// A name belongs to the identity that was heard to announce it first, and still does
// for some minutes after its last instance is gone. The same name by another identity
// is refused and shown as a conflict until an operator swaps it. Of the declarations of
// one identity the one that came last counts, of those on instances that are known to
// be alive; instances with another digest get no new calls.
//
// What operators decided about a tool, its [Setting], is kept in the KV bucket
// WB_TOOLS. A registry knows all of it before it is ready, and follows it.
package registry
