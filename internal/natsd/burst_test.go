package natsd_test

import (
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/weavebus/weavebus/internal/natsd"
)

// gated gives connections that read nothing while the gate is locked.
type gated struct {
	nats.InProcessConnProvider
	gate *sync.RWMutex
}

func (g gated) InProcessConn() (net.Conn, error) {
	c, err := g.InProcessConnProvider.InProcessConn()
	return gatedConn{c, g.gate}, err
}

type gatedConn struct {
	net.Conn
	gate *sync.RWMutex
}

func (c gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.RLock()
	defer c.gate.RUnlock()
	return n, err
}

func connect(t *testing.T, s *natsd.Server, identity string, more ...nats.Option) *nats.Conn {
	t.Helper()
	opts, err := s.ConnectOptions(identity)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("", append(opts, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// A burst of large messages does not cut the connection of who serves them, though
// it reads none for a while.
func TestBurstOfLargeMessages(t *testing.T) {
	s := start(t, natsd.Config{StateDir: newDir(t), InProcessOnly: true})
	var gate sync.RWMutex
	router := connect(t, s, "router", func(o *nats.Options) error {
		o.InProcessServer = gated{o.InProcessServer, &gate}
		return nil
	})
	sub, err := router.QueueSubscribeSync("wb.call.*.*", "router")
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = router.FlushWithContext(deadline(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	me, large := connect(t, s, "me"), make([]byte, 7<<20)
	const burst = 11 // 77 MiB, more than a server lets wait by itself
	gate.Lock()
	for range burst {
		if err = me.Publish("wb.call.me.echo", large); err != nil {
			break
		}
	}
	if err == nil {
		err = me.FlushWithContext(deadline(t))
	}
	gate.Unlock()
	for range burst {
		if err == nil {
			_, err = sub.NextMsgWithContext(deadline(t))
		}
	}
	if err != nil || router.Stats().Reconnects > 0 {
		t.Errorf("got %v, and %d new connections", err, router.Stats().Reconnects)
	}
}
