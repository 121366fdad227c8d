package cli

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/internal/pause"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// shutdownLimit bounds the end of the embedded server.
const shutdownLimit = 10 * time.Second

// host is a mesh in this process: the embedded server and its services.
type host struct {
	c      *console
	state  string
	server *natsd.Server
	// ended gives the end of the services; cancel begins it.
	ended  chan error
	cancel context.CancelFunc
}

// hostConfig says what a host runs.
type hostConfig struct {
	port     int
	sync     time.Duration
	services []app.Service
	signals  <-chan os.Signal
	admin    string
	onDrain  func(services []string)
}

// startServer starts the embedded server and makes the streams.
func (c *console) startServer(ctx context.Context, state string, port int, sync time.Duration) (*natsd.Server, error) {
	server, err := natsd.Start(ctx, natsd.Config{StateDir: state, Port: port, SyncInterval: sync, Prefix: c.Prefix, Log: c.log})
	if err != nil {
		return nil, err
	}
	if err := ensureAssets(ctx, server, c.Prefix); err != nil {
		stopServer(server)
		return nil, err
	}
	return server, nil
}

func ensureAssets(ctx context.Context, server *natsd.Server, prefix string) error {
	nc, err := inProcess(server, "admin")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return frames.NewError(frames.CodeInternal, "JetStream: %w", err)
	}
	return assets.Ensure(ctx, js, assets.Config{Prefix: prefix})
}

func stopServer(server *natsd.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	_ = server.Shutdown(ctx) // the process ends anyway
}

// inProcess connects to the embedded server without a socket.
func inProcess(server *natsd.Server, identity string) (*nats.Conn, error) {
	opts, err := server.ConnectOptions(identity)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect("", append(bus.Options(identity), opts...)...)
	if err != nil {
		return nil, frames.NewError(frames.CodeUnavailable, "cannot connect to the embedded NATS server: %w", err)
	}
	return nc, nil
}

// startHost starts a mesh in this process and returns when all its services are
// ready. Other processes of this user find it by mesh.json.
func (c *console) startHost(ctx context.Context, state string, cfg hostConfig) (*host, error) {
	server, err := c.startServer(ctx, state, cfg.port, cfg.sync)
	if err != nil {
		return nil, err
	}
	h := &host{c: c, state: state, server: server, ended: make(chan error, 1)}
	ready := make(chan struct{})
	// The services outlive a signal: the command ends first, then they do.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	go func() {
		h.ended <- app.Run(running, app.Config{
			Services: cfg.services, Connect: h.connectNATS, Prefix: c.Prefix, Signals: cfg.signals,
			AdminAddr: cfg.admin, OnReady: func() { close(ready) }, OnDrain: onceReady(ready, cfg.onDrain), Log: c.log,
		})
	}()
	select {
	case <-ready:
	case err := <-h.ended:
		h.ended <- nil // it is told once
		h.stop()
		return nil, err
	case <-ctx.Done():
		h.stop()
		return nil, frames.AsError(context.Cause(ctx))
	}
	f := meshFile{URL: server.ClientURL(), PID: os.Getpid(), Version: version().Version, Prefix: c.Prefix, Hooks: c.Hook, Models: c.settings()}
	if err := f.write(state); err != nil {
		h.stop()
		return nil, err
	}
	return h, nil
}

// onceReady leaves out what is told of services that did not come up.
func onceReady(ready <-chan struct{}, tell func([]string)) func([]string) {
	return func(services []string) {
		select {
		case <-ready:
			if tell != nil {
				tell(services)
			}
		default:
		}
	}
}

func (h *host) connectNATS(_ context.Context, identity string) (*nats.Conn, error) {
	return inProcess(h.server, identity)
}

// stop ends the services, dependents first, and then the server. A nil host
// stops nothing.
func (h *host) stop() {
	if h == nil {
		return
	}
	_ = removeMeshFile(h.state) // who finds a stale one takes it over
	h.cancel()
	if err := <-h.ended; err != nil {
		h.c.log.Warn("the mesh did not stop cleanly", "error", err)
	}
	stopServer(h.server)
}

// waitForGuests lets the clients of other processes finish before the mesh
// stops; a signal does not wait. A nil host has none.
func (h *host) waitForGuests(ctx context.Context) {
	if h == nil || ctx.Err() != nil {
		return
	}
	for told := false; h.server.Guests() > 0; told = true {
		if !told {
			h.c.note("Other clients use this mesh; it stops when they are done. Ctrl-C stops it now: their sessions are kept, and go on with `weavebus sessions resume ID`.")
		}
		if pause.For(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

// served is a service that this process runs beside a mesh.
type served struct {
	log    *slog.Logger
	ended  chan error
	cancel context.CancelFunc
	// signals reach the service alone; two of them end its work at once.
	signals chan os.Signal
	nc      *nats.Conn
}

// serveBeside runs a service with a connection to the mesh, and returns when it
// is ready.
func (c *console) serveBeside(ctx context.Context, s app.Service, connect func(context.Context, string) (*nats.Conn, error)) (*served, error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &served{log: c.log, ended: make(chan error, 1), cancel: cancel, signals: make(chan os.Signal, 2)}
	ready := make(chan struct{})
	go func() {
		b.ended <- app.Run(running, app.Config{
			Services: []app.Service{s}, Prefix: c.Prefix, Signals: b.signals, OnReady: func() { close(ready) }, Log: c.log,
			Connect: func(ctx context.Context, identity string) (nc *nats.Conn, err error) {
				nc, err = connect(ctx, identity)
				b.nc = nc
				return nc, err
			},
		})
	}()
	select {
	case <-ready:
		return b, nil
	case err := <-b.ended:
		cancel()
		return nil, err
	}
}

// stop drains the service and waits for its end; where the mesh is gone nobody
// waits for its work, and that is cut off. A nil one does nothing.
func (b *served) stop() {
	if b == nil {
		return
	}
	if !b.nc.IsConnected() {
		b.cut()
		return
	}
	b.cancel()
	if err := <-b.ended; err != nil {
		b.log.Warn("the workspace's tools did not stop cleanly", "error", err)
	}
}

func (b *served) cut() {
	b.nc.Close()
	b.signals <- os.Interrupt
	b.signals <- os.Interrupt
	b.cancel()
	b.log.Debug("the workspace's tools were cut off", "error", <-b.ended)
}
