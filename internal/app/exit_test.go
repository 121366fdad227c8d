package app_test

import (
	"syscall"
	"testing"

	"github.com/weavebus/weavebus/internal/app"
)

func TestNotify(t *testing.T) {
	signals, stop := app.Notify()
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-signals; got != syscall.SIGTERM {
		t.Errorf("signal = %v", got)
	}
}
