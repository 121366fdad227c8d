package workspace

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// termGrace is the time between TERM and KILL when a command is stopped.
	termGrace = 2 * time.Second
	// settleTime is how long the output of what a shell left running in its group
	// is waited for after the shell's end, before that is killed.
	settleTime = 100 * time.Millisecond
	// leftTime is how long a process that left the group may still hold the
	// output open.
	leftTime = 200 * time.Millisecond
)

// capture reads one output stream of a command.
type capture struct {
	r    *os.File
	keep *keeper
	eof  chan struct{}
}

// newCapture begins to read a new pipe and gives its other end.
func newCapture(limit int, tap func([]byte)) (*capture, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c := &capture{r: r, keep: newKeeper(limit, tap), eof: make(chan struct{})}
	go c.read()
	return c, w, nil
}

func (c *capture) read() {
	defer close(c.eof)
	buf := make([]byte, 32<<10)
	for {
		n, err := c.r.Read(buf)
		_, _ = c.keep.Write(buf[:n]) // a keeper never fails
		if err != nil {
			return
		}
	}
}

// finish ends the reading, whoever still holds the other end.
func (c *capture) finish() kept {
	_ = c.r.SetReadDeadline(time.Unix(1, 0))
	<-c.eof
	_ = c.r.Close()
	return c.keep.finish()
}

// ending is how a command ended.
type ending struct {
	status      syscall.WaitStatus
	stopped     bool // by the end of the context
	left        bool // a process that left the group still held the output
	out, errOut kept
}

// shell is one shell to run.
type shell struct {
	cmd    *exec.Cmd
	limit  int // bytes kept of each stream
	settle time.Duration
	output *live
}

// run runs the shell to its end, or to the end of ctx, and leaves nothing of its
// process group behind. The error says that it did not start.
func (s shell) run(ctx context.Context) (ending, error) {
	out, outEnd, err := newCapture(s.limit, s.output.tap(Stdout))
	if err != nil {
		return ending{}, err
	}
	errOut, errEnd, err := newCapture(s.limit, s.output.tap(Stderr))
	if err != nil {
		_ = outEnd.Close()
		out.finish()
		return ending{}, err
	}
	s.cmd.Stdout, s.cmd.Stderr = outEnd, errEnd
	p, err := startProcess(s.cmd)
	_, _ = outEnd.Close(), errEnd.Close()
	var end ending
	if err == nil {
		end = p.supervise(ctx, s.settle, out.eof, errOut.eof)
	}
	end.out, end.errOut = out.finish(), errOut.finish()
	return end, err
}

// supervise waits for the command, stops it when ctx ends, kills what is left of
// its group and reaps it. The channels are closed at the end of its output.
func (p *process) supervise(ctx context.Context, settle time.Duration, eof ...<-chan struct{}) (end ending) {
	select {
	case <-p.exited:
		waitAll(settle, eof...)
	case <-ctx.Done():
		end.stopped = true
		p.signal(syscall.SIGTERM)
		waitAll(termGrace, append(eof, p.exited)...)
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
	end.left = !waitAll(leftTime, eof...)
	end.status = p.reap()
	return end
}

// sameDir says whether dir is still the directory that info was taken of.
func sameDir(dir string, info os.FileInfo) error {
	now, err := os.Stat(dir)
	if err == nil && !os.SameFile(now, info) {
		err = errors.New("another directory has its name now")
	}
	return err
}
