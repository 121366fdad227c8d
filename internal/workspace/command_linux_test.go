package workspace

import (
	"os"
	"testing"
)

// A process that left the group and holds the output does not hold the return;
// it escapes the kill, and the result says so. setsid is a program of Linux.
func TestProcessThatLeftTheGroup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fifo(t, "gate")
	gone := b.witness(t, "alive")
	b.fifo(t, "up")
	res, err := b.run(t, "exec 9>alive; setsid sh -c 'echo inner; echo > up; read x < gate' & read x < up")
	ok(t, err)
	equal(t, "stdout", res.Stdout, "inner\n")
	equal(t, "left", res.BackgroundLeft, true)
	ok(t, os.WriteFile(b.at("work/gate"), []byte("go\n"), 0))
	gone()
}
