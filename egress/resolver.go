package egress

import (
	"context"
	"net"
	"net/netip"
	"strings"
)

// Resolver answers for names.
type Resolver interface {
	// Lookup returns all addresses of a host, which is in its one form
	// (destination.Host) and is the whole name: nothing may be appended to it. It must
	// return when ctx ends. It is called once for each Dial, from any goroutine.
	Lookup(ctx context.Context, host string) ([]netip.Addr, error)
}

// System resolves names by this host's own configuration: /etc/hosts, then the servers
// of /etc/resolv.conf, in the order that nsswitch.conf gives those two. It is Go's own
// resolver, so no other source of nsswitch.conf is asked (mDNS, LDAP), and no search
// domain is tried. An address from /etc/hosts is looked at like any other; names of
// one label are not found there, as they would not be the whole name. localhost and
// names below it are the two loopback addresses, and nobody is asked (RFC 6761,
// section 6.3).
type System struct {
	dial func(ctx context.Context, network, server string) (net.Conn, error) // of a test's server
}

// Lookup asks for A and AAAA records once.
func (s System) Lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	resolver := net.Resolver{PreferGo: true, Dial: s.connect}
	return resolver.LookupNetIP(ctx, "ip", host+".")
}

func (s System) connect(ctx context.Context, network, server string) (net.Conn, error) {
	dial := s.dial
	if dial == nil {
		var dialer net.Dialer
		dial = dialer.DialContext
	}
	conn, err := dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	return newScreen(conn, network), nil
}
