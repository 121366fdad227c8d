package app

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/weavebus/weavebus/pkg/frames"
)

// ErrHardStop is in the chain of the error of a run whose work was cancelled:
// by a second signal, or because the soft stop was over.
var ErrHardStop = errors.New("hard stop")

const exitHardStop = 3

// ExitCode gives the exit code for an error of [Run]: 0 for nil, 3 for a hard
// stop, else its code's.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrHardStop):
		return exitHardStop
	}
	return frames.CodeOf(err).ExitCode()
}

// Notify gives the process's interrupt and termination signals for
// [Config].Signals, until stop is called. The end of its terminal is one too, unless
// it was started to outlive that (nohup); that comes more than once, and counts once.
func Notify() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	if signal.Ignored(syscall.SIGHUP) {
		return c, func() { signal.Stop(c) }
	}
	hangup, stopped := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		select {
		case s := <-hangup:
			c <- s
		case <-stopped:
		}
	}()
	return c, func() {
		close(stopped)
		signal.Stop(hangup)
		signal.Stop(c)
	}
}
