package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// doctorCmd checks a mesh.
type doctorCmd struct{}

// finding is one thing that was checked.
type finding struct {
	Check string `json:"check"`
	// Status is ok, warn or fail.
	Status string `json:"status"`
	Found  string `json:"found"`
	// Do says what to do about it.
	Do string `json:"do,omitempty"`
}

// doctorLimit bounds each check.
const doctorLimit = 5 * time.Second

// Run checks, prints each finding, and fails with exit code 1 if something is
// wrong, 4 if there is no mesh.
func (cmd *doctorCmd) Run(c *console) error {
	ctx, stop := c.context()
	defer stop()
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	conn, err := cmd.connect(ctx, c, state)
	if err != nil {
		return err
	}
	defer conn.Close()
	findings := []finding{cmd.connection(conn)}
	findings = append(findings, cmd.identity(conn)...)
	findings = append(findings, cmd.jetStream(ctx, c, state, conn)...)
	findings = append(findings, cmd.router(ctx, conn))
	return c.report(findings)
}

// connect does not start a mesh: there would be nothing to find wrong.
func (cmd *doctorCmd) connect(ctx context.Context, c *console, state string) (*bus.Conn, error) {
	if c.NATS != "" {
		return bus.Connect(ctx, c.dial(c.NATS, state, c.As))
	}
	if conn, err := c.join(ctx, state); conn != nil || err != nil {
		return conn, err
	}
	return nil, frames.NewError(frames.CodeUnavailable,
		"no mesh runs on the state folder %s: start one with weavebus up, or name a NATS server with --nats", state)
}

func (cmd *doctorCmd) connection(conn *bus.Conn) finding {
	nc := conn.NATS()
	rtt, err := nc.RTT()
	if err != nil {
		return finding{"connection", "fail", err.Error(), "check the network between here and " + nc.ConnectedUrlRedacted()}
	}
	f := finding{Check: "connection", Status: "ok",
		Found: fmt.Sprintf("NATS %s at %s, round trip %v, max_payload %d", nc.ConnectedServerVersion(), nc.ConnectedUrlRedacted(), rtt.Round(time.Microsecond), nc.MaxPayload())}
	if nc.MaxPayload() < natsd.DefaultMaxPayload {
		f.Status = "warn"
		f.Do = fmt.Sprintf("set max_payload: %d on the server: results over %d bytes are refused now", natsd.DefaultMaxPayload, conn.InlineLimit())
	}
	return f
}

func (cmd *doctorCmd) identity(conn *bus.Conn) []finding {
	if conn.NATS().AuthRequired() {
		return []finding{{"identity", "ok", "the server proves that this is " + conn.Identity(), ""}}
	}
	return []finding{{"identity", "warn", "the server asks for no key: who calls is taken as said",
		"give the server users with nkeys, and each role its own"}}
}

// jetStream checks the streams as the identity that makes them, where its key
// is at hand.
func (cmd *doctorCmd) jetStream(ctx context.Context, c *console, state string, conn *bus.Conn) []finding {
	nc := conn.NATS()
	if seed := natsd.SeedFile(state, "admin"); exists(seed) {
		admin, err := bus.ConnectNATS(ctx, bus.Dial{URL: nc.ConnectedUrl(), Identity: "admin", SeedFile: seed})
		if err != nil {
			return []finding{{"jetstream", "fail", err.Error(), "check the key of the identity admin"}}
		}
		defer admin.Close()
		nc = admin
	}
	return checkStreams(ctx, nc, c.Prefix)
}

func checkStreams(ctx context.Context, nc *nats.Conn, prefix string) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return []finding{{"jetstream", "fail", err.Error(), "start nats-server with -js"}}
	}
	var out []finding
	for _, name := range []string{assets.SessionsStream(prefix), assets.InStream(prefix), assets.RunStream(prefix), assets.CatalogStream(prefix), assets.ToolsStream(prefix)} {
		s, err := assets.Stream(ctx, js, name)
		if err != nil {
			return append(out, finding{"jetstream", "fail", frames.AsError(err).Message, "run weavebus init against this server, as an identity that may make streams"})
		}
		info := s.CachedInfo()
		out = append(out, finding{"stream " + name, "ok",
			fmt.Sprintf("%d messages, %d bytes, %s storage, %d replicas", info.State.Msgs, info.State.Bytes, info.Config.Storage, info.Config.Replicas), ""})
	}
	return out
}

func (cmd *doctorCmd) router(ctx context.Context, conn *bus.Conn) finding {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	tools, err := client.New(conn).Tools(ctx)
	switch {
	case errors.Is(err, &frames.Error{Code: frames.CodeUnavailable}):
		return finding{"router", "fail", "no router answers", "start one: weavebus serve router --nats URL"}
	case err != nil:
		return finding{"router", "fail", frames.AsError(err).Message, "see the router's log"}
	case len(tools) == 0:
		return finding{"router", "warn", "it knows no tool", "start a service of tools, such as weavebus up --workspace DIR"}
	}
	down := 0
	for i := range tools {
		if stateOf(&tools[i]) != "ready" {
			down++
		}
	}
	f := finding{"router", "ok", fmt.Sprintf("it knows %d tools, %d of them ready", len(tools), len(tools)-down), ""}
	if down > 0 {
		f.Status, f.Do = "warn", "see weavebus tools for those that are not"
	}
	return f
}

func (c *console) report(findings []finding) error {
	failed := false
	for _, f := range findings {
		failed = failed || f.Status == "fail"
		if c.JSON {
			if err := c.print(f); err != nil {
				return err
			}
			continue
		}
		c.say("%-4s %s: %s", f.Status, f.Check, f.Found)
		if f.Do != "" {
			c.say("     → %s", f.Do)
		}
	}
	if failed {
		return exitError(1)
	}
	return nil
}
