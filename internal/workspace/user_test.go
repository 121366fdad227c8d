package workspace

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// As root: commands run as the owner of the directory, and what is written
// belongs to that owner. As anybody else: as oneself.
func TestCommandsRunAsTheOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := os.Geteuid()
	if want == 0 {
		want = 65534
		ok(t, os.Chmod(b.base, 0o755))                     // t.TempDir lets only root pass
		ok(t, os.Chmod(b.base+"/..", 0o755))               // and so does its parent
		ok(t, os.Chown(b.at("work"), want, 65533))         // a group of its own
		ok(t, os.WriteFile(b.at("work/root"), nil, 0o644)) // a file that root keeps
	}
	w, err := Open(b.at("work"), WithOwnerCommands(), WithEnvironment(b.environ))
	ok(t, err)
	defer func() { ok(t, w.Close()) }()
	equal(t, "command user", w.CommandUser().UID, want)
	for _, path := range []string{"new/dir/file", "root"} {
		_, err = w.WriteFile(t.Context(), WriteRequest{Path: path, Content: "x"})
		ok(t, err)
	}
	res, err := w.RunCommand(t.Context(), Command{Text: "id -u; id -G; echo more >> new/dir/file && echo x > new/beside"})
	ok(t, err)
	groups := fmt.Sprintf("%d\n%d\n", want, 65533)
	if os.Geteuid() == 0 && res.Stdout != groups {
		t.Errorf("user and groups are %q, want %q", res.Stdout, groups)
	}
	equal(t, "file", b.get(t, "work/new/dir/file"), "xmore\n")
	info, err := os.Stat(b.at("work/root"))
	ok(t, err)
	equal(t, "the owner of a file stays", info.Sys().(*syscall.Stat_t).Uid, uint32(os.Geteuid()))
}
