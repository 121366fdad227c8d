package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// termGrace is the time between TERM and KILL when a program is stopped.
	termGrace = 2 * time.Second
	// settleTime is how long the output of what a program left running in its group
	// is waited for after the program's end, before that is killed.
	settleTime = 100 * time.Millisecond
	// leftTime is how long a process that left the group may still hold the
	// output open.
	leftTime = 200 * time.Millisecond
)

// DefaultOutputBytes is what is kept of each output stream where nothing else is asked for.
const DefaultOutputBytes = 1 << 20

var errNotAbsolute = errors.New("the program's path is not absolute")

// Program is a program to run.
type Program struct {
	// Path is the executable's file, absolute: it is not searched for.
	Path string
	// Args are its arguments, without its own name.
	Args []string
	// Dir is where it runs. Default: where the process does.
	Dir string
	// Env is its whole environment; see [Environment]. Default: empty.
	Env []string
	// User is who it runs as; see [UserFor]. Default: the process's own.
	User User
	// Input is its standard input. Default: empty.
	Input []byte
	// OutputBytes is how much is kept of each output stream. Default
	// [DefaultOutputBytes].
	OutputBytes int
	// Settle is how long output is waited for after the program's own end.
	// Default 100 ms.
	Settle time.Duration
	// Output gets the output while the program runs, in calls one after the
	// other; a slow one loses chunks. Run returns after the last call returned.
	// Default nil: nobody listens.
	Output func(Chunk)
}

// Ending is how a program ended.
type Ending struct {
	// Stopped says that the end of the context ended it.
	Stopped bool
	// Left says that a process that left its group still held its output.
	Left bool
	// Stdout and Stderr are what it put out.
	Stdout, Stderr Kept
	// Took is how long it ran.
	Took time.Duration

	status syscall.WaitStatus
}

// ExitCode is that of the program; 128 + the signal's number where a signal ended it.
func (e *Ending) ExitCode() int {
	if e.status.Signaled() {
		return 128 + int(e.status.Signal())
	}
	return e.status.ExitStatus()
}

// Signal is the name of the signal that ended the program, like "SIGKILL"; empty
// where none did.
func (e *Ending) Signal() string {
	if !e.status.Signaled() {
		return ""
	}
	sig := e.status.Signal()
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}

// Run runs the program to its end and leaves nothing of its process group behind.
// When ctx ends, the group gets TERM and, two seconds later, KILL; what is still
// in the group at the end of the program is killed too. The error says that it
// did not start.
func (p Program) Run(ctx context.Context) (Ending, error) {
	output := newLive(p.Output)
	defer output.close()
	begin := time.Now()
	end, err := p.run(ctx, output)
	end.Took = time.Since(begin)
	return end, err
}

func (p Program) run(ctx context.Context, output *live) (Ending, error) {
	if !filepath.IsAbs(p.Path) {
		return Ending{}, errNotAbsolute
	}
	s, err := p.openStreams(output)
	if err != nil {
		return Ending{}, err
	}
	cmd := &exec.Cmd{
		Path: p.Path, Args: append([]string{p.Path}, p.Args...), Dir: p.Dir, Env: append([]string{}, p.Env...),
		Stdout: s.theirs[1], Stderr: s.theirs[2], SysProcAttr: processAttributes(p.User),
	}
	if in := s.theirs[0]; in != nil {
		cmd.Stdin = in
	}
	leader, err := startProcess(cmd)
	s.closeTheirs()
	var end Ending
	if err == nil {
		end = leader.supervise(ctx, p.settle(), s.out.eof, s.errOut.eof)
	}
	s.in.finish()
	end.Stdout, end.Stderr = s.out.finish(), s.errOut.finish()
	return end, err
}

func (p Program) settle() time.Duration {
	if p.Settle == 0 {
		return settleTime
	}
	return p.Settle
}

// streams are the standard streams of a program: our ends, and those that it gets.
type streams struct {
	in          *feed
	out, errOut *capture
	theirs      [3]*os.File
}

func (p Program) openStreams(output *live) (*streams, error) {
	limit := p.OutputBytes
	if limit == 0 {
		limit = DefaultOutputBytes
	}
	s := &streams{}
	var err error
	if s.in, s.theirs[0], err = newFeed(p.Input); err != nil {
		return nil, err
	}
	if s.out, s.theirs[1], err = newCapture(limit, output.tap(Stdout)); err == nil {
		s.errOut, s.theirs[2], err = newCapture(limit, output.tap(Stderr))
	}
	if err != nil {
		s.closeTheirs()
		s.in.finish()
		s.out.finish()
		return nil, err
	}
	return s, nil
}

func (s *streams) closeTheirs() {
	for _, f := range s.theirs {
		if f != nil {
			_ = f.Close() // the program has its own
		}
	}
}

// supervise waits for the program, stops it when ctx ends, kills what is left of
// its group and reaps it. The channels are closed at the end of its output.
func (p *process) supervise(ctx context.Context, settle time.Duration, eof ...<-chan struct{}) (end Ending) {
	select {
	case <-p.exited:
		waitAll(settle, eof...)
	case <-ctx.Done():
		end.Stopped = true
		p.signal(syscall.SIGTERM)
		waitAll(termGrace, append(eof, p.exited)...)
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
	end.Left = !waitAll(leftTime, eof...)
	end.status = p.reap()
	return end
}
