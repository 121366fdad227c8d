package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// runCmd gives a task to an agent.
type runCmd struct {
	Task string `arg:"" help:"What the agent is to do."`

	Model         string   `name:"model" short:"m" placeholder:"PROVIDER/MODEL" help:"Model to use, such as scripted/demo or openai/gpt-5-mini." required:"" env:"WEAVEBUS_MODEL"`
	Workspace     string   `name:"workspace" short:"w" placeholder:"NAME|DIR" help:"Workspace to work on. A folder is served for the run where no mesh does." default:"."`
	Session       string   `name:"session" placeholder:"ID" help:"Id for the new session. Default: a new one."`
	System        string   `name:"system" placeholder:"TEXT" help:"System prompt."`
	Tools         []string `name:"tools" placeholder:"NAME" help:"Tools that the model may use, names or patterns. Default: all."`
	MaxIterations *int     `name:"max-iterations" placeholder:"N" help:"Rounds of tool calls. Default: 50."`
	outage
	Keep  bool     `name:"keep" help:"Leave the session open after the answer, for weavebus sessions resume."`
	Param []string `name:"param" placeholder:"KEY=VALUE" help:"Further parameter of the run or setting of the model; KEY:=JSON takes JSON."`
}

// Help is shown under --help.
func (*runCmd) Help() string {
	return `What happens goes to stderr, the model's text to stdout. With --json every frame of the session goes to stdout, one a line.

Examples:
  weavebus run --model scripted/demo --workspace . "Describe this folder"
  weavebus run --model openai/gpt-5-mini --param temperature:=0 "Fix the failing test"

Ctrl-C cancels the turn; the session is kept. A second one ends the process at once.`
}

// Run runs the task in a session of its own.
func (cmd *runCmd) Run(c *console) error {
	ctx, stop := c.context()
	defer stop()
	m, err := c.open(ctx, cmd.Workspace)
	if err != nil {
		return err
	}
	defer m.close()
	s, err := m.client.Session(ctx, cmd.Session, cmd.options()...)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the connection goes next
	setup, err := cmd.begin(ctx, c, m, s)
	if err != nil {
		return err
	}
	f := &follower{task: true, keep: cmd.Keep, setup: setup, say: cmd.Task}
	err = c.follow(ctx, s, f)
	if f.rests && !c.JSON {
		c.noteIdle(s.ID)
	}
	m.host.waitForGuests(ctx)
	return err
}

// begin sends the parameters with START; the task follows once they are taken.
func (cmd *runCmd) begin(ctx context.Context, c *console, m *mesh, s *client.Session) ([]frames.Frame, error) {
	params, err := cmd.params(m)
	if err != nil {
		return nil, err
	}
	if !c.JSON {
		c.noteModels(m, cmd.Model)
		if err := cmd.noteTools(ctx, c, m); err != nil {
			return nil, err
		}
		c.note("session %s · %s · %s", s.ID, cmd.Model, cmd.Workspace)
	}
	setup := slices.Concat(params, []frames.Frame{frames.Start()})
	_, err = s.Send(ctx, setup...)
	return setup, err
}

// noteTools names what --tools asks for and is not there: the model will not miss it.
func (cmd *runCmd) noteTools(ctx context.Context, c *console, m *mesh) error {
	if len(cmd.Tools) == 0 {
		return nil
	}
	ready, err := m.client.Tools(ctx, client.InState(client.StateReady), client.Named(cmd.Tools...))
	if err == nil {
		c.noteMissing(cmd.Tools, ready)
	}
	return err
}

// noteModels says where a setting of this command does not reach the mesh.
func (c *console) noteModels(m *mesh, model string) {
	if m.joined == nil {
		return
	}
	if setting := c.otherModels(model, m.joined.Models); setting != "" {
		c.note("The mesh that runs was started without this %s; its own setting holds. To change that, stop weavebus up and start it again with this one.", setting)
	}
}

