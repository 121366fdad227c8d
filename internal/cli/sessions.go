package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// sessCmd looks after sessions.
type sessCmd struct {
	List   sessListCmd   `cmd:"" default:"withargs" help:"List sessions."`
	Show   sessShowCmd   `cmd:"" help:"Show a session's state and conversation."`
	Resume sessResumeCmd `cmd:"" help:"Attach to a session again, and go on with it."`
	Cancel sessCancelCmd `cmd:"" help:"End the turn that a session is in."`
	Abort  sessAbortCmd  `cmd:"" help:"End a session and what it does."`
	Delete sessDeleteCmd `cmd:"" help:"Remove a session with its history."`
}

type sessListCmd struct{}

// Run lists the sessions.
func (*sessListCmd) Run(c *console) error {
	return c.withMesh("", func(ctx context.Context, m *mesh) error {
		all, err := m.client.Sessions(ctx)
		if err != nil {
			return err
		}
		slices.SortStableFunc(all, func(a, b client.SessionInfo) int { return cmp.Compare(b.Updated, a.Updated) })
		if c.JSON {
			return c.print(append([]client.SessionInfo{}, all...))
		}
		if len(all) == 0 {
			c.noteOwn(m)
			c.say("No sessions. Begin one: weavebus run --model scripted/demo \"Describe this folder\"")
			return nil
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "SESSION\tSTATUS\tTURNS\tUPDATED\tTASK")
		for _, s := range all {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", s.ID, s.Status, s.CurrentTurn, s.UpdatedAt().Format(time.DateTime), clip(s.Task, 60))
		}
		return flush(w)
	})
}

func flush(w *tabwriter.Writer) error {
	if err := w.Flush(); err != nil {
		return frames.NewError(frames.CodeInternal, "cannot print: %w", err)
	}
	return nil
}

// sessionID is an argument that names a session.
type sessionID string

// outage is the flag of commands that follow sessions.
type outage struct {
	Outage time.Duration `name:"outage" placeholder:"DURATION" default:"30s" help:"How long to wait for a mesh that went away (30s)."`
}

func (o *outage) options() []client.ReadOption {
	return []client.ReadOption{client.OutageLimit(o.Outage)}
}

type sessShowCmd struct {
	ID sessionID `arg:"" help:"Session to show."`
}

// Run shows a session.
func (cmd *sessShowCmd) Run(c *console) error {
	return c.withMesh("", func(ctx context.Context, m *mesh) error {
		info, err := m.client.SessionInfo(ctx, string(cmd.ID))
		if err != nil {
			return err
		}
		messages, err := m.client.Messages(ctx, string(cmd.ID))
		if err != nil {
			return err
		}
		if c.JSON {
			return c.print(map[string]any{"session": info, "messages": messages})
		}
		c.say("session %s: %s, %d of %d turns, %d entries", info.ID, info.Status, info.CurrentTurn, info.MaxTurns, info.Entries)
		c.say("workspace %s\ntask %s\nupdated %s", info.Workspace, info.Task, info.UpdatedAt().Format(time.DateTime))
		c.ledger(&info.Usage)
		for i := range messages {
			c.message(&messages[i])
		}
		return nil
	})
}

func (c *console) message(m *provider.Message) {
	c.say("\n[%s]", m.Role)
	if text := m.Content(); text != "" {
		c.say("%s", text)
	}
	for _, call := range m.Calls {
		c.say("→ %s %s", call.Name, call.Arguments)
	}
}

type sessResumeCmd struct {
	outage
	ID        sessionID `arg:"" help:"Session to attach to."`
	Text      string    `arg:"" optional:"" help:"What to say next. Without it the session is shown from its beginning, until its turn is over."`
	Workspace string    `name:"workspace" short:"w" placeholder:"DIR" help:"Folder of the session's workspace, to be served where no mesh does. Default: the session's own."`
}

// Run shows the session from its beginning, and sends the text if there is one.
func (cmd *sessResumeCmd) Run(c *console) error {
	return c.withMesh(cmd.Workspace, func(ctx context.Context, m *mesh) error {
		info, err := m.client.SessionInfo(ctx, string(cmd.ID))
		if err != nil {
			return err
		}
		if info.Closed() && cmd.Text != "" {
			return frames.NewError(frames.CodeConflict, "session %s is closed: %s", cmd.ID, info.Status)
		}
		if err := cmd.serve(ctx, c, m, info); err != nil {
			return err
		}
		return cmd.follow(ctx, c, m, info)
	})
}

