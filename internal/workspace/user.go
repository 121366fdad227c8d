package workspace

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// CommandUser is who commands run as.
type CommandUser struct {
	UID, GID int
	// Name is the user's name; empty when the system knows none.
	Name string
	// Switched says that this is another user than the process's own.
	Switched bool
}

// IsRoot says that commands may do everything on this host.
func (u CommandUser) IsRoot() bool { return u.UID == 0 }

// commandUser decides who commands run as in the directory dir.
func commandUser(asOwner bool, dir fs.FileInfo) CommandUser {
	u := CommandUser{UID: os.Geteuid(), GID: os.Getegid()}
	if st, ok := dir.Sys().(*syscall.Stat_t); ok && asOwner && u.UID == 0 && st.Uid != 0 {
		u = CommandUser{UID: int(st.Uid), GID: int(st.Gid), Switched: true}
	}
	if known, err := user.LookupId(strconv.Itoa(u.UID)); err == nil {
		u.Name = known.Username
	}
	return u
}

// credential is what makes a child run as u; nil for the process's own user.
func (u CommandUser) credential() *syscall.Credential {
	if !u.Switched {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
}
