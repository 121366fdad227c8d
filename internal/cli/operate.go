package cli

import (
	"context"
	"time"

	"github.com/weavebus/weavebus/pkg/client"
)

type toolsDisableCmd struct {
	Tools []string `arg:"" name:"tool" help:"Tools to switch off."`
}

type toolsEnableCmd struct {
	Tools []string `arg:"" name:"tool" help:"Tools to switch on."`
}

type toolsRetireCmd struct {
	Tools []string `arg:"" name:"tool" help:"Tools to take away."`
}

type toolsSwapCmd struct {
	Tool string `arg:"" help:"Tool that another identity is to serve."`
	To   string `name:"to" placeholder:"IDENTITY" help:"Identity that gets the name. Default: the only other one that serves it."`
}

type toolsLimitsCmd struct {
	Tool        string        `arg:"" help:"Tool to bound."`
	Concurrency int           `name:"concurrency" placeholder:"N" help:"Calls that a dispatcher runs on one instance at once. Default: as the tool declares."`
	Timeout     time.Duration `name:"timeout" placeholder:"DURATION" help:"How long a call may run. Default: as the tool declares."`
}

// Help is shown under --help.
func (*toolsLimitsCmd) Help() string {
	return `The limits replace those that were set before; without a flag there are none.`
}

// Run switches tools off.
func (cmd *toolsDisableCmd) Run(c *console) error {
	return c.operate(cmd.Tools, (*client.Client).Disable)
}

// Run switches tools on.
func (cmd *toolsEnableCmd) Run(c *console) error {
	return c.operate(cmd.Tools, (*client.Client).Enable)
}

// Run takes tools away.
func (cmd *toolsRetireCmd) Run(c *console) error {
	return c.operate(cmd.Tools, (*client.Client).Retire)
}

// Run gives a name to another identity.
func (cmd *toolsSwapCmd) Run(c *console) error {
	return c.operate([]string{cmd.Tool}, func(cl *client.Client, ctx context.Context, tool string) (*client.Setting, error) {
		return cl.Swap(ctx, tool, cmd.To)
	})
}

// Run bounds a tool's calls.
func (cmd *toolsLimitsCmd) Run(c *console) error {
	if cmd.Concurrency < 0 || cmd.Timeout < 0 || cmd.Timeout > 0 && cmd.Timeout < time.Millisecond {
		return usageError("limits: want --concurrency from 0 on, and --timeout 0 or from 1ms on")
	}
	l := client.Limits{Concurrency: cmd.Concurrency, Timeout: cmd.Timeout}
	return c.operate([]string{cmd.Tool}, func(cl *client.Client, ctx context.Context, tool string) (*client.Setting, error) {
		return cl.Limit(ctx, tool, l)
	})
}

// operate gives an order for each tool, and prints what holds then.
func (c *console) operate(tools []string, order func(*client.Client, context.Context, string) (*client.Setting, error)) error {
	return c.withMesh("", func(ctx context.Context, m *mesh) error {
		for _, tool := range tools {
			s, err := order(m.client, ctx, tool)
			if err != nil {
				return err
			}
			if err := c.printSetting(s); err != nil {
				return err
			}
		}
		return nil
	})
}
