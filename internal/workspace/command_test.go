package workspace

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// run runs a command that must be started.
func (b bundle) run(t *testing.T, text string) (CommandResult, error) {
	t.Helper()
	res, err := b.RunCommand(t.Context(), Command{Text: text})
	if !res.Success || res.Command != text {
		t.Fatalf("%q was not started: %v", text, err)
	}
	return res, err
}

// contract: P38, P39, P40
func TestCommandThatGoesWell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "f.txt", "content")
	res, err := b.run(t, "cat f.txt; pwd -P; echo oops >&2")
	ok(t, err)
	equal(t, "stdout", res.Stdout, "content"+b.real+"\n")
	equal(t, "stderr", res.Stderr, "oops\n")
	equal(t, "exit code", res.ExitCode, 0)
	equal(t, "bytes", res.StdoutBytes, int64(len(res.Stdout)))
	equal(t, "flags", res.Truncated || res.TimedOut || res.BackgroundLeft || res.Signal != "", false)
	equal(t, "default time", Command{}.timeout(), 30*time.Second)
}

// contract: P41, B12, B13
// case: WS-C16, WS-C17, WS-C18
func TestHowCommandsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tests := []struct {
		text   string
		code   int
		signal string
		reason string
	}{
		{"exit 3", 3, "", ReasonExitStatus},
		{"echo out; false", 1, "", ReasonExitStatus},
		{"no-such-program", 127, "", ReasonExitStatus},
		{"if", 2, "", ReasonExitStatus},
		{"exit 300", 44, "", ReasonExitStatus},
		{"exit 137", 137, "", ReasonExitStatus},
		{"kill -9 $$", 137, "SIGKILL", ReasonSignal},
		{"kill -SEGV $$", 139, "SIGSEGV", ReasonSignal},
		{`sh -c "kill -TERM $$"`, 143, "SIGTERM", ReasonSignal},
	}
	for _, tt := range tests {
		res, err := b.run(t, tt.text)
		b.refused(t, err, frames.CodeExecution, tt.reason)
		equal(t, tt.text, frames.AsError(err).Effect, frames.EffectDone)
		equal(t, tt.text, res.ExitCode, tt.code)
		equal(t, tt.text, res.Signal, tt.signal)
	}
}

// contract: P42
// case: WS-C27
func TestCommandsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tests := []struct {
		command Command
		code    frames.Code
		reason  string
	}{
		{Command{}, frames.CodeValidationInput, ReasonEmptyCommand},
		{Command{Text: " \n\t"}, frames.CodeValidationInput, ReasonEmptyCommand},
		{Command{Text: "echo a\x00b"}, frames.CodeValidationInput, ReasonInvalidCommand},
		{Command{Text: "echo \xff"}, frames.CodeValidationInput, ReasonInvalidCommand},
		{Command{Text: strings.Repeat(" ", MaxCommandBytes) + ":"}, frames.CodeTooLarge, ReasonCommandTooLong},
		{Command{Text: ":", Timeout: -1}, frames.CodeValidationInput, ReasonInvalidTimeout},
		{Command{Text: ":", Timeout: MaxTimeout + 1}, frames.CodeValidationInput, ReasonInvalidTimeout},
	}
	for _, tt := range tests {
		res, err := b.RunCommand(t.Context(), tt.command)
		b.refused(t, err, tt.code, tt.reason)
		equal(t, "effect", frames.AsError(err).Effect, frames.EffectNone)
		equal(t, "success", res.Success, false)
	}
	_, err := b.run(t, strings.Repeat(" ", MaxCommandBytes-1)+":")
	ok(t, err)
}

// contract: P39
// case: WS-C14
func TestStandardInputIsEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res, err := b.run(t, "cat; read x; echo rc=$?; (exec 3</dev/tty) 2>/dev/null || echo no terminal")
	ok(t, err)
	equal(t, "stdout", res.Stdout, "rc=1\nno terminal\n")
}

// contract: P39, B11
// case: WS-C08, WS-C10
func TestLongOutputIsCutNotKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res, err := b.run(t, `echo begin; yes | head -c 5000000; head -c 3000000 /dev/zero | tr '\0' x >&2; echo end`)
	ok(t, err)
	equal(t, "truncated", res.Truncated, true)
	equal(t, "stdout bytes", res.StdoutBytes, 5000010)
	equal(t, "stderr bytes", res.StderrBytes, 3000000)
	for _, text := range []string{res.Stdout, res.Stderr} {
		if kept := len(text); kept < 1<<20 || kept > 1<<20+100 {
			t.Errorf("kept %d bytes", kept)
		}
	}
	if !strings.HasPrefix(res.Stdout, "begin\ny\n") || !strings.HasSuffix(res.Stdout, "y\nend\n") {
		t.Error("the beginning or the end is missing")
	}
}

// contract: P39
// case: WS-C12, WS-C13
func TestOutputIsValidText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var live strings.Builder
	res, err := b.RunCommand(t.Context(), Command{
		Text:   `printf '\344\270'; sleep 0.05; printf '\255\360'; printf 'ok\377\376ok'`,
		Output: func(c Chunk) { live.WriteString(c.Text) },
	})
	ok(t, err)
	equal(t, "stdout", res.Stdout, "中\uFFFDok\uFFFD\uFFFDok")
	equal(t, "live", live.String(), res.Stdout)
	equal(t, "invalid bytes", res.InvalidBytes, 3)
}

