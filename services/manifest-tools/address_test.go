package manifesttools

import (
	"net/netip"
	"testing"
)

func TestWhatIsPublic(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"93.184.216.34": "", "1.1.1.1": "", "2606:4700::1111": "", "172.32.0.1": "", "100.128.0.1": "", "198.17.0.1": "",
		"127.0.0.1": "a loopback", "127.255.1.2": "a loopback", "::1": "a loopback", "::ffff:127.0.0.1": "a loopback",
		"169.254.169.254": "a link-local", "fe80::1%eth0": "a link-local", "10.0.0.1": "a private", "172.16.0.1": "a private",
		"192.168.1.1": "a private", "100.64.0.1": "a private", "fd00::1": "a private", "0.0.0.0": "an unspecified", "::": "an unspecified",
		"224.0.0.1": "a multicast", "ff02::1": "a multicast", "255.255.255.255": "a reserved", "240.0.0.1": "a reserved",
		"64:ff9b::7f00:1": "a loopback", "64:ff9b::a9fe:a9fe": "a link-local", "64:ff9b::101:101": "", "2002:7f00:1::": "a loopback",
		"2002:a00:1::1": "a private", "::127.0.0.1": "a loopback", "2001:0:1::1": "a tunnel", "2001:db8::1": "a reserved",
	} {
		if got := kindOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
}

func TestAllowedNetworks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		allowed, address string
		want             bool
	}{
		{"loopback", "127.0.0.1:1", true}, {"loopback", "[::1]:1", true}, {"loopback", "[::ffff:127.0.0.1]:1", true},
		{"loopback", "10.0.0.1:1", false}, {"private", "10.0.0.1:1", true}, {"private", "169.254.169.254:80", false},
		{"10.1.2.3", "10.1.2.3:80", true}, {"10.1.2.3", "10.1.2.4:80", false}, {"10.1.0.9/16", "10.1.2.3:80", true},
		{"::ffff:10.1.2.3", "10.1.2.3:80", true}, {"any", "169.254.169.254:80", true}, {"link-local", "[fe80::1%eth0]:80", true},
		{"10.1.2.3", "8.8.8.8:443", true}, {"10.1.2.3", "no address", false},
	} {
		allowed, err := networks([]string{tt.allowed})
		ok(t, err)
		g := guard{allowed: allowed}
		if err := g.check(tt.address); (err == nil) != tt.want {
			t.Errorf("%s with %s: %v", tt.address, tt.allowed, err)
		}
	}
}