func (cmd *runCmd) params(m *mesh) ([]frames.Frame, error) {
	fs := []frames.Frame{
		frames.Param("model", cmd.Model), frames.Param("workspace", m.workspace), frames.Param("task", cmd.Task),
	}
	if cmd.System != "" {
		fs = append(fs, frames.Param("systemPrompt", cmd.System))
	}
	if len(cmd.Tools) > 0 {
		fs = append(fs, frames.Param("tools", cmd.Tools))
	}
	if cmd.MaxIterations != nil {
		fs = append(fs, frames.Param("maxIterations", *cmd.MaxIterations))
	}
	for _, p := range cmd.Param {
		key, value, isJSON, err := splitPair(p)
		if err != nil {
			return nil, err
		}
		if !isJSON {
			fs = append(fs, frames.Param(key, value))
			continue
		}
		raw, err := frames.FromJSON([]byte(value))
		if err != nil {
			return nil, frames.NewError(frames.CodeValidationInput, "%s:= wants JSON, got %q", key, value)
		}
		fs = append(fs, frames.Param(key, raw))
	}
	return fs, nil
}

// follower shows one session until its turn is over.
type follower struct {
	// task: END the session after the answer, unless keep.
	task, keep bool
	// after is the last entry that was shown already; until is one up to which
	// everything is past: a turn that ended before is not the one to wait for.
	after, until uint64
	// atRest: no turn runs, so there is nothing to wait for behind until.
	atRest bool
	// setup is what START was sent with; say follows when it is taken. A parameter
	// that is refused must not leave a turn that runs without it, or none to wait for.
	setup []frames.Frame
	say   string

	show    *display
	failed  error
	closing bool       // END was sent
	rests   bool       // the turn is over, and the session takes another
	last    frames.Raw // META {state}'s newest
}

// follow shows a session's frames until its turn, or the session, is over. An
// ended ctx cancels the turn.
func (c *console) follow(ctx context.Context, s *client.Session, f *follower) error {
	f.show = newDisplay(c)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	cancelled := context.AfterFunc(ctx, func() { c.cancelTurn(s, f.ending(ctx), stop) })
	defer cancelled()
	for frame, err := range s.Frames(reading, f.after) {
		if err != nil {
			return resumable(s.ID, orCause(ctx, err))
		}
		if err := f.display(c, &frame); err != nil {
			return err
		}
		switch done, err := f.take(ctx, s, &frame); {
		case err != nil && ctx.Err() != nil && !done:
			// What was being sent may have been taken: the session's own word ends it.
		case err != nil:
			return f.broken(ctx, s.ID, err)
		case done:
			return nil
		}
	}
	return f.failed
}

// display shows a frame. The error that the command ends with is left to its end.
func (f *follower) display(c *console, frame *frames.Frame) error {
	if c.JSON || frame.Type != frames.TypeError || frame.Entry <= f.until {
		return f.show.frame(frame)
	}
	f.show.endLine()
	if f.failed != nil {
		c.note("! %v", f.failed)
	}
	return nil
}

// broken tells a failure of the session from one of the way to it.
func (f *follower) broken(ctx context.Context, id string, err error) error {
	if f.failed != nil && errors.Is(err, f.failed) {
		return err
	}
	return resumable(id, orCause(ctx, err))
}

func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return frames.AsError(context.Cause(ctx))
	}
	return err
}

// ending gives the frame that ends what the command began: the turn alone where
// the session is to be kept, or where a person may want to go on with it. A
// session of which nobody reads the answer is closed.
func (f *follower) ending(ctx context.Context) frames.Frame {
	if f.task && !f.keep && frames.AsError(context.Cause(ctx)).Reason == reasonOutput {
		return frames.Abort()
	}
	return frames.NewFrame(frames.TypeCancel, nil)
}

