package natsd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	pingInterval  = 10 * time.Second
	maxPingsOut   = 2
	authTimeout   = 5 * time.Second
	maxSubTokens  = 16
	readyDeadline = 10 * time.Second
	// pendingPayloads is how many messages of the largest size may wait for one
	// connection, which is cut beyond that: a burst of large calls would take the
	// router away from all of its callers. From three quarters of it on the server
	// slows senders down.
	pendingPayloads = 32
)

// Server is a running embedded server. Its methods may be called from several
// goroutines.
type Server struct {
	cfg  Config
	keys map[string]nkeys.KeyPair
	lock *flock.Flock
	nats *server.Server
}

// Start runs a server on cfg.StateDir and returns when it takes connections, or
// at once when ctx ends. What the caller can repair (a taken port, a folder that
// cannot be used or is in use) is UNAVAILABLE and says how; a wrong setting is
// VALIDATION_INPUT.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := prepareStateDir(cfg.StateDir); err != nil {
		return nil, err
	}
	lock, err := lockStateDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, lock: lock}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func lockStateDir(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, "natsd.lock"), flock.SetPermissions(0o600))
	held, err := lock.TryLock()
	if err != nil {
		return nil, unavailable("state folder %s cannot be locked: %w", dir, err)
	}
	if !held {
		return nil, unavailable("state folder %s is in use by another server: stop it, or choose another with --state", dir)
	}
	return lock, nil
}

// open loads the keys and starts the server; on an error the lock is released
// once nothing of the server runs any more.
func (s *Server) open(ctx context.Context) error {
	err := s.prepare(ctx)
	if err != nil {
		_ = s.lock.Unlock() // the first error says more
		return err
	}
	log := newLogger(s.cfg.Log)
	s.nats.SetLoggerV2(log, false, false, false)
	started := make(chan struct{})
	go func() {
		defer close(started)
		s.nats.Start()
	}()
	select {
	case <-started:
		err = s.checkStarted(log)
	case <-ctx.Done():
		err = frames.AsError(context.Cause(ctx))
	}
	if err == nil {
		return nil
	}
	go func() {
		<-started
		_ = s.stop() // the first error says more
	}()
	return err
}

func (s *Server) prepare(ctx context.Context) error {
	if err := checkPort(ctx, s.cfg); err != nil {
		return err
	}
	var err error
	if s.keys, err = loadKeys(s.cfg.StateDir, s.cfg.Identities); err != nil {
		return err
	}
	options, err := serverOptions(s.cfg, s.keys)
	if err != nil {
		return err
	}
	if s.nats, err = server.NewServer(options); err != nil {
		return unavailable("the embedded NATS server refuses its configuration: %w", err)
	}
	return nil
}

// checkPort finds a taken port before the server does: the server only logs it.
func checkPort(ctx context.Context, cfg Config) error {
	if cfg.InProcessOnly || cfg.Port == 0 {
		return nil
	}
	addr := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		return l.Close()
	case ctx.Err() != nil:
		return frames.AsError(context.Cause(ctx))
	case errors.Is(err, syscall.EADDRINUSE):
		return unavailable("port %d on %s is taken: stop what uses it, or choose another with --port (0 = any free one): %w",
			cfg.Port, cfg.Host, err)
	}
	return unavailable("cannot listen on %s: %w", addr, err)
}

func (s *Server) checkStarted(log *logger) error {
	select {
	case line := <-log.fatal:
		return unavailable("the embedded NATS server did not start: %s", line)
	default:
	}
	if !s.nats.ReadyForConnections(readyDeadline) {
		return unavailable("the embedded NATS server is not ready after %v", readyDeadline)
	}
	return nil
}

