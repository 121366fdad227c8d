package tooltest

import (
	"context"
	"fmt"

	"github.com/nats-io/nuid"

	"github.com/weavebus/weavebus/pkg/frames"
)

func (s *suite) checkLiveness(ctx context.Context) error {
	fs, err := s.request(ctx, s.control(), frames.Meta(map[string]any{}))
	if err != nil {
		return err
	}
	if len(fs) != 1 || fs[0].Type != frames.TypeMeta {
		return fmt.Errorf("META {} was answered with %d frames, want META", len(fs))
	}
	f := s.newCall(s.cfg.Good[0])
	if _, err := s.call(ctx, frames.Msgpack, f); err != nil {
		return err
	}
	for id, want := range map[string]string{f.ToolCallID: "done", nuid.Next(): "unknown"} {
		state, err := s.whoRuns(ctx, id)
		if err != nil {
			return err
		}
		if state != want {
			return fmt.Errorf("whoRuns was answered %q, want %q", state, want)
		}
	}
	return nil
}

func (s *suite) whoRuns(ctx context.Context, id string) (string, error) {
	fs, err := s.request(ctx, s.control(), frames.Meta(map[string]any{"whoRuns": id}))
	if err != nil {
		return "", err
	}
	if len(fs) != 1 {
		return "", fmt.Errorf("whoRuns was answered with %d frames, want META", len(fs))
	}
	state, _ := fs[0].Content.Lookup("state").Text()
	return state, nil
}

// checkControl sends the instance what it does not know, and CANCEL of nothing.
func (s *suite) checkControl(ctx context.Context) error {
	for _, f := range []frames.Frame{frames.NewFrame("NEWS", nil), frames.Thinking("no", ""), frames.Cancel("", s.cfg.Tool)} {
		fs, err := s.request(ctx, s.control(), f)
		if err != nil {
			return err
		}
		if len(fs) != 1 || frames.CodeOf(fs[0].Err()) != frames.CodeBadFrame {
			return fmt.Errorf("%s was answered with %d frames, want ERROR BAD_FRAME", f.Type, len(fs))
		}
	}
	fs, err := s.request(ctx, s.control(), frames.Cancel(nuid.Next(), s.cfg.Tool))
	if err != nil {
		return err
	}
	if len(fs) != 1 || cancelling(fs[0]) != "" {
		return fmt.Errorf("CANCEL of a call that does not run was acknowledged")
	}
	return nil
}

func cancelling(f frames.Frame) string {
	id, _ := f.Content.Lookup("cancelling").Text()
	return id
}

// startSlow starts a call and waits until it runs.
func (s *suite) startSlow(ctx context.Context) (*exchange, frames.Frame, error) {
	f := s.newCall(s.cfg.Slow)
	x, err := s.open(ctx, s.subject(), frames.Msgpack, f)
	for err == nil {
		var state string
		switch state, err = s.whoRuns(ctx, f.ToolCallID); state {
		case "running":
			return x, f, err
		case "done":
			err = fmt.Errorf("the call of Config.Slow has ended by itself")
		}
	}
	return x, f, err
}

// checkRunning tries what concerns a running call: its id again, and CANCEL, to
// the instance and to all of them.
func (s *suite) checkRunning(ctx context.Context) error {
	for _, subject := range []string{s.control(), s.conn.CtlTool(s.cfg.Tool)} {
		x, f, err := s.startSlow(ctx)
		if err != nil {
			return err
		}
		defer x.close() //nolint:gocritic // of two exchanges, both are open to the end
		if err := s.checkConflict(ctx, f); err != nil {
			return err
		}
		if err := s.cancel(ctx, subject, f, x); err != nil {
			return fmt.Errorf("CANCEL on %s: %w", subject, err)
		}
	}
	return nil
}

func (s *suite) checkConflict(ctx context.Context, running frames.Frame) error {
	r, err := s.call(ctx, frames.Msgpack, running)
	if err != nil {
		return err
	}
	if r.code() != frames.CodeConflict || r.Err.Effect != frames.EffectNone {
		return fmt.Errorf("an id that still runs was answered %w, want CONFLICT", r.Err)
	}
	return nil
}

// cancel cancels a running call and reads its end.
func (s *suite) cancel(ctx context.Context, subject string, f frames.Frame, x *exchange) error {
	fs, err := s.request(ctx, subject, frames.Cancel(f.ToolCallID, f.Name))
	if err != nil {
		return err
	}
	if len(fs) != 1 || cancelling(fs[0]) != f.ToolCallID {
		return fmt.Errorf("not acknowledged with META {cancelling}")
	}
	r, err := s.finishCall(ctx, x)
	if err != nil {
		return err
	}
	if r.code() != frames.CodeCancelled {
		return fmt.Errorf("the call ended %w, want CANCELLED", r.Err)
	}
	return nil
}

// checkDrain stops the instance, while a call runs if one can.
func (s *suite) checkDrain(ctx context.Context) error {
	stopped := make(chan error, 1)
	stop := func() { stopped <- s.cfg.Stop() }
	if s.cfg.Slow == nil {
		go stop()
	} else if err := s.drainWhileRunning(ctx, stop); err != nil {
		return err
	}
	select {
	case err := <-stopped:
		if err != nil {
			return fmt.Errorf("the stop gave %w", err)
		}
	case <-ctx.Done():
		return fmt.Errorf("the instance does not stop")
	}
	_, err := s.request(ctx, s.control(), frames.Meta(map[string]any{}))
	if frames.CodeOf(err) != frames.CodeUnavailable {
		return fmt.Errorf("after the stop META {} gave %w, want UNAVAILABLE", err)
	}
	return nil
}

// drainWhileRunning stops the instance, proves that it refuses calls, and ends
// the call that runs.
func (s *suite) drainWhileRunning(ctx context.Context, stop func()) error {
	x, f, err := s.startSlow(ctx)
	if err != nil {
		return err
	}
	defer x.close()
	go stop()
	for {
		r, err := s.call(ctx, frames.Msgpack, s.newCall(s.cfg.Good[0]))
		if err != nil {
			return err
		}
		if r.code() == frames.CodeBusy {
			if r.Err.Reason != "draining" || r.Err.Effect != frames.EffectNone {
				return fmt.Errorf("a draining instance refuses with %w, reason %q, effect %s", r.Err, r.Err.Reason, r.Err.Effect)
			}
			return s.cancel(ctx, s.control(), f, x)
		}
	}
}
