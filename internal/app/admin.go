package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

const (
	adminReadTimeout = 5 * time.Second
	adminStopTimeout = time.Second
)

// serveAdmin opens the admin port, if there is to be one; stop closes it when
// the open requests are answered.
func serveAdmin(ctx context.Context, cfg Config, h *health) (stop func(), err error) {
	if cfg.AdminAddr == "" {
		return func() {}, nil
	}
	listener, err := listenAdmin(ctx, cfg.AdminAddr)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           h.handler(),
		ReadHeaderTimeout: adminReadTimeout,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cfg.Log.Error("admin port", "error", err)
		}
	}()
	cfg.OnAdmin(listener.Addr())
	return func() { stopAdmin(server); <-done }, nil
}

func listenAdmin(ctx context.Context, addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, invalid("AdminAddr: %q is not host:port: %w", addr, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, frames.NewError(frames.CodeUnavailable,
			"admin port %s is taken: stop what uses it, or choose another: %w", addr, err)
	case err != nil:
		return nil, frames.NewError(frames.CodeUnavailable, "admin port %s cannot be opened: %w", addr, err)
	}
	return listener, nil
}

func stopAdmin(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), adminStopTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // a request hangs; it is cut off
	}
}