func serverOptions(cfg Config, keys map[string]nkeys.KeyPair) (*server.Options, error) {
	users, err := nkeyUsers(cfg, keys)
	if err != nil {
		return nil, err
	}
	port := cfg.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return &server.Options{
		ServerName:             "weavebus-" + cfg.Prefix,
		Host:                   cfg.Host,
		Port:                   port,
		DontListen:             cfg.InProcessOnly,
		Nkeys:                  users,
		AuthTimeout:            authTimeout.Seconds(),
		MaxPayload:             int32(cfg.MaxPayload), // checked by Config.validate
		MaxPending:             max(server.MAX_PENDING_SIZE, int64(cfg.MaxPayload)*pendingPayloads),
		MaxSubTokens:           maxSubTokens,
		PingInterval:           pingInterval,
		MaxPingsOut:            maxPingsOut,
		NoSigs:                 true,
		JetStream:              true,
		DisableJetStreamBanner: true,
		StoreDir:               cfg.StateDir, // the server adds "jetstream"
		SyncAlways:             cfg.SyncInterval == 0,
		SyncInterval:           cfg.SyncInterval,
	}, nil
}

func nkeyUsers(cfg Config, keys map[string]nkeys.KeyPair) ([]*server.NkeyUser, error) {
	var users []*server.NkeyUser
	for _, id := range cfg.Identities {
		public, err := keys[id.Name].PublicKey()
		if err != nil {
			return nil, unavailable("key of %s: %w", id.Name, err)
		}
		users = append(users, &server.NkeyUser{Nkey: public, Permissions: natsPermissions(PermissionsOf(cfg.Prefix, id))})
	}
	return users, nil
}

// natsPermissions gives p in the server's form, where an empty list of allowed
// subjects would allow everything.
func natsPermissions(p Permissions) *server.Permissions {
	publish := &server.SubjectPermission{Allow: p.Publish, Deny: p.Deny}
	if len(p.Publish) == 0 {
		publish.Deny = []string{">"}
	}
	subscribe := &server.SubjectPermission{Allow: p.Subscribe}
	if len(p.Subscribe) == 0 {
		subscribe.Deny = []string{">"}
	}
	return &server.Permissions{Publish: publish, Subscribe: subscribe}
}

// ClientURL gives the URL for clients outside this process; "" when there is none.
func (s *Server) ClientURL() string {
	if s.cfg.InProcessOnly {
		return ""
	}
	return s.nats.ClientURL()
}

// Identities lists who may connect.
func (s *Server) Identities() []Identity { return s.cfg.Identities }

// SeedFile gives the path of an identity's seed.
func (s *Server) SeedFile(identity string) string { return SeedFile(s.cfg.StateDir, identity) }

// ConnectOptions connects a client of this process as an identity: without a
// socket, by its nkey, with its own inboxes. The URL given to nats.Connect is not
// used. An unknown identity is NOT_FOUND.
func (s *Server) ConnectOptions(identity string) ([]nats.Option, error) {
	pair, ok := s.keys[identity]
	if !ok {
		return nil, frames.NewError(frames.CodeNotFound, "the embedded NATS server knows no identity %q", identity)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, unavailable("key of %s: %w", identity, err)
	}
	return []nats.Option{
		nats.InProcessServer(s.nats),
		nats.Nkey(public, pair.Sign),
		nats.CustomInboxPrefix("_INBOX." + identity),
		nats.Name(identity),
	}, nil
}

// Shutdown closes all connections, stops the server and waits until its store
// is closed, or until ctx ends: then it goes on stopping and TIMEOUT or CANCELLED
// is returned. It may be repeated.
func (s *Server) Shutdown(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.stop() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return frames.AsError(context.Cause(ctx))
	}
}

func (s *Server) stop() error {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
	return s.lock.Unlock()
}

// Guests counts the clients that are connected from other processes.
func (s *Server) Guests() int {
	list, err := s.nats.Connz(&server.ConnzOptions{Limit: maxGuests})
	if err != nil {
		return 0
	}
	n := 0
	for _, c := range list.Conns {
		if c.Port != 0 {
			n++
		}
	}
	return n
}

const maxGuests = 1 << 16

// InUse reports whether a server runs on a state folder, in any process.
func InUse(stateDir string) bool {
	lock := flock.New(filepath.Join(stateDir, "natsd.lock"), flock.SetPermissions(0o600))
	held, err := lock.TryLock()
	if err != nil {
		return false
	}
	if !held {
		return true
	}
	_ = lock.Unlock() // it was ours for a moment
	return false
}
