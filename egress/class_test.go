package egress

import (
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestClassify(t *testing.T) {
	for _, test := range []struct{ address, class string }{
		{"8.8.8.8", "reachable Unicast (RFC 791)"},
		{"2606:4700::1", "reachable Global Unicast (RFC 3587)"},
		{"127.0.0.1", "Loopback (RFC 1122, Section 3.2.1.3)"},
		{"127.255.255.254", "Loopback (RFC 1122, Section 3.2.1.3)"},
		{"0.0.0.0", "This host on this network (RFC 1122, Section 3.2.1.3)"},
		{"0.1.2.3", "This network (RFC 791, Section 3.2)"},
		{"10.1.2.3", "Private-Use (RFC 1918)"},
		{"239.1.2.3", "Multicast (RFC 5771)"},
		{"255.255.255.255", "Limited Broadcast (RFC 8190, RFC 919, Section 7)"},
		{"255.255.255.254", "Reserved (RFC 1112, Section 4)"},
		{"::1", "Loopback Address (RFC 4291)"},
		{"::", "Unspecified Address (RFC 4291)"},
		{"4000::1", "not delegated for global unicast (RFC 4291, Section 2.4)"},
		{"fec0::1", "Site-Local (deprecated) (RFC 3879)"},
		// The row with the longest prefix wins, either way.
		{"192.0.0.1", "IPv4 Service Continuity Prefix (RFC 7335)"},
		{"192.0.0.9", "reachable Port Control Protocol Anycast (RFC 7723)"},
		{"192.0.0.11", "IETF Protocol Assignments (RFC 6890, Section 2.1)"},
		{"2001:1::1", "reachable Port Control Protocol Anycast (RFC 7723)"},
		{"2001:1::4", "IETF Protocol Assignments (RFC 2928)"},
		// Who is behind a form that holds another address.
		{"::ffff:8.8.8.8", "reachable Unicast (RFC 791)"}, // it is what the kernel connects to
		{"::ffff:10.0.0.1", "Private-Use (RFC 1918)"},
		{"::ffff:169.254.169.254", "instance metadata (used by most providers)"},
		{"64:ff9b::8.8.8.8", "reachable IPv4-IPv6 Translat. (RFC 6052)"},
		{"64:ff9b::127.0.0.1", "Loopback (RFC 1122, Section 3.2.1.3)"},
		{"64:ff9b::168.63.129.16", "platform services (Azure)"},
		{"64:ff9b:1::808:808", "IPv4-IPv6 Translat. (RFC 8215)"},
		{"64:ff9c::1", "not delegated for global unicast (RFC 4291, Section 2.4)"},
		{"2400::5efe:10.0.0.1", "Private-Use (RFC 1918)"},
		{"2400::200:5efe:10.0.0.1", "Private-Use (RFC 1918)"},
		{"2400::100:5efe:10.0.0.1", "reachable Global Unicast (RFC 3587)"},
		{"2400::5efe:8.8.8.8", "reachable Global Unicast (RFC 3587)"},
		{"fe80::5efe:8.8.8.8", "Link-Local Unicast (RFC 4291)"},
		{"::8.8.8.8", "IPv4-Compatible Address (deprecated) (RFC 4291, Section 2.5.5.1)"},
		{"::ffff:0:8.8.8.8", "IPv4-translated Address (RFC 2765)"},
		{"2002:808:808::1", "6to4 (RFC 3056)"},
		{"2001:0:808:808::1", "TEREDO (RFC 4380, RFC 8190)"},
		// Metadata services, and their neighbours.
		{"169.254.169.254", "instance metadata (used by most providers)"},
		{"169.254.169.255", "Link Local (RFC 3927)"},
		{"168.63.129.16", "platform services (Azure)"},
		{"168.63.129.15", "reachable Unicast (RFC 791)"},
		{"100.100.100.200", "instance metadata (Alibaba Cloud)"},
		{"192.0.0.192", "instance metadata (Oracle Cloud Classic)"},
		{"fd00:ec2::254", "instance metadata (AWS)"},
		{"fd00:ec2::255", "Unique-Local (RFC 4193, RFC 8190)"},
		// A zone means something on one host only.
		{"fe80::1%eth0", "an address with a zone, which means something on one host only (RFC 4007)"},
		{"2606:4700::1%1", "an address with a zone, which means something on one host only (RFC 4007)"},
		{"::ffff:8.8.8.8%1", "an address with a zone, which means something on one host only (RFC 4007)"},
	} {
		class := Classify(netip.MustParseAddr(test.address))
		got := class.String()
		if class.Reachable {
			got = "reachable " + got
		}
		if got != test.class {
			t.Errorf("%s: %s, want %s", test.address, got, test.class)
		}
	}
	if class := Classify(netip.Addr{}); class.Reachable || class.Block != "no address" {
		t.Errorf("the zero address: %+v", class)
	}
}

// Each table says something of every address, and no two rows the same thing.
func TestTablesAreWhole(t *testing.T) {
	for name, table := range map[string][]block{"IPv4": blocks4, "IPv6": blocks6, "metadata": metadata} {
		for i, b := range table {
			if b.prefix != b.prefix.Masked() {
				t.Errorf("%s: %s has bits beyond its prefix", name, b.prefix)
			}
			if b.name == "" || b.rfc == "" {
				t.Errorf("%s: %s does not say what it is", name, b.prefix)
			}
			if slices.ContainsFunc(table[:i], func(other block) bool { return other.prefix == b.prefix }) {
				t.Errorf("%s: %s comes twice", name, b.prefix)
			}
			if name == "metadata" && (b.reach != never || !b.prefix.IsSingleIP()) {
				t.Errorf("%s: %s is not one address that is never reached", name, b.prefix)
			}
		}
	}
	for _, everything := range []string{"0.0.0.0/0", "::/0"} {
		prefix := netip.MustParsePrefix(everything)
		if !slices.ContainsFunc(slices.Concat(blocks4, blocks6), func(b block) bool { return b.prefix == prefix }) {
			t.Errorf("no row says what is in no other row: %s", everything)
		}
	}
}

// edges are the first and the last address of each block, and those beside them.
var edges = func() []netip.Addr {
	var list []netip.Addr
	for _, b := range slices.Concat(blocks4, blocks6, metadata) {
		first, last := b.prefix.Addr(), lastOf(b.prefix)
		for _, a := range []netip.Addr{first, first.Prev(), first.Next(), last, last.Prev(), last.Next()} {
			if a.IsValid() {
				list = append(list, a)
			}
		}
	}
	return list
}()

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	size := big.NewInt(1)
	size.Lsh(size, uint(p.Addr().BitLen()-p.Bits()))
	last := new(big.Int).SetBytes(bytes)
	last.Add(last, size).Sub(last, big.NewInt(1))
	a, _ := netip.AddrFromSlice(last.FillBytes(bytes))
	return a
}

