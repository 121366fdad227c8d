package bus_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestConnect(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t, bustest.WithListener(), bustest.WithoutAssets(), bustest.WithPrefix("lab"))
	d := bus.Dial{
		URL: m.Server().ClientURL(), Identity: "me", SeedFile: m.Server().SeedFile("me"), Prefix: "lab",
		NATS: []nats.Option{nats.NoReconnect()},
	}
	c, err := bus.Connect(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if c.Identity() != "me" || c.Prefix != "lab" || c.NATS().Opts.AllowReconnect {
		t.Errorf("connected as %s, reconnects %v", c, c.NATS().Opts.AllowReconnect)
	}
	f := frames.Describe("")
	_, err = c.Request(t.Context(), c.List("me"), &f)
	wantCode(t, err, frames.CodeUnavailable)
	c.Close()
	if !c.NATS().IsClosed() {
		t.Error("Close left the connection open")
	}
}

// Each refusal has a code and says what to do.
func TestConnectIsRefused(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t, bustest.WithListener(), bustest.WithoutAssets())
	url, seed := m.Server().ClientURL(), m.Server().SeedFile("me")
	broken := filepath.Join(t.TempDir(), "broken.nk")
	if err := os.WriteFile(broken, []byte("no seed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		dial bus.Dial
		code frames.Code
		text string
	}{
		"no url":        {bus.Dial{Identity: "me"}, frames.CodeValidationInput, "Dial.URL"},
		"no identity":   {bus.Dial{URL: url}, frames.CodeValidationInput, "Dial.Identity"},
		"bad prefix":    {bus.Dial{URL: url, Identity: "me", SeedFile: seed, Prefix: "a.b"}, frames.CodeValidationInput, "prefix"},
		"reserved":      {bus.Dial{URL: url, Identity: "tool", SeedFile: seed}, frames.CodeValidationInput, "identity"},
		"no seed":       {bus.Dial{URL: url, Identity: "me"}, frames.CodeDenied, "no nkey seed file was given"},
		"missing seed":  {bus.Dial{URL: url, Identity: "me", SeedFile: seed + "x"}, frames.CodeDenied, "give the path of the seed"},
		"endless seed":  {bus.Dial{URL: url, Identity: "me", SeedFile: "/dev/zero"}, frames.CodeDenied, "not a regular file"},
		"broken seed":   {bus.Dial{URL: url, Identity: "me", SeedFile: broken}, frames.CodeDenied, "give the path of the seed"},
		"nobody there":  {bus.Dial{URL: closedPort(t), Identity: "me"}, frames.CodeUnavailable, "weavebus up"},
		"with password": {bus.Dial{URL: strings.Replace(closedPort(t), "//", "//u:secret@", 1), Identity: "me"}, frames.CodeUnavailable, "u:xxxxx@"},
		"not a url":     {bus.Dial{URL: "nats://u:secret@%zz", Identity: "me"}, frames.CodeValidationInput, "Dial.URL: cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := bus.Connect(t.Context(), tc.dial)
			if c != nil {
				c.Close()
			}
			wantCode(t, err, tc.code)
			if !strings.Contains(err.Error(), tc.text) {
				t.Errorf("err = %v, want %q", err, tc.text)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("err = %v, holds the password", err)
			}
		})
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "nats://" + l.Addr().String()
}

// silence is a listener that takes connections and says nothing.
func silence(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "nats://" + l.Addr().String()
}

// A server that says nothing does not hold the caller beyond its context.
func TestConnectHeedsItsContext(t *testing.T) {
	t.Parallel()
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	begin := time.Now()
	_, err := bus.Connect(ctx, bus.Dial{URL: silence(t), Identity: "me", NATS: []nats.Option{nats.Timeout(100 * time.Millisecond)}})
	if !errors.Is(err, why) {
		t.Errorf("err = %v after %v, want the context's cause", err, time.Since(begin))
	}
}
