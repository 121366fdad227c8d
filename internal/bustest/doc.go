// Package bustest gives a test a mesh's NATS: an embedded server with
// authentication and the mesh's streams, stopped and checked at the test's end.
//
// It works in a testing/synctest bubble too, if [Start] is called inside the
// bubble: ack waits and time-outs of hours then pass at once. The recipe:
//
//   - the test with the bubble is not parallel, nor are its parents ([Start] checks it);
//   - all clients and services start and stop inside the bubble;
//   - requests and flushes take a context: RequestWithContext, FlushWithContext.
//
// The reason: Request, Flush and NextMsg of nats.go take timers from a pool of
// the whole process, and a bubble's timer that is taken outside of it ends the
// process with "reset of synctest timer from outside bubble". Drain flushes inside
// nats.go, so it cannot be kept from the pool; it works all the same, because a
// sequential test runs beside no other and Start's cleanup empties the pool.
package bustest
