// Package client is what an application writes against a mesh: calls of tools,
// lists of them, runs and sessions. It speaks the protocol's own subjects with
// publish, subscribe and request only.
package client

import (
	"context"
	"slices"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Client speaks to a mesh as one caller. It is safe for concurrent use.
type Client struct{ conn *bus.Conn }

// New makes a client of a connection; the connection's identity is the caller.
func New(conn *bus.Conn) *Client { return &Client{conn: conn} }

// Conn gives the connection beneath.
func (c *Client) Conn() *bus.Conn { return c.conn }

// Caller gives who the client speaks as.
func (c *Client) Caller() string { return c.conn.Identity() }

// Tool is a tool as the router lists it.
type Tool struct {
	*frames.Declaration
	// Instances is how many processes serve it now.
	Instances int
	// Owned are the keys that its instances own: names of workspaces, and their
	// roots as frames.PathKey gives them.
	Owned []string
	// Refused says why it cannot be called; nil where it can.
	Refused *frames.Error
}

// Workspaces gives the names of the workspaces that its instances own.
func (t *Tool) Workspaces() []string {
	return slices.DeleteFunc(slices.Clone(t.Owned), frames.IsPathKey)
}

// Tools lists the tools that the caller may see.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) { return c.describe(ctx, "") }

// Tool describes one tool; one that does not exist is NOT_FOUND.
func (c *Client) Tool(ctx context.Context, name string) (*Tool, error) {
	tools, err := c.describe(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(tools) == 0 {
		return nil, frames.NotFound(name, nil)
	}
	return &tools[0], nil
}

func (c *Client) describe(ctx context.Context, name string) ([]Tool, error) {
	q := frames.Describe(name)
	fs, err := c.conn.Request(ctx, c.conn.List(c.Caller()), &q)
	if err != nil {
		return nil, err
	}
	var out []Tool
	for i := range fs {
		if fs[i].Type != frames.TypeDescription {
			continue
		}
		out = append(out, toolFrom(&fs[i]))
	}
	return out, nil
}

func toolFrom(f *frames.Frame) Tool {
	d, err := frames.DeclarationFrom(f.Content)
	t := Tool{Declaration: d, Instances: int(f.Metadata.Int("instances")), Refused: frames.AsError(err)}
	for key := range f.Metadata.Get("keys").Items() {
		name, _ := key.Text()
		t.Owned = append(t.Owned, name)
	}
	if e := f.Metadata.Get("refused"); e != nil {
		t.Refused = frames.ErrorFrom(e)
	}
	return t
}
