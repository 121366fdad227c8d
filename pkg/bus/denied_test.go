package bus_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/bustest"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
)

// wantDenied takes DENIED in words of our own.
func wantDenied(t *testing.T, err error, subject string) {
	t.Helper()
	wantCode(t, err, frames.CodeDenied)
	if text := err.Error(); !strings.Contains(text, subject) || strings.Contains(strings.ToLower(text), "violation") {
		t.Errorf("says %q", text)
	}
}

// pretend connects with the key of one identity as another; refusals are no
// failure of the test.
func (r *rig) pretend(t *testing.T, key, identity string) *bus.Conn {
	t.Helper()
	nc := r.mesh.Connect(t, key, nats.CustomInboxPrefix(bus.InboxPrefix(identity)), nats.ErrorHandler(nil))
	c, err := bus.New(nc, identity)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Who speaks with somebody else's key is told so at once, whatever is refused
// first: the inbox, the request's subject, or a subject that is served.
func TestSomebodyElsesKey(t *testing.T) {
	ask := func(c *bus.Conn) error {
		q := frames.Describe("")
		_, err := c.Request(context.Background(), c.List(c.Identity()), &q)
		return err
	}
	for name, tc := range map[string]struct {
		key, identity, subject string
		do                     func(c *bus.Conn) error
	}{
		"inbox": {"me", "router", "_INBOX.router.", ask},
		"inbox, flushed": {"me", "router", "_INBOX.router.", func(c *bus.Conn) error {
			return c.Flush(context.Background())
		}},
		"request": {"local", "local", "wb.list.local", ask},
		"served": {"me", "me", "wb.list.*", func(c *bus.Conn) error {
			if _, err := c.Handle(context.Background(), c.List("*"), "", answer()); err != nil {
				return err
			}
			return c.Flush(context.Background())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				c := r.pretend(t, tc.key, tc.identity)
				defer c.Close()
				start := time.Now()
				wantDenied(t, tc.do(c), tc.subject)
				if took := time.Since(start); took > time.Second {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

// One request that is refused does no harm to the others of the connection.
func TestOnlyTheRefusedRequestFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		me := r.pretend(t, "me", "me")
		defer me.Close()
		r.handle(t, r.router.List("*"), answer())
		q := frames.Describe("")
		_, err := me.Request(t.Context(), me.List("you"), &q)
		wantDenied(t, err, "wb.list.you")
		if _, err := me.Request(t.Context(), me.List("me"), &q); err != nil {
			t.Error(err)
		}
	})
}

func TestConnectWithSomebodyElsesKey(t *testing.T) {
	t.Parallel()
	m := bustest.Start(t, bustest.WithListener())
	_, err := bus.Connect(t.Context(), bus.Dial{URL: m.Server().ClientURL(), Identity: "you", SeedFile: m.Server().SeedFile("me")})
	wantDenied(t, err, "_INBOX.you.")
}

func TestUntilRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		nc := r.mesh.Connect(t, "local", nats.ErrorHandler(nil), nats.Name("local"))
		ctx, stop := bus.UntilRefused(t.Context(), nc)
		defer stop()
		if err := nc.Publish("$JS.API.INFO", nil); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		wantDenied(t, context.Cause(ctx), "$JS.API.INFO")
	})
}
