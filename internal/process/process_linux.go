package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes: a new session (so no terminal), which is a new group too,
// and an end with the process that started it.
func processAttributes(u User) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: u.credential()}
}

// awaitExit returns when the child pid has ended, without reaping it.
func awaitExit(pid int) {
	_ = ignoringEINTR(func() error {
		return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	})
}
