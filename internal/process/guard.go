package process

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// guard kills a program's group when this process ends before it could: the
// parent-death signal of Linux reaches the leader alone, and other systems have
// none. It is a shell in a session of its own that waits for the end of its input.
type guard struct {
	cmd *exec.Cmd
	// alive is the other end of that input; no other process has it.
	alive *os.File
}

const guardScript = `read -r _ || kill -s KILL -- "-$1"`

// newGuard gives nil where there is no shell: what a program left behind is then on
// its own.
func newGuard(group int) *guard {
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer func() { _ = r.Close() }() // the guard has its own
	cmd := &exec.Cmd{
		Path: "/bin/sh", Args: []string{"sh", "-c", guardScript, "weavebus-guard", strconv.Itoa(group)},
		Dir: "/", Env: []string{}, Stdin: r, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if cmd.Start() != nil {
		_ = w.Close() // nobody reads it
		return nil
	}
	return &guard{cmd: cmd, alive: w}
}

// end lets the group be. It must come before the group's leader is reaped: its
// number may belong to somebody else after that.
func (g *guard) end() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill() // before it sees the end of its input
	_ = g.cmd.Wait()         // says that it was killed
	_ = g.alive.Close()
}
