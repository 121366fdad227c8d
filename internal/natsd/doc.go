// Package natsd is the embedded NATS server of a mesh: JetStream on, loopback or
// in-process only, every connection proved by an nkey, every identity limited to
// the subjects of its roles. It is the one production package that imports
// nats-server; it knows nothing of frames.
//
// # Virtual time
//
// A server with InProcessOnly runs inside a testing/synctest bubble: start it,
// connect with [Server.ConnectOptions] and stop it inside the bubble; ack waits
// and TTLs of hours then pass in milliseconds. internal/bustest does that and
// states the rules that hold there.
package natsd
