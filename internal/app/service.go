// Package app runs services in one process: it starts them in stages, tells
// whether they are ready, stops dependents before what they depend on, and gives
// running work time to end. Which services, and on which NATS, is its caller's choice.
package app

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go"
)

// Stage is a service's place in the order: stages start upward, each when all
// services of the one below are ready, and stop downward, each when all of the
// one above have ended.
type Stage int

// Stages, from what the others depend on to what depends on the others.
const (
	StageNATS    Stage = iota + 1 // the embedded server
	StageHarness                  // sessions
	StageTools                    // tools and llm adapters
	StageRouter
	StageLoop
	StageEntry // commands, gateways: where requests come in
)

// Service is one role of the process.
//
// Run blocks for the service's life:
//
//   - It calls ready once it serves: its subscriptions are flushed, what it
//     needs was found. More calls do nothing.
//   - When ctx ends, it takes nothing new, finishes what runs and returns. Work in
//     hand must not use ctx but env.Work, which ends only after the soft stop: then
//     the work is given up as it stands, and Run returns at once.
//   - nil means drained: nothing of the service runs any more. An error means
//     that it failed, whenever it comes; so does nil before ctx ended, unless the
//     service is OneShot. A failure takes all other services down.
//   - A panic of Run is a failure; goroutines that it starts catch their own.
//
// Several services may run at once; each gets its own Env and connection.
type Service struct {
	// Name stands in logs and errors; unique in one process.
	Name string

	// Stage is the service's place in the order.
	Stage Stage

	// Identity is who the service connects as. Empty: it gets no connection.
	Identity string

	// OneShot services end the whole run, in order and without an error, when
	// Run returns nil: a command beside the services that it uses.
	OneShot bool

	// Run is the service.
	Run func(ctx context.Context, env Env, ready func()) error
}

// Env is what a service gets to work with.
type Env struct {
	// Identity is the service's own.
	Identity string

	// Prefix is the mesh's.
	Prefix string

	// NATS is a connection of the service alone; nil without Identity. It is
	// closed when Run has returned: Run drains what it subscribed before.
	NATS *nats.Conn

	// Log carries the attribute service.
	Log *slog.Logger

	// Work is the context of work in hand. It outlives the ctx of Run and is
	// cancelled, with a cause that wraps [ErrHardStop], when the soft stop is over.
	Work context.Context //nolint:containedctx // it is no request's: it outlives the ctx of Run
}
