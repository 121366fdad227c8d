package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// callCmd calls a tool.
type callCmd struct {
	Tool      string         `arg:"" help:"Tool to call."`
	Pairs     []string       `arg:"" optional:"" name:"arguments" help:"Arguments: key=value (typed by the tool's schema) or key:=json."`
	Args      string         `name:"args" placeholder:"JSON" help:"All arguments as one JSON object; - reads it from stdin."`
	Workspace string         `name:"workspace" short:"w" placeholder:"NAME|DIR" help:"Workspace that the call is about. A folder is served for the call where no mesh does."`
	Timeout   *time.Duration `name:"timeout" placeholder:"DURATION" help:"Shorten the tool's time-out."`
}

// Help is shown under --help.
func (*callCmd) Help() string {
	return `Examples:
  weavebus call read_file path=README.md --workspace .
  weavebus call run_command command='go test ./...' --workspace . --timeout 2m
  echo '{"path":"a.txt","content":"hi"}' | weavebus call write_file --args - --workspace .

The output of a running tool goes to stderr, its result to stdout.`
}

// Run calls the tool.
func (cmd *callCmd) Run(c *console) error {
	ctx, stop := c.context()
	defer stop()
	args, err := cmd.given(ctx, c)
	if err != nil {
		return err
	}
	m, err := c.open(ctx, cmd.Workspace)
	if err != nil {
		return err
	}
	defer m.close()
	return cmd.call(ctx, c, m, args)
}

// given reads the arguments of --args; nil where there are pairs, or none.
func (cmd *callCmd) given(ctx context.Context, c *console) (json.RawMessage, error) {
	text := []byte(cmd.Args)
	switch cmd.Args {
	case "":
		return nil, nil
	case "-":
		var err error
		if text, err = c.readInput(ctx, "--args -", maxArguments); err != nil {
			return nil, err
		}
	}
	return jsonArguments(text)
}

func (cmd *callCmd) call(ctx context.Context, c *console, m *mesh, args json.RawMessage) error {
	if most := m.client.Conn().InlineLimit(); len(args) > most {
		return tooLong(most)
	}
	if len(cmd.Pairs) > 0 {
		t, err := m.client.Tool(ctx, cmd.Tool)
		if err != nil {
			return err
		}
		if args, err = pairArguments(t.Schema, cmd.Pairs); err != nil {
			return err
		}
	}
	var opts []client.CallOption
	if m.workspace != "" {
		opts = append(opts, client.WithWorkspace(m.workspace))
	}
	if cmd.Timeout != nil {
		opts = append(opts, client.WithTimeout(*cmd.Timeout))
	}
	return enabling(cmd.Tool, c.showCall(m.client.CallStream(ctx, cmd.Tool, args, opts...)))
}

// enabling says how a disabled tool is had back.
func enabling(tool string, err error) error {
	if frames.CodeOf(err) != frames.CodeDisabled {
		return err
	}
	return frames.AsError(err).With(func(e *frames.Error) {
		e.Message += ": an operator switched it off; weavebus tools enable " + tool + " switches it on again"
	})
}

// showCall shows what a running tool says, and its result.
func (c *console) showCall(call iter.Seq2[frames.Frame, error]) error {
	var out toolOutput
	for f, err := range call {
		if err != nil {
			out.end(c)
			return err
		}
		if f.Type != frames.TypeToolResult {
			out.show(c, &f)
			continue
		}
		out.end(c)
		res, err := f.Result()
		if err != nil {
			return err
		}
		return c.printResult(res)
	}
	return frames.NewError(frames.CodeNoResult, "the call ended without a result")
}

// toolOutput is what a running tool says, on stderr.
type toolOutput struct{ open bool } // open: the line is not ended

func (o *toolOutput) show(c *console, f *frames.Frame) {
	switch text := f.Text(); {
	case c.JSON:
	case f.Type == frames.TypeProgress:
		o.end(c)
		c.note("%s", progressLine(f))
	case text != "":
		fmt.Fprint(c.err, text)
		o.open = !strings.HasSuffix(text, "\n")
	}
}

func (o *toolOutput) end(c *console) {
	if o.open {
		c.note("")
	}
	o.open = false
}

// progressLine gives "1/2 reading", as far as a PROGRESS says.
func progressLine(f *frames.Frame) string {
	line := ""
	if done, ok := f.Content.Lookup("progress").Float64(); ok {
		line = strconv.FormatFloat(done, 'g', -1, 64)
		if total, ok := f.Content.Lookup("total").Float64(); ok {
			line += "/" + strconv.FormatFloat(total, 'g', -1, 64)
		}
	}
	message, _ := f.Content.Lookup("message").Text()
	return strings.TrimSpace(line + " " + message)
}

// printResult prints a call's result and gives its error the exit code.
func (c *console) printResult(res *frames.ToolResult) error {
	if c.JSON {
		f := frames.Result(res)
		text, err := f.ContentJSON()
		if err != nil {
			return err
		}
		c.say("%s", text)
		if res.Err != nil {
			return exitError(res.Err.Code.ExitCode())
		}
		return nil
	}
	if len(res.Parts) > 0 {
		c.say("%s", partsText(res.Parts))
	} else if res.Result != nil {
		c.say("%s", indent(res.Result))
	}
	if res.Err != nil {
		return res.Err
	}
	return nil
}

func partsText(parts []frames.Part) string {
	lines := make([]string, len(parts))
	for i, p := range parts {
		if lines[i] = p.Text; p.Text == "" {
			lines[i] = fmt.Sprintf("[%s %s, %d bytes]", p.Type, p.MediaType, len(p.Data))
		}
	}
	return strings.Join(lines, "\n")
}
