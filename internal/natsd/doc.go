// Package natsd is the embedded NATS server of a mesh: JetStream on, loopback or
// in-process only, every connection proved by an nkey, every identity limited to
// the subjects of its roles. It is the one production package that imports
// nats-server; it knows nothing of frames.
//
// # Virtual time
//
// A server with InProcessOnly runs inside a testing/synctest bubble: start it,
// connect with [Server.ConnectOptions] and stop it inside the bubble; ack waits
// and TTLs of hours then pass in milliseconds. Two rules hold there. Only request
// calls that take a context may be used: the others (Request, Flush, NextMsg), and
// Drain, which flushes, take timers from a pool that the whole process shares, and
// a bubble's timer that is taken outside of it ends the process. Drain may be used
// where no other connection of the process runs beside the bubble and the pool is
// emptied after it; internal/bustest does both.
package natsd
