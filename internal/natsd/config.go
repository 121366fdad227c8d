package natsd

import (
	"log/slog"
	"net"
	"regexp"
	"time"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/pkg/frames"
)

// DefaultMaxPayload is the largest message of the shipped configurations.
const DefaultMaxPayload = 8 << 20

// Config says how the embedded server runs.
type Config struct {
	// StateDir holds the store (jetstream), the keys (keys/<identity>.nk) and
	// a lock; made with mode 0700 if missing. Required.
	StateDir string

	// Host to listen on; loopback only. Default: "127.0.0.1".
	Host string

	// Port to listen on. Default: a free one.
	Port int

	// InProcessOnly opens no port: only this process can connect. Default: false.
	InProcessOnly bool

	// SyncInterval is how long written data may stay in the page cache.
	// Default: 0, each write is synced before it is acknowledged.
	SyncInterval time.Duration

	// MaxPayload in bytes. Default: 8 MiB.
	MaxPayload int

	// Prefix of the mesh's subjects. Default: "wb".
	Prefix string

	// Identities that may connect besides those of [DefaultIdentities].
	// Default: none.
	Identities []Identity

	// Log gets the server's own lines: notices at debug level, warnings and
	// errors at theirs. Default: none are logged.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
	if c.Prefix == "" {
		c.Prefix = assets.DefaultPrefix
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Identities = append(DefaultIdentities(), c.Identities...)
	return c
}

func (c Config) validate() error {
	if c.StateDir == "" {
		return invalid("StateDir: is empty")
	}
	if !loopback(c.Host) {
		return invalid("Host: %q is not a loopback address; without TLS the embedded server listens on "+
			"127.0.0.1, ::1 or localhost only: run a nats-server of your own to serve other machines", c.Host)
	}
	if c.Port < 0 || c.Port > 65535 {
		return invalid("Port: %d is not between 0 and 65535", c.Port)
	}
	if c.SyncInterval < 0 {
		return invalid("SyncInterval: %v is negative", c.SyncInterval)
	}
	if c.MaxPayload < 4<<10 || c.MaxPayload > 64<<20 {
		return invalid("MaxPayload: %d is not between 4 KiB and 64 MiB", c.MaxPayload)
	}
	if err := assets.CheckPrefix(c.Prefix); err != nil {
		return err
	}
	return checkIdentities(c.Identities)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

var identityPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func checkIdentities(all []Identity) error {
	seen := map[string]bool{}
	for _, id := range all {
		switch {
		case !identityPattern.MatchString(id.Name):
			return invalid("Identities: name %q does not match %s", id.Name, identityPattern)
		case id.Name == "tool" || id.Name == "sys":
			return invalid("Identities: name %q is reserved", id.Name)
		case seen[id.Name]:
			return invalid("Identities: %q stands twice", id.Name)
		case len(id.Roles) == 0:
			return invalid("Identities: %q has no role", id.Name)
		}
		seen[id.Name] = true
		for _, r := range id.Roles {
			if !r.Valid() {
				return invalid("Identities: %q has an unknown role %q", id.Name, r)
			}
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return frames.NewError(frames.CodeValidationInput, "natsd: "+format, args...)
}

func unavailable(format string, args ...any) error {
	return frames.NewError(frames.CodeUnavailable, format, args...)
}
