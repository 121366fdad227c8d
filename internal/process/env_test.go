package process

import (
	"fmt"
	"testing"
)

func TestAnotherUserGetsNoPersonalVariables(t *testing.T) {
	t.Parallel()
	environ := []string{"HOME=/users/boss", "USER=boss", "TMPDIR=/users/boss/tmp", "LANG=C"}
	env := Environment(environ, nil, "/work", User{UID: 7, Name: "seven", Switched: true})
	equal(t, "environment", fmt.Sprint(env),
		"[GIT_EDITOR=true GIT_TERMINAL_PROMPT=0 HOME=/work LANG=C PAGER=cat PATH="+defaultPath+" USER=seven]")
}
