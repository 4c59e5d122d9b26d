package egress

import (
	"net/netip"
	"testing"

	"code.dny.dev/ssrf"
	"pgregory.net/rapid"
)

// differences are all places where the other guard, in the state in which it comes,
// decides otherwise, and why.
var differences = []struct {
	prefixes []netip.Prefix
	we       bool // call it reachable
	why      string
}{
	{prefixes("192.0.0.9/32", "192.0.0.10/32", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24",
		"2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:3::/32", "2001:4:112::/48",
		"2001:20::/28", "2001:30::/28", "2620:4f:8000::/48"), true,
		"the registries' column Globally Reachable says True; it refuses all that is registered"},
	{prefixes("64:ff9b::/96"), true,
		"NAT64 of a reachable IPv4 address is that address, and on a network without IPv4 the only road to it; it leaves the prefix to an option, and then does not look inside"},
	{prefixes("::ffff:0:0/96"), true,
		"a mapped address is what Go's resolver makes of an A record, and the kernel connects to the IPv4 address; it refuses the form"},
	{prefixes("168.63.129.16/32"), false,
		"platform services of Azure, at an address that looks public"},
}

// Elsewhere the two agree: at every edge of both guards' tables, and at random.
func TestOracle(t *testing.T) {
	guard := ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())
	used := map[netip.Prefix]bool{}
	compare := func(t interface{ Errorf(string, ...any) }, address netip.Addr) {
		ours, theirs := Classify(address), guard.SafeAddr(address)
		if ours.Reachable == (theirs == nil) {
			return
		}
		for _, d := range differences {
			for _, prefix := range d.prefixes {
				if prefix.Contains(address) && ours.Reachable == d.we {
					used[prefix] = true
					return
				}
			}
		}
		// A tunnel's interface identifier may stand under any prefix; the other guard does
		// not look inside.
		if inside, ok := carried(address); ok && !ours.Reachable && !Classify(inside).Reachable {
			return
		}
		t.Errorf("%s: we say %t (%s), the other says %v", address, ours.Reachable, ours, theirs)
	}
	for _, address := range edges {
		compare(t, address)
		compare(t, netip.AddrFrom16(address.As16()))
	}
	for _, list := range [][]netip.Prefix{ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes, {ssrf.IPv6GlobalUnicast, ssrf.IPv6NAT64Prefix}} {
		for _, prefix := range list {
			for _, address := range []netip.Addr{prefix.Addr(), prefix.Addr().Prev(), lastOf(prefix), lastOf(prefix).Next()} {
				if address.IsValid() {
					compare(t, address)
				}
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range 50 {
			compare(rt, drawAddress(rt))
		}
	})
	for _, d := range differences {
		for _, prefix := range d.prefixes {
			if !used[prefix] {
				t.Errorf("there is no difference in %s any more: %s", prefix, d.why)
			}
		}
	}
}
