package natsd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/natsd"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "deep", "state")
}

func start(t *testing.T, cfg natsd.Config) *natsd.Server {
	t.Helper()
	s, err := natsd.Start(deadline(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *natsd.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func TestOutsideClient(t *testing.T) {
	t.Parallel()
	s := start(t, natsd.Config{StateDir: newDir(t)})
	seed, err := nats.NkeyOptionFromSeed(s.SeedFile("me"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.ClientURL(), seed)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got := nc.MaxPayload(); got != 8<<20 {
		t.Errorf("max_payload = %d, want 8 MiB", got)
	}
	if !strings.HasPrefix(s.ClientURL(), "nats://127.0.0.1:") {
		t.Errorf("URL = %q", s.ClientURL())
	}
}

func TestUnprovedConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, natsd.Config{StateDir: newDir(t)})
	stranger, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := stranger.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string][]nats.Option{
		"anonymous": nil,
		"user":      {nats.UserInfo("me", "me")},
		"stranger":  {nats.Nkey(public, stranger.Sign)},
	} {
		if nc, err := nats.Connect(s.ClientURL(), opts...); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: err = %v, want an authorization violation", name, err)
			nc.Close()
		}
	}
}

func TestKeysAreKept(t *testing.T) {
	t.Parallel()
	cfg := natsd.Config{StateDir: newDir(t), InProcessOnly: true}
	seeds := func() map[string]string {
		s, err := natsd.Start(deadline(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		out := map[string]string{}
		for _, id := range s.Identities() {
			seed, err := os.ReadFile(s.SeedFile(id.Name))
			if err != nil {
				t.Error(err)
			}
			out[id.Name] = string(seed)
		}
		return out
	}
	first, second := seeds(), seeds()
	if len(first) != 12 || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("the restart changed keys, or %d are not 12", len(first))
	}
	checkModes(t, cfg.StateDir)
}

func checkModes(t *testing.T, dir string) {
	t.Helper()
	want := map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "keys"): 0o700, natsd.SeedFile(dir, "me"): 0o600}
	for path, mode := range want {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode is not %#o (%v)", path, mode, err)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	name := func(n string, roles ...natsd.Role) []natsd.Identity { return []natsd.Identity{{Name: n, Roles: roles}} }
	tests := map[string]natsd.Config{
		"StateDir":     {},
		"loopback":     {StateDir: dir, Host: "0.0.0.0"},
		"Host":         {StateDir: dir, Host: "example.org"},
		"Port":         {StateDir: dir, Port: 70000},
		"SyncInterval": {StateDir: dir, SyncInterval: -1},
		"MaxPayload":   {StateDir: dir, MaxPayload: 1},
		"prefix":       {StateDir: dir, Prefix: "A.b"},
		"match":        {StateDir: dir, Identities: name("a.b", natsd.RoleClient)},
		"reserved":     {StateDir: dir, Identities: name("tool", natsd.RoleClient)},
		"twice":        {StateDir: dir, Identities: name("me", natsd.RoleClient)},
		"no role":      {StateDir: dir, Identities: name("x")},
		"unknown role": {StateDir: dir, Identities: name("x", "king")},
	}
	for says, cfg := range tests {
		_, err := natsd.Start(t.Context(), cfg)
		wantError(t, err, frames.CodeValidationInput, says)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused setting left a state folder: %v", err)
	}
}

func wantError(t *testing.T, err error, code frames.Code, says string) {
	t.Helper()
	if frames.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("err = %v, want %s that says %q", err, code, says)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	cfg := natsd.Config{StateDir: newDir(t), Port: port}
	_, err = natsd.Start(deadline(t), cfg)
	wantError(t, err, frames.CodeUnavailable, fmt.Sprintf("port %d on 127.0.0.1 is taken", port))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = natsd.Start(ended, cfg)
	wantError(t, err, frames.CodeCancelled, "canceled")
	cfg.Port = 0
	start(t, cfg) // the failed start left nothing behind
}

// Each case breaks a state folder that was fine, and is repaired as told.
func TestUnusableState(t *testing.T) {
	t.Parallel()
	chmod := func(path string, mode os.FileMode) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(path, 0o700) }) // so that the folder can be removed
		}
	}
	write := func(path, text string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		ruin func(dir string) func(*testing.T)
		says string
	}{
		"a file":         {func(d string) func(*testing.T) { return write(d, "") }, "another with --state"},
		"not writable":   {func(d string) func(*testing.T) { return chmod(d, 0o500) }, "not writable"},
		"open folder":    {func(d string) func(*testing.T) { return chmod(d, 0o755) }, "chmod 700"},
		"open keys":      {func(d string) func(*testing.T) { return chmod(filepath.Join(d, "keys"), 0o750) }, "chmod 700"},
		"open seed":      {func(d string) func(*testing.T) { return chmod(natsd.SeedFile(d, "me"), 0o644) }, "chmod 600"},
		"damaged seed":   {func(d string) func(*testing.T) { return write(natsd.SeedFile(d, "me"), "SUA") }, "remove it"},
		"an account key": {func(d string) func(*testing.T) { return write(natsd.SeedFile(d, "me"), accountSeed(t)) }, "not an nkey user seed"},
		"store a file":   {func(d string) func(*testing.T) { return write(filepath.Join(d, "jetstream"), "") }, "did not start"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := natsd.Config{StateDir: newDir(t), InProcessOnly: true}
			s, err := natsd.Start(deadline(t), cfg)
			if err != nil {
				t.Fatal(err)
			}
			stop(t, s)
			tt.ruin(cfg.StateDir)(t)
			_, err = natsd.Start(deadline(t), cfg)
			wantError(t, err, frames.CodeUnavailable, tt.says)
		})
	}
}

func accountSeed(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return string(seed)
}

func TestStateInUse(t *testing.T) {
	t.Parallel()
	cfg := natsd.Config{StateDir: newDir(t), InProcessOnly: true}
	s := start(t, cfg)
	_, err := natsd.Start(deadline(t), cfg)
	wantError(t, err, frames.CodeUnavailable, "in use")
	stop(t, s)
	start(t, cfg)
}

func TestInProcessOnly(t *testing.T) {
	t.Parallel()
	s := start(t, natsd.Config{StateDir: newDir(t), InProcessOnly: true})
	if s.ClientURL() != "" {
		t.Errorf("URL = %q, want none", s.ClientURL())
	}
	_, err := s.ConnectOptions("nobody")
	wantError(t, err, frames.CodeNotFound, "nobody")
}

// A start that is given up leaves nothing: neither goroutines nor the lock.
func TestStartGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := natsd.Config{StateDir: newDir(t), InProcessOnly: true}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(frames.NewError(frames.CodeCancelled, "second thoughts"))
		if s, err := natsd.Start(ctx, cfg); err == nil {
			stop(t, s) // the server was faster
		} else {
			wantError(t, err, frames.CodeCancelled, "second thoughts")
		}
		synctest.Wait()
		start(t, cfg)
	})
}

func TestShutdownGivenUpGoesOn(t *testing.T) {
	t.Parallel()
	s := start(t, natsd.Config{StateDir: newDir(t), InProcessOnly: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil {
		wantError(t, err, frames.CodeCancelled, "canceled")
	}
	stop(t, s)
	stop(t, s)
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	start(t, natsd.Config{StateDir: newDir(t), InProcessOnly: true, Log: log})
	if got := out.String(); !strings.Contains(got, `level=DEBUG msg="Server is ready" service=nats`) {
		t.Errorf("log:\n%s", got)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
