package process

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// User is who programs run as.
type User struct {
	UID, GID int
	// Name is the user's name; empty when the system knows none.
	Name string
	// Switched says that this is another user than the process's own.
	Switched bool
}

// IsRoot says that programs may do everything on this host.
func (u User) IsRoot() bool { return u.UID == 0 }

// UserFor decides who programs run as in a directory: the process's own user, or,
// where that is root and asOwner is set, the directory's owner.
func UserFor(dir fs.FileInfo, asOwner bool) User {
	u := User{UID: os.Geteuid(), GID: os.Getegid()}
	if st, ok := dir.Sys().(*syscall.Stat_t); ok && asOwner && u.UID == 0 && st.Uid != 0 {
		u = User{UID: int(st.Uid), GID: int(st.Gid), Switched: true}
	}
	if known, err := user.LookupId(strconv.Itoa(u.UID)); err == nil {
		u.Name = known.Username
	}
	return u
}

// credential is what makes a child run as u; nil for the process's own user.
func (u User) credential() *syscall.Credential {
	if !u.Switched {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
}
