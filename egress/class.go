package egress

import "net/netip"

// Class is what an address is for. The zero Class is not reachable.
type Class struct {
	Reachable bool   // globally, so that no rule has to name its network
	Block     string // the name of the block that decided
	RFC       string // what reserves the block, or whose address it is
}

func (c Class) String() string { return c.Block + " (" + c.RFC + ")" }

// Classify says whether an address is globally reachable, by the IANA Special-Purpose
// Address Registries. An IPv4 address inside an IPv6 address is looked at as well,
// and a form that somebody on the way may unwrap in more than one way is not
// reachable. It is pure, total and safe for concurrent use.
func Classify(address netip.Addr) Class {
	b := find(address)
	return Class{Reachable: b.reach == public, Block: b.name, RFC: b.rfc}
}

// find returns the block that decides about an address.
func find(address netip.Addr) block {
	switch {
	case !address.IsValid():
		return block{name: "no address", rfc: "RFC 4291"}
	case address.Zone() != "":
		return block{name: "an address with a zone, which means something on one host only", rfc: "RFC 4007"}
	}
	address = address.Unmap()
	outer := longest(address)
	if inside, ok := carried(address); ok && outer.reach != never {
		// A translator or a tunnel sends it on, and that one has to be public too. A rule
		// that names the outer network does not mean what is behind it.
		if inner := find(inside); inner.reach != public {
			inner.reach = never
			return inner
		}
	}
	return outer
}

// longest returns the row with the longest prefix. There is one: the tables hold a
// row for everything.
func longest(address netip.Addr) block {
	table := blocks6
	if address.Is4() {
		table = blocks4
	}
	var best block
	for _, rows := range [][]block{metadata, table} {
		for _, b := range rows {
			if b.prefix.Contains(address) && (best.name == "" || b.prefix.Bits() > best.prefix.Bits()) {
				best = b
			}
		}
	}
	return best
}

// nat64 is the one well-known prefix of RFC 6052. A network's own prefix is not known
// from an address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// carried returns the IPv4 address that an IPv6 address in a block of its own right
// holds: behind NAT64 (RFC 6052, Section 2.2), and as an ISATAP interface identifier
// (RFC 5214, Section 6.1), which may stand under any prefix. The other forms
// (IPv4-compatible, IPv4-translated, 6to4, Teredo, local-use NAT64) are refused as
// blocks, whatever they hold.
func carried(address netip.Addr) (netip.Addr, bool) {
	if !address.Is6() {
		return netip.Addr{}, false
	}
	b := address.As16()
	isatap := b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
	if !isatap && !nat64.Contains(address) {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}