// follow shows the session until its turn is over; without a text, and without a
// turn that runs, what there is.
func (cmd *sessResumeCmd) follow(ctx context.Context, c *console, m *mesh, info *client.SessionInfo) error {
	s, err := m.client.Session(ctx, info.ID, cmd.options()...)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the connection goes next
	if cmd.Text != "" {
		if _, err := s.Send(ctx, frames.Text(cmd.Text)); err != nil {
			return resumable(info.ID, err)
		}
		return c.follow(ctx, s, &follower{after: info.Entries})
	}
	c.announce(info)
	f := &follower{until: info.Entries, atRest: !running(info.Status)}
	err = c.follow(ctx, s, f)
	if f.atRest && err == nil && !info.Closed() && !c.JSON {
		c.noteIdle(info.ID)
	}
	return err
}

func (c *console) noteIdle(id string) {
	c.note("session %s is idle: go on with weavebus sessions resume %s TEXT", id, id)
}

// announce says what a session waits for where that is not the mesh.
func (c *console) announce(info *client.SessionInfo) {
	switch {
	case c.JSON || !running(info.Status):
	case info.Status == "waiting":
		c.note("session %s waits for a result or a decision from outside of the mesh; weavebus sessions cancel %s ends its turn", info.ID, info.ID)
	case info.Model == "":
		c.note("session %s has no model: it waits for the program that drives it; weavebus sessions cancel %s ends its turn", info.ID, info.ID)
	}
}

// resumable says how to go on with a session after the mesh went away.
func resumable(id string, err error) error {
	if frames.CodeOf(err) != frames.CodeUnavailable {
		return err
	}
	return frames.AsError(err).With(func(e *frames.Error) {
		e.Message += fmt.Sprintf(". Nothing is lost: when the mesh is back, go on with `weavebus sessions resume %s`", id)
	})
}

// serve provides the session's own folder where no other was named.
func (cmd *sessResumeCmd) serve(ctx context.Context, c *console, m *mesh, info *client.SessionInfo) error {
	if cmd.Workspace != "" || info.Workspace == "" || info.Closed() {
		return nil
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	dir, err := c.workspaceDir(info.Workspace, state)
	if err != nil {
		return err
	}
	return c.provideWorkspace(ctx, m, state, info.Workspace, dir)
}

type sessDeleteCmd struct {
	ID    sessionID `arg:"" help:"Session to delete."`
	Force bool      `name:"force" help:"Also while its turn is running."`
}

// Run deletes a session.
func (cmd *sessDeleteCmd) Run(c *console) error {
	return c.withMesh("", func(ctx context.Context, m *mesh) error {
		if err := m.client.DeleteSession(ctx, string(cmd.ID), cmd.Force); err != nil {
			return err
		}
		if c.JSON {
			return c.print(map[string]sessionID{"deleted": cmd.ID})
		}
		c.say("Deleted session %s.", cmd.ID)
		return nil
	})
}

// watchCmd follows sessions.
type watchCmd struct {
	outage
	Session sessionID `arg:"" optional:"" help:"Session to follow. Default: all sessions of the caller, from now on."`
}

// Run follows until the session is closed, or a signal.
func (cmd *watchCmd) Run(c *console) error {
	return c.withMesh("", func(ctx context.Context, m *mesh) error {
		if cmd.Session == "" {
			c.noteWatch(m)
			return c.showAll(ctx, m.client.Watch(ctx, cmd.options()...))
		}
		if _, err := m.client.SessionInfo(ctx, string(cmd.Session)); err != nil {
			return err
		}
		s, err := m.client.Session(ctx, string(cmd.Session), cmd.options()...)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }() // the connection goes next
		return resumable(s.ID, c.showAll(ctx, s.Frames(ctx, 0)))
	})
}

// noteWatch says why nothing is seen yet.
func (c *console) noteWatch(m *mesh) {
	switch {
	case c.JSON:
	case m.host != nil:
		c.note("No mesh was running, so one was started here. It has nothing to show until a session runs on it: weavebus run … in another terminal.")
	default:
		c.note("Watching all sessions of %s from now on; Ctrl-C ends it. Past ones: weavebus sessions.", m.client.Caller())
	}
}

// showAll shows frames until their end, or a signal.
func (c *console) showAll(ctx context.Context, fs iter.Seq2[frames.Frame, error]) error {
	show, last := newDisplay(c), ""
	for f, err := range fs {
		if ctx.Err() != nil {
			return nil // a signal ends it, or the reader did, which is told elsewhere
		}
		if err != nil {
			return err
		}
		if id := f.Metadata.Text("sessionId"); id != "" && id != last && !c.JSON && f.Entry > 0 {
			show.endLine()
			c.note("session %s", id)
			last = id
		}
		if err := show.frame(&f); err != nil {
			return err
		}
	}
	return nil
}
