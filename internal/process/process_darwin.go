package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes: a new session (so no terminal), which is a new group too.
// macOS has no parent-death signal: a command outlives a killed service.
func processAttributes(u User) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Credential: u.credential()}
}

// awaitExit returns when the child pid has ended, without reaping it. An error
// of Kevent with ESRCH means that it has ended before.
func awaitExit(pid int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(kq) }()
	change := make([]unix.Kevent_t, 1)
	unix.SetKevent(&change[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change[0].Fflags = unix.NOTE_EXIT
	_ = ignoringEINTR(func() error {
		_, err := unix.Kevent(kq, change, make([]unix.Kevent_t, 1), nil)
		return err
	})
}
