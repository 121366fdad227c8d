package client

import (
	"context"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Limits are an operator's bounds of a tool's calls. They only tighten what the
// tool declares; 0 is none.
type Limits struct {
	// Concurrency is how many calls a dispatcher runs on one instance at once.
	Concurrency int
	// Timeout is how long a call may run.
	Timeout time.Duration
}

// Setting is what operators decided about a tool.
type Setting struct {
	Tool string
	// State is how the tool stands now, as in [Tool]; empty where nobody declares it.
	State             string
	Disabled, Retired bool
	// Identity is the one that has the name; empty is the one that declared it first.
	Identity string
	Limits   Limits
	// By is who decided last, At when.
	By string
	At time.Time
}

// Disable switches a tool off: its calls are DISABLED until [Client.Enable],
// whatever restarts meanwhile. It and the calls below need an identity with the
// role operator; a tool that nobody knows is NOT_FOUND.
func (c *Client) Disable(ctx context.Context, tool string) (*Setting, error) {
	return c.order(ctx, "disable", tool, nil)
}

// Enable takes back [Client.Disable] and [Client.Retire].
func (c *Client) Enable(ctx context.Context, tool string) (*Setting, error) {
	return c.order(ctx, "enable", tool, nil)
}

// Retire takes a tool's name away: it is not listed and its calls are NOT_FOUND
// until [Client.Enable].
func (c *Client) Retire(ctx context.Context, tool string) (*Setting, error) {
	return c.order(ctx, "retire", tool, nil)
}

// Swap gives a tool's name to another identity that serves it; an empty one is
// the only other one there is. Calls that run end where they are.
func (c *Client) Swap(ctx context.Context, tool, identity string) (*Setting, error) {
	more := map[string]any{}
	if identity != "" {
		more["identity"] = identity
	}
	return c.order(ctx, "swap", tool, more)
}

// Limit sets an operator's limits of a tool, in place of those it had.
func (c *Client) Limit(ctx context.Context, tool string, l Limits) (*Setting, error) {
	return c.order(ctx, "limits", tool, map[string]any{"concurrency": l.Concurrency, "timeoutMs": l.Timeout.Milliseconds()})
}

func (c *Client) order(ctx context.Context, verb, tool string, content map[string]any) (*Setting, error) {
	if !frames.ValidName(tool) {
		return nil, frames.NotFound(tool, nil)
	}
	if content == nil {
		content = map[string]any{}
	}
	content["tool"] = tool
	f := frames.Meta(content)
	fs, err := c.conn.Request(ctx, c.conn.Admin(c.Caller(), verb), &f)
	if err != nil {
		return nil, err
	}
	for i := range fs {
		if fs[i].Type == frames.TypeMeta {
			return settingFrom(tool, fs[i].Content), nil
		}
	}
	return nil, frames.NewError(frames.CodeNoResult, "the router did not say what holds for tool %s", tool)
}

func settingFrom(tool string, content frames.Raw) *Setting {
	text := func(key string) string { s, _ := content.Lookup(key).Text(); return s }
	flag := func(key string) bool { b, _ := content.Lookup(key).Bool(); return b }
	s := &Setting{
		Tool: tool, State: text("state"), Disabled: flag("disabled"), Retired: flag("retired"),
		Identity: text("identity"), Limits: limitsFrom(content.Lookup("limits")), By: text("by"),
	}
	if ms, ok := content.Lookup("at").Int64(); ok && ms > 0 {
		s.At = time.UnixMilli(ms)
	}
	return s
}

func limitsFrom(v frames.Raw) Limits {
	n, _ := v.Lookup("concurrency").Int64()
	ms, _ := v.Lookup("timeoutMs").Int64()
	return Limits{Concurrency: int(n), Timeout: time.Duration(ms) * time.Millisecond}
}