// A rule that names everything reaches what has a peer, and not what is this host
// under another name, what somebody unwraps on the way, or what hands out credentials.
func TestWhatARuleCanName(t *testing.T) {
	unnameable := prefixes("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/96", "::ffff:0:0:0/96",
		"64:ff9b:1::/48", "2001::/32", "2002::/16", "ff00::/8")
	delegated := prefixes("2000::/3", "fc00::/7", "fe80::/10", "fec0::/10", "::1/128", "64:ff9b::/96",
		"100::/64", "100:0:0:1::/64", "5f00::/16")
	in := func(list []netip.Prefix, address netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(address) })
	}
	for _, address := range edges {
		want := !in(unnameable, address)
		if address.Is6() {
			want = want && in(delegated, address) || address == netip.IPv6Loopback()
		}
		if inside, ok := carried(address); ok {
			want = Classify(inside).Reachable
		}
		for _, b := range metadata {
			want = want && b.prefix.Addr() != address
		}
		err := permit(authority(t, "x.example.org:443").Host, address, prefixes("0.0.0.0/0", "::/0"), nil)
		if (err == nil) != want {
			t.Errorf("%s, named: %v", address, err)
		}
	}
}

// drawAddress draws addresses, mostly where it matters: near the blocks' edges and in
// the forms that hold another address.
func drawAddress(rt *rapid.T) netip.Addr {
	v4 := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(rt, "v4")))
	v6 := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "v6"))
	near := rapid.SampledFrom(edges).Draw(rt, "edge")
	if near.Is4() && rapid.Bool().Draw(rt, "inside") {
		v4 = near
	}
	switch rapid.IntRange(0, 6).Draw(rt, "form") {
	case 0:
		return v4
	case 1:
		return netip.AddrFrom16(v6)
	case 2:
		v6[0] = v6[0]&0x1f | 0x20
		return netip.AddrFrom16(v6)
	case 3:
		return netip.AddrFrom16(v4.As16()) // mapped
	case 4:
		wrapped := nat64.Addr().As16()
		copy(wrapped[12:], v4.AsSlice())
		return netip.AddrFrom16(wrapped)
	case 5:
		copy(v6[8:], []byte{v6[8] & 0x02, 0, 0x5e, 0xfe})
		copy(v6[12:], v4.AsSlice())
		return netip.AddrFrom16(v6)
	}
	return near
}

// sound checks what holds of every address that is called reachable, by nothing but
// the standard library's opinion.
func sound(t interface{ Errorf(string, ...any) }, address netip.Addr) {
	class := Classify(address)
	if class.Block == "" || class.RFC == "" {
		t.Errorf("%s is of no block: %+v", address, class)
	}
	if !class.Reachable {
		return
	}
	real := address.Unmap()
	if !real.IsGlobalUnicast() || real.IsPrivate() || real.Zone() != "" {
		t.Errorf("%s is reachable as %s", address, class)
	}
	if real.Is6() && real.As16()[0]>>5 != 1 && !strings.HasPrefix(real.String(), "64:ff9b::") {
		t.Errorf("%s is reachable outside 2000::/3", address)
	}
	if inside, ok := carried(real); ok && !Classify(inside).Reachable {
		t.Errorf("%s is reachable and leads to %s", address, inside)
	}
}

func TestClassifyIsSound(t *testing.T) {
	for _, address := range edges {
		sound(t, address)
		if mapped := netip.AddrFrom16(address.As16()); Classify(mapped) != Classify(address) {
			t.Errorf("%s is another thing than %s", mapped, address)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range 50 {
			sound(rt, drawAddress(rt))
		}
	})
}

func FuzzClassify(f *testing.F) {
	for _, address := range edges {
		f.Add(address.String())
	}
	for _, text := range []string{"fe80::1%eth0", "::ffff:127.0.0.1%1", "64:ff9b::127.0.0.1", "2400::200:5efe:10.0.0.1", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		address, _ := netip.ParseAddr(text) // what is no address is of a block as well
		sound(t, address)
	})
}
