package app

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Config says what [Run] runs.
type Config struct {
	// Services of this process; their order within a stage does not matter.
	// Required.
	Services []Service

	// Connect opens a connection for an identity. Required if a service has one.
	Connect func(ctx context.Context, identity string) (*nats.Conn, error)

	// Prefix of the mesh, passed to the services. Default: "wb".
	Prefix string

	// Signals: the first begins the soft stop, the second ends the work at
	// once. Default: none; see [Notify].
	Signals <-chan os.Signal

	// SoftStop is how long services may take to drain, all stages together.
	// Default: 20 s.
	SoftStop time.Duration

	// HardStop is how long they may take to return after their work was
	// cancelled; then Run returns without them. Default: 2 s.
	HardStop time.Duration

	// AdminAddr is host:port of the HTTP port with /livez and /readyz; without
	// a host it is on 127.0.0.1. Default: none.
	AdminAddr string

	// OnAdmin is called with the admin port's address once it is open.
	// Default: nothing.
	OnAdmin func(net.Addr)

	// OnReady is called once, when all services are ready. Default: nothing.
	OnReady func()

	// OnDrain is called for each stage that is asked to end, with the services of
	// it that still run; it must not block. Default: nothing.
	OnDrain func(services []string)

	// Log gets what happens to the services. Default: nothing is logged.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = assets.DefaultPrefix
	}
	if c.SoftStop == 0 {
		c.SoftStop = 20 * time.Second
	}
	if c.HardStop == 0 {
		c.HardStop = 2 * time.Second
	}
	if c.OnReady == nil {
		c.OnReady = func() {}
	}
	if c.OnDrain == nil {
		c.OnDrain = func([]string) {}
	}
	if c.OnAdmin == nil {
		c.OnAdmin = func(net.Addr) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if len(c.Services) == 0 {
		return invalid("Services: none given")
	}
	if c.SoftStop < 0 || c.HardStop < 0 {
		return invalid("SoftStop and HardStop: must not be negative")
	}
	names := map[string]bool{}
	for _, s := range c.Services {
		if err := c.validateService(s); err != nil {
			return err
		}
		if names[s.Name] {
			return invalid("Services: %q stands twice", s.Name)
		}
		names[s.Name] = true
	}
	return nil
}

func (c Config) validateService(s Service) error {
	switch {
	case s.Name == "":
		return invalid("Services: one has no name")
	case s.Run == nil:
		return invalid("Services: %q has no Run", s.Name)
	case s.Stage < StageNATS || s.Stage > StageEntry:
		return invalid("Services: %q has an unknown stage %d", s.Name, s.Stage)
	case s.Identity != "" && c.Connect == nil:
		return invalid("Connect: %q needs a connection as %q", s.Name, s.Identity)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return frames.NewError(frames.CodeValidationInput, "app: "+format, args...)
}
