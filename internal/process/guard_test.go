package process

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Whoever runs a program may be killed: the program's whole group goes with it.
func TestNothingIsLeftWhenTheParentIsKilled(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "alive")
	ok(t, syscall.Mkfifo(fifo, 0o600))
	self, err := os.Executable()
	ok(t, err)
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), commandForChild+"=exec 9>'"+fifo+"'; (sleep 600 & echo up >&9; sleep 600); true")
	ok(t, parent.Start())
	alive, err := os.Open(fifo)
	ok(t, err)
	defer func() { _ = alive.Close() }()
	r := bufio.NewReader(alive)
	line, err := r.ReadString('\n')
	ok(t, err)
	equal(t, "line", line, "up\n")
	ok(t, parent.Process.Kill())
	_ = parent.Wait()
	_, err = io.ReadAll(r) // ends when all who could write are gone
	ok(t, err)
}