// cancelTurn asks to end the turn. The session is read on until that is seen;
// where nobody answers, no longer than cancelWait.
func (c *console) cancelTurn(s *client.Session, how frames.Frame, stop context.CancelFunc) {
	if c.errLive {
		c.note("") // the terminal shows ^C where the cursor is
	}
	c.note("cancelling …")
	ctx, cancel := context.WithTimeout(context.Background(), cancelWait)
	defer cancel()
	if _, err := s.Send(ctx, how); err != nil {
		stop()
		return
	}
	context.AfterFunc(ctx, stop)
	<-ctx.Done()
}

// take sees how far the session is.
func (f *follower) take(ctx context.Context, s *client.Session, frame *frames.Frame) (done bool, err error) {
	if frame.Entry == 0 {
		return false, nil
	}
	switch frame.Type {
	case frames.TypeError:
		if frame.Entry > f.until || f.atRest { // else it was another turn's
			f.failed = frame.Err()
		}
		if f.refuses(frame) {
			return true, f.giveUp(ctx, s)
		}
	case frames.TypeEnd:
		return true, f.end(frame)
	case frames.TypeMeta:
		done, err = f.state(ctx, s, frame)
	}
	return done || f.atRest && frame.Entry >= f.until && frame.Last, err
}

// state waits for the turn that was started to be over.
func (f *follower) state(ctx context.Context, s *client.Session, frame *frames.Frame) (done bool, err error) {
	if now := frame.Content.Lookup("state"); !now.Absent() {
		f.last = now
	}
	state := f.last // entries that change nothing say nothing of it
	status, _ := state.Lookup("status").Text()
	turn, _ := state.Lookup("currentTurn").Int64()
	switch {
	case frame.Entry < f.until:
	case status == "idle" && f.setup != nil:
		f.setup = nil
		if ctx.Err() != nil { // before there was a turn
			return f.ending(ctx).Type == frames.TypeCancel, f.outcome(ctx, state)
		}
		_, err := s.Send(ctx, frames.Text(f.say))
		return false, err
	case status == "idle" && turn > 0:
		if !f.task || f.keep || ctx.Err() != nil {
			f.rests = true
			return true, f.outcome(ctx, state)
		}
		if f.closing {
			return false, nil
		}
		f.closing = true
		_, err := s.Send(ctx, frames.End(frames.EndCompleted))
		return false, err
	}
	return false, nil
}

// refuses reports whether an ERROR is about a frame of the setup.
func (f *follower) refuses(frame *frames.Frame) bool {
	id := frame.Metadata.Text("inputId")
	return slices.ContainsFunc(f.setup, func(sent frames.Frame) bool { return sent.ID == id })
}

// giveUp closes a session that did not start.
func (f *follower) giveUp(ctx context.Context, s *client.Session) error {
	if _, err := s.Send(ctx, frames.Abort()); err != nil {
		return errors.Join(f.failed, err)
	}
	return f.failed
}

func (f *follower) outcome(ctx context.Context, state frames.Raw) error {
	reason, _ := state.Lookup("reason").Text()
	switch {
	case ctx.Err() != nil:
		return frames.AsError(context.Cause(ctx))
	case f.failed != nil:
		return f.failed
	case reason == "" || reason == frames.EndCompleted:
		return nil
	}
	return endError(reason)
}

func (f *follower) end(frame *frames.Frame) error {
	switch reason := frame.Reason(); {
	case f.failed != nil:
		return f.failed
	case reason == frames.EndCompleted:
		return nil
	default:
		return endError(reason)
	}
}

// endError is what an END other than completed exits with.
func endError(reason string) error {
	switch reason {
	case frames.EndCancelled:
		return frames.NewError(frames.CodeCancelled, "the session was cancelled")
	case frames.EndLimit, frames.EndMaxTurns:
		return frames.NewError(frames.CodeLimit, "the session ended at a limit: %s", strings.ReplaceAll(reason, "_", " "))
	}
	return frames.NewError(frames.CodeExecution, "the session ended: %s", reason)
}
