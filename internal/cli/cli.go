// Package cli is the command line of weavebus. It is the one place, with
// internal/app, that reads the environment and the signals of the process.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Exit codes that are not those of an error code.
const (
	exitOK    = 0
	exitUsage = 2
	exitHard  = 3
)

// commands is the grammar of the command line.
type commands struct {
	globals

	Run     runCmd     `cmd:"" help:"Give a task to an agent and stream what happens until the answer."`
	Up      upCmd      `cmd:"" help:"Run a whole mesh in this process, with an embedded NATS server."`
	Serve   serveCmd   `cmd:"" help:"Run some roles of a mesh against a NATS server."`
	Init    initCmd    `cmd:"" help:"Make the streams and buckets of a mesh on a NATS server."`
	Call    callCmd    `cmd:"" help:"Call a tool."`
	Tools   toolsCmd   `cmd:"" help:"List the tools of a mesh, show one, or switch it off and on."`
	Sess    sessCmd    `cmd:"" name:"sessions" help:"List sessions, or show, resume, stop or delete one."`
	Watch   watchCmd   `cmd:"" help:"Follow sessions as they run."`
	Frame   frameCmd   `cmd:"" help:"Encode and decode frames."`
	Doctor  doctorCmd  `cmd:"" help:"Check that a mesh is well, and say what to do where it is not."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// globals are the flags that every command has.
type globals struct {
	meshFlags `group:"Mesh"`
	models    `group:"Models"`
	hookFlags `group:"Hooks"`

	Config   string `name:"config" placeholder:"FILE" help:"YAML file with flags by their names. Default: $XDG_CONFIG_HOME/weavebus/config.yaml, if it is there." env:"WEAVEBUS_CONFIG"`
	JSON     bool   `name:"json" help:"Print for machines: one JSON value, or one a line." env:"WEAVEBUS_JSON"`
	LogLevel string `name:"log-level" help:"Log at this level and above (debug, info, warn, error)." enum:"debug,info,warn,error" default:"warn" env:"WEAVEBUS_LOG_LEVEL"`
}

// meshFlags say which mesh, and who speaks to it.
type meshFlags struct {
	NATS   string `name:"nats" placeholder:"URL" help:"NATS server to use. Default: the mesh that runs on the state folder, else one started in this process." env:"WEAVEBUS_NATS"`
	Nkey   string `name:"nkey" placeholder:"FILE" help:"File with the nkey seed of the identity. Default: that of the state folder." env:"WEAVEBUS_NKEY"`
	As     string `name:"as" placeholder:"CALLER" help:"Caller to speak as." default:"me" env:"WEAVEBUS_AS"`
	Prefix string `name:"prefix" placeholder:"wb" help:"Prefix of the mesh's subjects. Default: that of the mesh that is joined, else wb." env:"WEAVEBUS_PREFIX"`
	Mesh   string `name:"mesh" help:"Name of the mesh: it chooses the state folder." default:"default" env:"WEAVEBUS_MESH"`
	State  string `name:"state" placeholder:"DIR" help:"State folder. Default: $XDG_STATE_HOME/weavebus/MESH, or ~/.local/state/weavebus/MESH." env:"WEAVEBUS_STATE"`
}

// console is what a command talks to.
type console struct {
	*globals

	in       io.Reader
	out, err *screen
	log      *slog.Logger
	// live: out is a terminal; errLive: err is one; inLive: in is one.
	live, errLive, inLive bool
	signals               <-chan os.Signal
	// anyPrefix: none was asked for, so that of the mesh that is joined holds.
	anyPrefix bool
}

// Main runs the command line with the process's own streams, environment and
// signals, and gives the exit code of PROTOCOL section 6.
func Main(args []string) int {
	signals, stop := app.Notify()
	defer stop()
	// A reader that goes away fails the write, instead of ending the process in
	// the middle of its work: the command cleans up first.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c := &console{
		in: os.Stdin, out: newScreen(os.Stdout), err: newSideScreen(os.Stderr), signals: signals,
		live: isTerminal(os.Stdout), errLive: isTerminal(os.Stderr), inLive: isTerminal(os.Stdin),
	}
	return c.main(args)
}

func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd()))
}

// help shows a command's own flags; those that every command has stand in the help
// of the whole only.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if ctx.Selected() == nil {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	for _, f := range ctx.Model.Flags {
		f.Hidden = f.Hidden || f.Name != "help" && f.Name != "json"
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintln(ctx.Stdout, "\nFlags that every command has, such as --nats, --as, --state and --scripts: weavebus --help")
	return err
}

// exited is how kong's help and version leave: it is caught in main.
type exited int

// main runs a command; output that could not be written is a failure too.
func (c *console) main(args []string) int {
	code := c.command(args)
	if err := c.out.failure(); err != nil && code == exitOK {
		return c.fail(err)
	}
	return code
}

func (c *console) command(args []string) (code int) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(exited)
			if !ok {
				panic(p)
			}
			code = int(e)
		}
	}()
	var grammar commands
	c.globals = &grammar.globals
	if err := readable(args); err != nil {
		return c.usage(err)
	}
	files, err := configFiles(args)
	if err != nil {
		return c.usage(err)
	}
	parser, err := kong.New(&grammar, kong.Name("weavebus"), kong.Writers(c.out, c.err),
		kong.Description("A message-bus mesh for the tools of LLM agents."),
		kong.UsageOnError(), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Help(help),
		kong.Resolvers(files...), kong.Bind(c))
	if err != nil {
		return c.fail(frames.NewError(frames.CodeInternal, "command line: %w", err))
	}
	ctx, err := parser.Parse(spelled(args))
	if err == nil {
		err = refuseEmpty(ctx)
	}
	switch {
	case c.out.failure() != nil: // of the help
		return c.fail(c.out.failure())
	case err != nil:
		return c.usage(err)
	}
	c.out.setExact(c.JSON)
	c.settlePrefix()
	command, _, _ := strings.Cut(ctx.Command(), " ")
	c.log = c.logger(command == "up" || command == "serve")
	return c.fail(ctx.Run())
}

// spelled puts what people try first into the words of the grammar.
func spelled(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

// readable refuses arguments that are no text: reading them would put other
// characters in the place of what was said.
func readable(args []string) error {
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			return fmt.Errorf("the argument %q is not UTF-8", jsontext.Clip(arg, 64))
		}
	}
	return nil
}

func (c *console) settlePrefix() {
	if c.anyPrefix = c.Prefix == ""; c.anyPrefix {
		c.Prefix = bus.DefaultPrefix
	}
}

func (c *console) usage(err error) int {
	fmt.Fprintf(c.err, "weavebus: %v\n", err)
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		command := strings.TrimSpace("weavebus " + parse.Context.Command())
		if strings.HasPrefix(command, "weavebus run ") && strings.HasPrefix(err.Error(), "unexpected argument") {
			fmt.Fprintln(c.err, "A task of several words is one argument: quote it.")
		}
		fmt.Fprintf(c.err, "Try %q.\n", strings.Split(command, " <")[0]+" --help")
	}
	return exitUsage
}

// logger writes text for people, and JSON where a service runs without a terminal.
func (c *console) logger(service bool) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // the grammar allows known levels only
	opts := &slog.HandlerOptions{Level: level}
	if service && !c.errLive {
		return slog.New(slog.NewJSONHandler(c.err, opts))
	}
	return slog.New(slog.NewTextHandler(c.err, opts))
}

// exitError is an end that was reported already, or needs no words.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// fail prints an error and gives its exit code.
func (c *console) fail(err error) int {
	if err == nil {
		return exitOK
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	e := frames.AsError(err)
	if lost := c.out.failure(); lost != nil && e.Code == frames.CodeInternal {
		e = frames.AsError(lost)
	}
	if c.globals != nil && c.JSON {
		c.err.setExact(true)
		text, _ := json.Marshal(e) //nolint:errchkjson // an Error always has a JSON form
		fmt.Fprintf(c.err, "{\"error\":%s}\n", text)
		return e.Code.ExitCode()
	}
	if e.Reason == reasonUsage {
		return c.usage(errors.New(e.Message))
	}
	if e.Reason == reasonOutput {
		c.note("weavebus: %s", e.Message)
		return e.Code.ExitCode()
	}
	fmt.Fprintf(c.err, "weavebus: %s: %s\n", e.Code, e.Message)
	if hint := strings.TrimPrefix(e.LLMMessage, e.Message+". "); e.Code == frames.CodeNotFound && hint != "" && hint != e.Message {
		fmt.Fprintf(c.err, "  %s\n", hint)
	}
	if len(e.Issues) > 1 {
		for _, i := range e.Issues {
			fmt.Fprintf(c.err, "  - %s: %s\n", orRoot(i.Path), i.Message)
		}
	}
	return e.Code.ExitCode()
}

func orRoot(path string) string {
	if path == "" {
		return "(root)"
	}
	return path
}

// context gives one that the first signal cancels, or output that cannot be
// written; a signal after that ends the process at once with exit code 3.
func (c *console) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		select {
		case <-c.signals:
			cancel(frames.NewError(frames.CodeCancelled, "interrupted"))
		case <-c.out.broken:
			cancel(c.out.failure())
		case <-c.err.broken:
			cancel(c.err.failure())
		case <-done:
			return
		}
		select {
		case <-c.signals:
			fmt.Fprintln(c.err, "weavebus: stopped at once")
			os.Exit(exitHard)
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		cancel(context.Canceled)
	}
}

// print writes a value as one line of JSON.
func (c *console) print(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return frames.NewError(frames.CodeInternal, "cannot print: %w", err)
	}
	return nil
}

func (c *console) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

// note tells a person something that is not the command's output.
func (c *console) note(format string, args ...any) { fmt.Fprintf(c.err, format+"\n", args...) }
