// Package provider is the neutral model interface: a [Request] goes in, a
// stream of [Event] comes out. Adapters for real endpoints and for scripted
// models live in its sub-packages; a [Set] finds them by the first part of a
// model name. The package knows no transport and no bus.
package provider
