package cli

import (
	"context"
	"time"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

type sessCancelCmd struct {
	ID sessionID `arg:"" help:"Session whose turn to end. It takes another one then."`
}

type sessAbortCmd struct {
	ID sessionID `arg:"" help:"Session to end. It takes no more input, and is kept."`
}

// Run ends the turn that runs; a session without one is left as it is.
func (cmd *sessCancelCmd) Run(c *console) error {
	return c.stopSession(cmd.ID, frames.NewFrame(frames.TypeCancel, nil), func(status string) bool { return !running(status) })
}

// Run closes the session, and ends its turn.
func (cmd *sessAbortCmd) Run(c *console) error {
	return c.stopSession(cmd.ID, frames.Abort(), closed)
}

// running reports whether a turn is under way.
func running(status string) bool {
	return status == "thinking" || status == "executing" || status == "waiting"
}

func closed(status string) bool { return (&client.SessionInfo{Status: status}).Closed() }

// stopSession sends what ends a session or its turn, and waits until it has.
func (c *console) stopSession(id sessionID, how frames.Frame, over func(status string) bool) error {
	return c.withMesh("", func(ctx context.Context, m *mesh) error {
		info, err := m.client.SessionInfo(ctx, string(id))
		if err != nil {
			return err
		}
		if info.Closed() {
			return frames.NewError(frames.CodeConflict, "session %s is closed already: %s", id, info.Status)
		}
		status := info.Status
		if !over(status) {
			if status, err = m.stop(ctx, info, how, over); err != nil {
				return err
			}
		}
		return c.stoppedSession(info, status)
	})
}

func (c *console) stoppedSession(was *client.SessionInfo, status string) error {
	switch {
	case c.JSON:
		return c.print(map[string]string{"session": was.ID, "was": was.Status, "status": status})
	case !running(was.Status) && status == was.Status:
		c.say("Session %s is %s: no turn runs.", was.ID, status)
	default:
		c.say("Session %s was %s and is %s now.", was.ID, was.Status, status)
	}
	return nil
}

// stop gives the status that the session comes to.
func (m *mesh) stop(ctx context.Context, info *client.SessionInfo, how frames.Frame, over func(string) bool) (string, error) {
	limited, cancel := context.WithTimeoutCause(ctx, stopWait, frames.NewError(frames.CodeTimeout,
		"session %s was told to stop, but has not within %v: a tool may still be running; see weavebus sessions show %s", info.ID, stopWait, info.ID))
	defer cancel()
	s, err := m.client.Session(limited, info.ID)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }() // the connection goes next
	id, err := s.Send(limited, how)
	if err != nil {
		return "", err
	}
	for f, err := range s.Frames(limited, info.Entries) {
		if err != nil {
			return "", err
		}
		if f.Type == frames.TypeError && f.Metadata.Text("inputId") == id {
			return "", f.Err()
		}
		if status, _ := f.Content.Lookup("state").Lookup("status").Text(); f.Entry > 0 && status != "" && over(status) {
			return status, nil
		}
	}
	closed, err := m.client.SessionInfo(limited, info.ID)
	if err != nil {
		return "", err
	}
	return closed.Status, nil
}

// stopWait is how long a session may take to stop.
const stopWait = 15 * time.Second
