package hook

import (
	"context"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Remote names a policy service that answers on wb.hook.<name> at the phases.
// Where nobody answers there, a gate denies. Tools and Timeout of the hook may be
// set.
func Remote(name string, phases ...Phase) Hook {
	return Hook{Name: name, remote: phases}
}

// On gives the hook as it is run by a dispatcher with its connection: that of
// [Remote] asks over it, others are as they were.
func (h Hook) On(conn *bus.Conn) Hook {
	r := remote{conn: conn, name: h.Name}
	for _, p := range h.remote {
		switch p {
		case PhaseBefore:
			h.Before = r.before
		case PhaseAfter:
			h.After = r.after
		case PhaseError:
			h.OnError = r.onError
		case PhaseObserve:
			h.Observe = r.observe
		}
	}
	return h
}

// remote asks a policy service.
type remote struct {
	conn *bus.Conn
	name string
}

func (r remote) before(ctx context.Context, c *Call) (Decision, error) {
	fs, err := r.ask(ctx, PhaseBefore, c, nil)
	if err != nil {
		return Decision{}, err
	}
	return decisionFrom(fs)
}

func (r remote) after(ctx context.Context, c *Call, res *frames.ToolResult) (Outcome, error) {
	return r.outcome(ctx, PhaseAfter, c, res)
}

func (r remote) onError(ctx context.Context, c *Call, res *frames.ToolResult) (Outcome, error) {
	return r.outcome(ctx, PhaseError, c, res)
}

func (r remote) outcome(ctx context.Context, p Phase, c *Call, res *frames.ToolResult) (Outcome, error) {
	fs, err := r.ask(ctx, p, c, res)
	if err != nil {
		return Outcome{}, err
	}
	return outcomeFrom(fs)
}

func (r remote) observe(ctx context.Context, c *Call, res *frames.ToolResult) error {
	_, err := r.ask(ctx, PhaseObserve, c, res)
	return err
}

// ask sends a request, in JSON, which every language reads, and gives what is
// answered before END, as far as that can be right: no further than a second
// frame.
func (r remote) ask(ctx context.Context, p Phase, c *Call, res *frames.ToolResult) ([]frames.Frame, error) {
	x, err := r.conn.Open(ctx, r.conn.Hook(r.name), frames.JSON, request(r.name, p, c, res)...)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	var got []frames.Frame
	for f, err := range x.All(ctx) {
		switch {
		case frames.CodeOf(err) == frames.CodeUnavailable:
			return nil, r.missing()
		case err != nil:
			return nil, err
		}
		switch f.Type {
		case frames.TypeEnd:
			return got, nil
		case frames.TypeError:
			return nil, f.Err()
		case frames.TypeTick:
		default:
			if got = append(got, f); len(got) > 1 {
				return got, nil // it is at fault whatever follows, and much might
			}
		}
	}
	return nil, badAnswer("it broke off")
}

func (r remote) missing() *frames.Error {
	return frames.NewError(frames.CodeUnavailable,
		"nobody answers on %s: start its policy service, or take the hook away", r.conn.Hook(r.name))
}
