// Package client is what an application writes against a mesh: calls of tools,
// lists of them, runs and sessions. It speaks the protocol's own subjects with
// publish, subscribe and request only.
package client

import "github.com/weavebus/weavebus/pkg/bus"

// Client speaks to a mesh as one caller. It is safe for concurrent use.
type Client struct{ conn *bus.Conn }

// New makes a client of a connection; the connection's identity is the caller.
func New(conn *bus.Conn) *Client { return &Client{conn: conn} }

// Conn gives the connection beneath.
func (c *Client) Conn() *bus.Conn { return c.conn }

// Caller gives who the client speaks as.
func (c *Client) Caller() string { return c.conn.Identity() }
