package process

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func shell(text string) Program {
	return Program{Path: "/bin/sh", Args: []string{"-c", text}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

func run(t *testing.T, p Program) Ending {
	t.Helper()
	end, err := p.Run(t.Context())
	ok(t, err)
	return end
}

func TestInputIsRead(t *testing.T) {
	t.Parallel()
	p := shell("cat")
	p.Input = bytes.Repeat([]byte("0123456789abcdef"), 16<<10) // more than a pipe holds
	end := run(t, p)
	equal(t, "bytes", end.Stdout.Total, int64(len(p.Input)))
	equal(t, "exit code", end.ExitCode(), 0)
	equal(t, "none", run(t, shell("cat")).Stdout.Total, 0)
}

// A program that does not read its input is not held up by it, nor is one whose
// own child keeps the input open.
func TestInputNeedNotBeRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"echo done", "exec 0<&-; echo done", "sleep 60 & echo done"} {
		p := shell(text)
		p.Input = bytes.Repeat([]byte("x"), 1<<20)
		equal(t, text, run(t, p).Stdout.Text, "done\n")
	}
}

func TestStoppedWhileItsInputIsWritten(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := shell("echo up; sleep 60")
	p.Input = bytes.Repeat([]byte("x"), 1<<20)
	p.Output = func(Chunk) { cancel() }
	end, err := p.Run(ctx)
	ok(t, err)
	equal(t, "stopped", end.Stopped, true)
	equal(t, "signal", end.Signal(), "SIGTERM")
	equal(t, "exit code", end.ExitCode(), 143)
}

func TestProgramIsNotSearchedFor(t *testing.T) {
	t.Parallel()
	if _, err := (Program{Path: "sh", Dir: "/bin"}).Run(t.Context()); err == nil {
		t.Error("found sh by its name")
	}
}

func TestEnvironmentIsWhole(t *testing.T) {
	t.Parallel()
	p := shell("env")
	p.Env = []string{"ONE=1"}
	for line := range strings.Lines(run(t, p).Stdout.Text) {
		if name, _, _ := strings.Cut(line, "="); !strings.Contains(" ONE PWD SHLVL _ OLDPWD ", " "+name+" ") {
			t.Errorf("inherited %s", line)
		}
	}
}

func TestProgramThatDoesNotStart(t *testing.T) {
	t.Parallel()
	p := Program{Path: filepath.Join(t.TempDir(), "none"), Input: bytes.Repeat([]byte("x"), 1<<20)}
	if _, err := p.Run(t.Context()); err == nil {
		t.Error("a missing program started")
	}
}
