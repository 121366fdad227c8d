package cli

import (
	"context"
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
type doctorCmd struct {
	Model []string `name:"model" short:"m" placeholder:"PROVIDER/MODEL" help:"Ask this model one short question too, which may cost something; may be repeated."`
}

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

// Run checks, prints each finding as it comes, and fails with exit code 1 if
// something is wrong, 4 if there is no mesh.
func (cmd *doctorCmd) Run(c *console) error {
	ctx, stop := c.context()
	defer stop()
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	r := &report{c: c}
	if err := r.add(checkState(state)...); err != nil {
		return err
	}
	conn, err := cmd.connect(ctx, c, state)
	if err != nil {
		return err
	}
	defer conn.Close()
	d := &doctor{c: c, state: state, conn: conn, client: client.New(conn)}
	for _, check := range d.checks(cmd.Model) {
		if err := r.add(check(ctx)...); err != nil {
			return err
		}
	}
	if r.failed {
		return exitError(1)
	}
	return nil
}

// doctor looks at one mesh.
type doctor struct {
	c      *console
	state  string
	conn   *bus.Conn
	client *client.Client
}

func (d *doctor) checks(models []string) []func(ctx context.Context) []finding {
	checks := []func(ctx context.Context) []finding{
		d.connection, d.identity, d.jetStream, d.router, d.tools, d.harness, d.loop, d.providers,
	}
	for _, model := range models {
		checks = append(checks, func(ctx context.Context) []finding { return []finding{d.model(ctx, model)} })
	}
	return checks
}

// connect does not start a mesh: there would be nothing to find wrong.
func (cmd *doctorCmd) connect(ctx context.Context, c *console, state string) (*bus.Conn, error) {
	if c.NATS != "" {
		return bus.Connect(ctx, c.dial(c.NATS, state, c.As))
	}
	if conn, _, err := c.join(ctx, state); conn != nil || err != nil {
		return conn, err
	}
	if natsd.InUse(state) {
		return nil, lostMesh(state, errNoMeshFile)
	}
	return nil, frames.NewError(frames.CodeUnavailable,
		"no mesh runs on the state folder %s: start one with weavebus up, or name a NATS server with --nats", state)
}

func (d *doctor) connection(context.Context) []finding {
	nc := d.conn.NATS()
	rtt, err := nc.RTT()
	if err != nil {
		return []finding{{"connection", "fail", err.Error(), "check the network between here and " + nc.ConnectedUrlRedacted()}}
	}
	f := finding{Check: "connection", Status: "ok",
		Found: fmt.Sprintf("NATS %s at %s, round trip %v, max_payload %d", nc.ConnectedServerVersion(), nc.ConnectedUrlRedacted(), rtt.Round(time.Microsecond), nc.MaxPayload())}
	if nc.MaxPayload() < natsd.DefaultMaxPayload {
		f.Status = "warn"
		f.Do = fmt.Sprintf("set max_payload: %d on the server: results over %d bytes are refused now", natsd.DefaultMaxPayload, d.conn.InlineLimit())
	}
	return []finding{f}
}

func (d *doctor) identity(context.Context) []finding {
	if d.conn.NATS().AuthRequired() {
		return []finding{{"identity", "ok", "the server proves that this is " + d.conn.Identity(), ""}}
	}
	return []finding{{"identity", "warn", "the server asks for no key: who calls is taken as said",
		"give the server users with nkeys, and each role its own"}}
}

// jetStream checks the streams as the identity that makes them, where its key
// is at hand.
func (d *doctor) jetStream(ctx context.Context) []finding {
	nc, closeIt, err := d.as(ctx, "admin")
	if err != nil {
		return []finding{{"jetstream", "fail", frames.AsError(err).Message, "check the key of the identity admin"}}
	}
	defer closeIt()
	return checkStreams(ctx, nc, d.c.Prefix)
}

// as connects as another identity where its key is at hand, else it gives the
// connection that there is.
func (d *doctor) as(ctx context.Context, identity string) (nc *nats.Conn, closeIt func(), err error) {
	seed := natsd.SeedFile(d.state, identity)
	if d.c.Nkey != "" || !exists(seed) {
		return d.conn.NATS(), func() {}, nil
	}
	nc, err = bus.ConnectNATS(ctx, bus.Dial{URL: d.conn.NATS().ConnectedUrl(), Identity: identity, SeedFile: seed})
	if err != nil {
		return nil, nil, err
	}
	return nc, nc.Close, nil
}

func checkStreams(ctx context.Context, nc *nats.Conn, prefix string) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	ctx, stopHearing := bus.UntilRefused(ctx, nc)
	defer stopHearing()
	js, err := jetstream.New(nc)
	if err != nil {
		return []finding{{"jetstream", "fail", err.Error(), "start nats-server with -js"}}
	}
	var out []finding
	for _, name := range []string{assets.SessionsStream(prefix), assets.InStream(prefix), assets.RunStream(prefix), assets.CatalogStream(prefix), assets.ToolsStream(prefix), assets.BlobsStream(prefix)} {
		s, err := assets.Stream(ctx, js, name)
		if err != nil {
			return append(out, finding{"jetstream", "fail", frames.AsError(orCause(ctx, err)).Message, "run weavebus init against this server, as an identity that may make streams"})
		}
		info := s.CachedInfo()
		out = append(out, finding{"stream " + name, "ok",
			fmt.Sprintf("%d messages, %d bytes, %s storage, %d replicas", info.State.Msgs, info.State.Bytes, info.Config.Storage, info.Config.Replicas), ""})
	}
	return out
}

// report prints findings as they come.
type report struct {
	c      *console
	failed bool
}

func (r *report) add(findings ...finding) error {
	c := r.c
	for _, f := range findings {
		r.failed = r.failed || f.Status == "fail"
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
	return nil
}
