package process

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a command's shell, the leader of a session and group of its own.
type process struct {
	cmd *exec.Cmd
	// exited is closed when the leader has ended. It is not reaped yet, so its
	// number, which is the group's, cannot belong to somebody else.
	exited chan struct{}
	release,
	reaped chan struct{}
}

// startProcess starts cmd. One thread stays with it until it is reaped: Linux
// ties the parent-death signal to the thread that started the child.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{
		cmd: cmd, exited: make(chan struct{}),
		release: make(chan struct{}), reaped: make(chan struct{}),
	}
	started := make(chan error, 1)
	go p.run(started)
	return p, <-started
}

func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	g := newGuard(p.cmd.Process.Pid)
	awaitExit(p.cmd.Process.Pid)
	close(p.exited)
	<-p.release
	g.end()
	_ = p.cmd.Wait() // how it ended stands in ProcessState
	close(p.reaped)
}

// signal sends sig to the whole group. It must not be called after reap.
func (p *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, sig) // nobody left to hear it is fine
}

// reap waits for the end of the leader and gives how it ended.
func (p *process) reap() syscall.WaitStatus {
	<-p.exited
	close(p.release)
	<-p.reaped
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status
}

// ignoringEINTR repeats call while a signal interrupts it.
func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// waitAll waits until all of the channels are closed, at most for d.
func waitAll(d time.Duration, all ...<-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, c := range all {
		select {
		case <-c:
		case <-timer.C:
			return false
		}
	}
	return true
}
