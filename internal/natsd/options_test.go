package natsd

import (
	"testing"
	"time"

	"github.com/nats-io/nkeys"
)

// What cannot be seen from outside, or only after a power loss.
func TestServerOptionsAreSafe(t *testing.T) {
	t.Parallel()
	cfg := Config{StateDir: "state"}.withDefaults()
	keys := map[string]nkeys.KeyPair{}
	for _, id := range cfg.Identities {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		keys[id.Name] = pair
	}
	o, err := serverOptions(cfg, keys)
	if err != nil {
		t.Fatal(err)
	}
	if !o.SyncAlways || o.PingInterval != 10*time.Second || o.MaxPingsOut != 2 || o.Host != "127.0.0.1" {
		t.Errorf("sync always %v, ping %v × %d, host %s", o.SyncAlways, o.PingInterval, o.MaxPingsOut, o.Host)
	}
	if o.HTTPPort != 0 || o.HTTPSPort != 0 || o.Cluster.Port != 0 || o.LeafNode.Port != 0 || o.NoAuthUser != "" {
		t.Error("a port or a user besides the nkeys' is open")
	}
	for _, user := range o.Nkeys {
		if user.Permissions == nil {
			t.Errorf("%s may do everything", user.Nkey)
		}
	}
	cfg.SyncInterval = time.Second
	if o, err = serverOptions(cfg, keys); err != nil || o.SyncAlways || o.SyncInterval != time.Second {
		t.Errorf("sync interval: %v, %v, %v", o.SyncAlways, o.SyncInterval, err)
	}
}
