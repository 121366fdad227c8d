package process

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"
)

// owned is a directory that belongs to somebody.
type owned struct{ uid, gid uint32 }

func (o owned) Name() string       { return "" }
func (o owned) Size() int64        { return 0 }
func (o owned) Mode() fs.FileMode  { return fs.ModeDir }
func (o owned) ModTime() time.Time { return time.Time{} }
func (o owned) IsDir() bool        { return true }
func (o owned) Sys() any           { return &syscall.Stat_t{Uid: o.uid, Gid: o.gid} }

func TestWhoCommandsRunAs(t *testing.T) {
	t.Parallel()
	self := os.Geteuid()
	tests := []struct {
		asOwner  bool
		owner    owned
		uid      int
		switched bool
	}{
		{false, owned{1234, 5678}, self, false},
		{true, owned{0, 0}, self, false},
		{true, owned{uint32(self), 0}, self, false},
	}
	if self == 0 {
		tests = append(tests, tests[0])
		tests[3].asOwner, tests[3].uid, tests[3].switched = true, 1234, true
	}
	for _, tt := range tests {
		u := UserFor(tt.owner, tt.asOwner)
		equal(t, fmt.Sprint(tt, "uid"), u.UID, tt.uid)
		equal(t, fmt.Sprint(tt, "switched"), u.Switched, tt.switched)
		equal(t, fmt.Sprint(tt, "root"), u.IsRoot(), tt.uid == 0)
		equal(t, fmt.Sprint(tt, "credential"), u.credential() != nil, tt.switched)
	}
}
