package manifesttools

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// dialLimit bounds one connection.
const dialLimit = 10 * time.Second

// reserved are the networks that are not of the public internet, each with what
// it is.
var reserved = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback"},
	{netip.MustParsePrefix("::1/128"), "a loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a private"},
	{netip.MustParsePrefix("fc00::/7"), "a private"},
	{netip.MustParsePrefix("fec0::/10"), "a private"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified"},
	{netip.MustParsePrefix("::/128"), "an unspecified"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a reserved"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a reserved"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a reserved"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a reserved"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved"},
	{netip.MustParsePrefix("100::/64"), "a reserved"},
	{netip.MustParsePrefix("2001:db8::/32"), "a reserved"},
	{netip.MustParsePrefix("2001::/32"), "a tunnel"},
}

// Prefixes of IPv6 addresses that hold an IPv4 address, and where it begins.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
	{netip.MustParsePrefix("::/96"), 12},
}

// kindOf says what an address is that is not public; "" for one that is.
func kindOf(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	for _, r := range reserved {
		if r.prefix.Contains(a) {
			return r.what
		}
	}
	if a.Is4() {
		return ""
	}
	for _, e := range embedding {
		if b := a.As16(); e.prefix.Contains(a) {
			return kindOf(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	return ""
}

// guard lets connections through to public addresses, and to those that the
// operator allowed. It looks at the address that is dialled, so what a name stands
// for may change from one moment to the next.
type guard struct {
	allowed []netip.Prefix
	// inside: only what the operator allowed, not the public internet.
	inside bool
}

func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialLimit, Control: func(_, address string, _ syscall.RawConn) error {
		return g.check(address)
	}}
	return d.DialContext(ctx, network, address)
}

// check refuses an address that is about to be dialled.
func (g *guard) check(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return frames.NewError(frames.CodeDenied, "cannot tell what address %q is", address).WithReason("private_address")
	}
	a := ap.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(g.allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	if g.inside {
		return frames.NewError(frames.CodeDenied,
			"a secret is sent over https, or to an address that is allowed with --allow-private; the endpoint's is %s", a).
			WithReason("plain_http").With(hideFromModel("the tool's endpoint may not be called; this is for the operator to mend"))
	}
	if kind := kindOf(a); kind != "" {
		return frames.NewError(frames.CodeDenied,
			"the endpoint's address %s is %s one: the operator allows it with --allow-private", a, kind).
			WithReason("private_address").With(hideFromModel("the tool's endpoint may not be called; this is for the operator to mend"))
	}
	return nil
}
