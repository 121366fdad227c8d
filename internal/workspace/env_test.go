package workspace

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// contract: P44
// case: WS-C19
func TestCommandsGetOnlyAllowedVariables(t *testing.T) {
	t.Parallel()
	b := setup(t, WithAllowedEnv("GOFLAGS", "MY_*"), WithEnvironment([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=/users/ada", "LC_ALL=C", "LCX=no", "TERM=dumb", "TZ=UTC",
		"GOFLAGS=-v", "MY_ONE=1", "OPENAI_API_KEY=sk", "NATS_CREDS=c", "AWS_SECRET_ACCESS_KEY=s",
		"LD_PRELOAD=x", "BASH_ENV=x", "WEAVEBUS_NKEY=k", "broken", "=",
	}))
	res, err := b.run(t, "env")
	ok(t, err)
	for _, want := range []string{"HOME=/users/ada", "LC_ALL=C", "TERM=dumb", "TZ=UTC", "GOFLAGS=-v", "MY_ONE=1"} {
		if !strings.Contains("\n"+res.Stdout, "\n"+want+"\n") {
			t.Errorf("%s is missing in %s", want, res.Stdout)
		}
	}
	for _, secret := range []string{"OPENAI", "NATS", "AWS", "LD_PRELOAD", "BASH_ENV", "WEAVEBUS", "LCX", "broken"} {
		if strings.Contains(res.Stdout, secret) {
			t.Errorf("%s was inherited: %s", secret, res.Stdout)
		}
	}
}

// contract: P44
// case: WS-C20
func TestEmptyEnvironmentInheritsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, WithEnvironment(nil))
	res, err := b.run(t, "env")
	ok(t, err)
	var names []string
	for line := range strings.Lines(res.Stdout) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	ours := []string{"PATH", "HOME", "USER", "GIT_EDITOR", "GIT_TERMINAL_PROMPT", "PAGER", "PWD", "SHLVL", "_"}
	for _, name := range names {
		equal(t, name+" is set by us or the shell", slices.Contains(ours, name), true)
	}
	equal(t, "home", slices.Contains(b.env, "HOME="+b.dir), true)
}

// A relative directory in PATH must not let the workspace provide the shell.
func TestFindShell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "bin/sh", "")
	ok(t, os.Chmod(b.at("work/bin/sh"), 0o755))
	b.put(t, "plain/bash", "")
	equal(t, "relative", findShell([]string{"PATH=.::bin"}), "/bin/sh")
	path := "PATH=" + b.at("work/plain") + ":" + b.at("work/bin")
	equal(t, "no bash", findShell([]string{path}), b.at("work/bin/sh"))
}
