// Package bustest gives a test a mesh's NATS: an embedded server with
// authentication and the mesh's streams, stopped and checked at the test's end.
//
// It works in a testing/synctest bubble too, if [Start] is called inside the
// bubble: ack waits and time-outs of hours then pass at once. In a bubble, use
// only request calls that take a context (RequestWithContext, FlushWithContext,
// NextMsgWithContext): the others take timers from a pool of the whole process,
// and a bubble's timer that is taken outside of it ends the process with "reset
// of synctest timer from outside bubble". Drain flushes, so it belongs to them;
// it works all the same, because a mesh in a bubble is the only mesh of the process
// while it runs and the pool is emptied after it. Hence tests with meshes may be
// parallel, those in bubbles just wait for each other; and a test whose mesh runs
// outside must not open a bubble with another one.
package bustest
