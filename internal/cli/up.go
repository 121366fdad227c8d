package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// upCmd runs a whole mesh.
type upCmd struct {
	Workspace   []string `name:"workspace" short:"w" placeholder:"[NAME=]DIR" help:"Folder to serve with file and command tools; may be repeated."`
	Port        int      `name:"port" help:"Port of the embedded NATS server on 127.0.0.1; 0 is any free one." default:"4222" env:"WEAVEBUS_PORT"`
	Admin       string   `name:"admin" placeholder:"[HOST]:PORT" help:"Open an HTTP port with /livez and /readyz." env:"WEAVEBUS_ADMIN"`
	ManifestDir []string `name:"manifest-dir" sep:"none" placeholder:"DIR" help:"Folder with files that declare tools; may be repeated."`
	manifestFlags
	Sync time.Duration `name:"sync" placeholder:"DURATION" help:"How long written data may stay unsynced. Default: 0, every write is synced."`
}

// Run runs the mesh until a signal.
func (cmd *upCmd) Run(c *console) error {
	if c.NATS != "" {
		return usageError("up has its own NATS server; for one that runs elsewhere use weavebus serve")
	}
	ctx := context.Background()
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	services, err := cmd.services(c, state)
	if err != nil {
		return err
	}
	end := &ending{c: c}
	h, err := c.startHost(ctx, state, hostConfig{
		port: cmd.Port, sync: cmd.Sync, services: services, signals: c.signals, admin: cmd.Admin, onDrain: end.drain,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(cmd.announce(c, h), c.out.failure()); err != nil {
		h.stop()
		return err
	}
	err = <-h.ended
	h.ended <- nil
	h.stop()
	end.done(err)
	return stopped(err)
}

// stopped gives the end of services the exit code of app.
func stopped(err error) error {
	if code := app.ExitCode(err); code == exitHard {
		return exitError(code)
	}
	return err
}

func (cmd *upCmd) services(c *console, state string) ([]app.Service, error) {
	cfg := &roleConfig{models: c.models, environ: environ(), private: private(state), allowRoot: true, manifests: cmd.config(cmd.ManifestDir)}
	names := meshRoles
	var err error
	if cfg.hooks, err = c.hooks(); err != nil {
		return nil, err
	}
	if cfg.workspaces, err = c.workspaces(cmd.Workspace, state); err != nil {
		return nil, err
	}
	if len(cfg.workspaces) > 0 {
		names = append(slices.Clip(names), "workspace-tools")
	}
	if len(cmd.ManifestDir)+len(cmd.Manifest) > 0 {
		names = append(slices.Clip(names), "manifest-tools")
	}
	return cfg.services(names...)
}

type upInfo struct {
	URL       string `json:"url"`
	State     string `json:"state"`
	Caller    string `json:"caller"`
	CallerKey string `json:"callerKey"`
	Tool      string `json:"tool"`
	ToolKey   string `json:"toolKey"`
	HookKey   string `json:"hookKey"`
}

// announce says how to use the mesh.
func (cmd *upCmd) announce(c *console, h *host) error {
	i := upInfo{
		URL: h.server.ClientURL(), State: h.state, Caller: "me", CallerKey: h.server.SeedFile("me"),
		Tool: "local", ToolKey: h.server.SeedFile("local"), HookKey: h.server.SeedFile("hook"),
	}
	if c.JSON {
		return c.print(i)
	}
	c.say("The mesh is up: %s\nState: %s", i.URL, i.State)
	c.say("Call a tool with the stock NATS command line:\n  %s", natsLine(i, c.Prefix, len(cmd.Workspace) > 0))
	c.say("Serve a tool:\n  WEAVEBUS_NATS=%s WEAVEBUS_NKEY=%s go run ./examples/hello-tool", i.URL, shellQuote(i.ToolKey))
	if len(c.Hook) > 0 {
		c.say("Calls pass hooks: %s. Serve one:\n  WEAVEBUS_NATS=%s WEAVEBUS_NKEY=%s go run ./examples/policy-hook",
			strings.Join(c.Hook, "; "), i.URL, shellQuote(i.HookKey))
	}
	if len(cmd.Workspace) == 0 {
		c.say("No workspace is served: start with --workspace DIR for file and command tools.")
	}
	c.say("Ctrl-C stops it; sessions are kept.")
	return nil
}

func natsLine(i upInfo, prefix string, workspace bool) string {
	base := fmt.Sprintf("nats --server %s --nkey %s --inbox-prefix %s req", i.URL, shellQuote(i.CallerKey), bus.InboxPrefix(i.Caller))
	s := bus.Subjects{Prefix: prefix}
	if !workspace {
		return fmt.Sprintf(`%s %s '{"type":"DESCRIBE"}'`, base, s.List(i.Caller))
	}
	return fmt.Sprintf(`%s %s '{"type":"TOOL_CALL","content":{"arguments":{"path":"README.md"}}}'`, base, s.Call(i.Caller, "read_file"))
}

// shellQuote quotes a word for a POSIX shell where it must.
func shellQuote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("/._-", r) && !frames.ValidName(string(r)) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// serveCmd runs some roles.
type serveCmd struct {
	Roles     []string `arg:"" name:"role" help:"Roles to run: harness, llm, workspace-tools, manifest-tools, router, loop."`
	Workspace []string `name:"workspace" short:"w" placeholder:"[NAME=]DIR" help:"Folder that workspace-tools serves; may be repeated."`
	Dir       []string `name:"dir" sep:"none" placeholder:"DIR" help:"Folder with files that declare tools, for manifest-tools; may be repeated."`
	manifestFlags
	Keys      string `name:"keys" placeholder:"DIR" help:"Folder with a seed file IDENTITY.nk for each role. Default: that of the state folder, if it is there." env:"WEAVEBUS_KEYS"`
	Admin     string `name:"admin" placeholder:"[HOST]:PORT" help:"Open an HTTP port with /livez and /readyz." env:"WEAVEBUS_ADMIN"`
	AllowRoot bool   `name:"allow-root" help:"Let workspace-tools and manifest-tools run as root."`
}

// Run runs the roles until a signal.
func (cmd *serveCmd) Run(c *console) error {
	if c.NATS == "" {
		return usageError("serve needs a NATS server: give --nats URL or WEAVEBUS_NATS; weavebus up has one of its own")
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	cfg := &roleConfig{models: c.models, environ: environ(), private: private(state), allowRoot: cmd.AllowRoot, manifests: cmd.config(cmd.Dir)}
	if cfg.hooks, err = c.hooks(); err != nil {
		return err
	}
	if cfg.workspaces, err = c.workspaces(cmd.Workspace, state); err != nil {
		return err
	}
	services, err := cfg.services(cmd.Roles...)
	if err != nil {
		return err
	}
	end := &ending{c: c}
	err = app.Run(context.Background(), app.Config{
		Services: services, Prefix: c.Prefix, Signals: c.signals, AdminAddr: cmd.Admin, OnDrain: end.drain, Log: c.log,
		OnReady: func() { c.note("weavebus: %s ready on %s", strings.Join(cmd.Roles, ", "), c.NATS) },
		Connect: func(ctx context.Context, identity string) (*nats.Conn, error) {
			return cmd.connect(ctx, c, state, identity)
		},
	})
	end.done(err)
	return stopped(err)
}

func (cmd *serveCmd) connect(ctx context.Context, c *console, state, identity string) (*nats.Conn, error) {
	d := c.dial(c.NATS, state, identity)
	if cmd.Keys != "" {
		d.SeedFile = cmd.Keys + "/" + identity + ".nk"
	}
	return bus.ConnectNATS(ctx, d)
}

// initCmd makes the streams.
type initCmd struct {
	Replicas *int `name:"replicas" placeholder:"N" help:"Replicas of each stream: 1, 3 or 5. Default: 1 for new ones." env:"WEAVEBUS_REPLICAS"`
}

// Run makes the streams, or brings them up to date.
func (cmd *initCmd) Run(c *console) error {
	if c.NATS == "" {
		return usageError("init needs a NATS server: give --nats URL or WEAVEBUS_NATS; weavebus up makes its own streams")
	}
	ctx, stop := c.context()
	defer stop()
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	nc, err := bus.ConnectNATS(ctx, c.dial(c.NATS, state, "admin"))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return frames.NewError(frames.CodeUnavailable, "JetStream: %w", err)
	}
	cfg := assets.Config{Prefix: c.Prefix}
	if cmd.Replicas != nil {
		cfg.Replicas = *cmd.Replicas
	}
	ctx, stopHearing := bus.UntilRefused(ctx, nc)
	defer stopHearing()
	if err := assets.Ensure(ctx, js, cfg); err != nil {
		return orCause(ctx, err)
	}
	if c.JSON {
		return c.print(map[string]any{"prefix": c.Prefix, "ready": true})
	}
	c.say("The streams of mesh %q are in place.", c.Prefix)
	return nil
}