// contract: P39
func TestLiveOutputComesWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fifo(t, "gate")
	var chunks []Chunk
	_, err := b.RunCommand(t.Context(), Command{
		Text: "echo one; read x < gate; echo two >&2",
		Output: func(c Chunk) {
			if chunks = append(chunks, c); len(chunks) == 1 {
				soft(t, os.WriteFile(b.at("work/gate"), []byte("go\n"), 0))
			}
		},
	})
	ok(t, err)
	equal(t, "chunks", len(chunks), 2)
	equal(t, "first", chunks[0], Chunk{Stream: Stdout, Text: "one\n"})
	equal(t, "second", chunks[1], Chunk{Stream: Stderr, Text: "two\n"})
}

// The command ends although the reader of its live output is stuck.
func TestSlowReaderDoesNotHoldTheCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fifo(t, "ended")
	var seen int64
	res, err := b.RunCommand(t.Context(), Command{
		Text: `head -c 400000 /dev/zero | tr '\0' x; echo > ended`,
		Output: func(c Chunk) {
			if seen == 0 {
				_, err := os.ReadFile(b.at("work/ended"))
				soft(t, err)
			}
			seen += int64(len(c.Text)) + c.Dropped
		},
	})
	ok(t, err)
	equal(t, "seen and dropped", seen, res.StdoutBytes)
}

// contract: P43, B13
// case: WS-C06
func TestTimedOutCommandIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := b.witness(t, "alive")
	res, err := b.RunCommand(t.Context(), Command{
		Text:    "exec 9>alive; trap '' TERM INT HUP; echo part; sleep 60",
		Timeout: 1500 * time.Millisecond,
	})
	b.refused(t, err, frames.CodeExecution, ReasonTimedOut)
	gone()
	equal(t, "stdout", res.Stdout, "part\n")
	equal(t, "timed out", res.TimedOut, true)
	equal(t, "exit code", res.ExitCode, 137)
	equal(t, "signal", res.Signal, "SIGKILL")
	if res.DurationMs < 2000 || res.DurationMs > 20000 {
		t.Errorf("took %d ms", res.DurationMs)
	}
}

// contract: P43
func TestStoppedCommandMayCleanUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := b.RunCommand(ctx, Command{
		Text:   "trap 'echo cleaned; exit 4' TERM; echo ready; while :; do sleep 0.02; done",
		Output: func(Chunk) { cancel() },
	})
	b.refused(t, err, frames.CodeCancelled, "")
	equal(t, "stdout", res.Stdout, "ready\ncleaned\n")
	equal(t, "exit code", res.ExitCode, 4)
	equal(t, "signal", res.Signal, "")
}

// contract: P43, B4, B13
func TestCancelledCommandIsStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := b.witness(t, "alive")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := frames.NewError(frames.CodeCancelled, "a person said stop")
	res, err := b.RunCommand(ctx, Command{
		Text:   "exec 9>alive; sleep 60 | cat & echo part; sleep 60",
		Output: func(Chunk) { cancel(cause) },
	})
	gone()
	if !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Fatalf("got %v", err)
	}
	equal(t, "stdout", res.Stdout, "part\n")
	equal(t, "signal", res.Signal, "SIGTERM")
	equal(t, "timed out", res.TimedOut, false)
	res, err = b.RunCommand(ctx, Command{Text: "echo > never"})
	equal(t, "started", res.Success, false)
	equal(t, "effect", frames.AsError(err).Effect, frames.EffectNone)
}

func TestDeadlineOfTheCallerCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	res, err := b.RunCommand(ctx, Command{Text: "sleep 60"})
	b.refused(t, err, frames.CodeTimeout, "")
	equal(t, "timed out", res.TimedOut, true)
}

// contract: P43
func TestBackgroundJobsEndWithTheCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := b.witness(t, "alive")
	res, err := b.run(t, "exec 9>alive; (trap '' TERM HUP; sleep 60) & echo started")
	ok(t, err)
	gone()
	equal(t, "stdout", res.Stdout, "started\n")
	equal(t, "left", res.BackgroundLeft, false)
	if res.DurationMs > 20000 {
		t.Errorf("the background job held the return for %d ms", res.DurationMs)
	}
}

// The shell does not wait for a process substitution; its output counts still.
func TestOutputAfterTheShellsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.settle = time.Minute // for a busy machine; the end of the output ends it
	res, err := b.run(t, "(sleep 0.1; echo late) &")
	ok(t, err)
	equal(t, "stdout", res.Stdout, "late\n")
}

// Commands do not wait for each other: the first reads what the second writes.
// contract: B13
func TestCommandsRunAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fifo(t, "gate")
	var both sync.WaitGroup
	for _, text := range []string{"read x < gate && test $x = word", "echo word > gate"} {
		both.Go(func() {
			if _, err := b.RunCommand(t.Context(), Command{Text: text}); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	both.Wait()
}

func TestWorkspaceThatWentAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ok(t, os.Rename(b.at("work"), b.at("moved")))
	_, err := b.RunCommand(t.Context(), Command{Text: "echo > never"})
	b.refused(t, err, frames.CodeUnavailable, ReasonWorkspaceGone)
	ok(t, os.Mkdir(b.at("work"), 0o755))
	_, err = b.RunCommand(t.Context(), Command{Text: "echo > never"})
	b.refused(t, err, frames.CodeUnavailable, ReasonWorkspaceGone)
	b.shell = b.at("no-shell")
	ok(t, os.Remove(b.at("work")))
	ok(t, os.Rename(b.at("moved"), b.at("work")))
	_, err = b.RunCommand(t.Context(), Command{Text: "echo > never"})
	b.refused(t, err, frames.CodeExecution, ReasonCannotStart)
}
