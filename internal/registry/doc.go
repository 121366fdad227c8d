// Package registry is the live catalogue of a mesh's tools and of the instances
// that serve them.
//
// It is filled from three sources: the last announcement on each subject of the
// WB_CATALOG stream, read once to its exact end; every announcement after that,
// heard on the bus itself; and answers to DESCRIBE, which find the services that
// announce nothing. An instance is gone when it says END, when its alive is older
// than [AliveLimit], or when a dispatcher finds nobody listening.
//
// A name belongs to the identity that announced it first. The same name by another
// identity is refused and shown as a conflict until an operator swaps it. Of the
// declarations of one identity the newest counts; instances with another digest
// get no new calls.
package registry
