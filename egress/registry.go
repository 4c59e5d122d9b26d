package egress

import "net/netip"

// block is a row of the tables below: of all rows that contain an address, the one
// with the longest prefix decides.
type block struct {
	prefix netip.Prefix
	name   string
	rfc    string // what reserves it, as the registry cites it
	reach  reach
}

// reach is whether a block's addresses may be connected to. The zero reach is never.
type reach int

const (
	// never: whatever a rule says. There is no peer there (multicast), or it is this
	// host under another name (0.0.0.0), an address that a tunnel or a translator
	// makes another one of, or a service that hands out credentials.
	never reach = iota
	// named: not globally reachable, so only where a rule names the network.
	named
	// public: globally reachable.
	public
)

func row(prefix, name, rfc string, r reach) block {
	return block{netip.MustParsePrefix(prefix), name, rfc, r}
}

// blocks4 is the IANA IPv4 Special-Purpose Address Registry as of 2025-10-09: a row
// is public if its column Globally Reachable says True, and not if it says False, N/A
// or, of a block that was given back, nothing. Below it stand the rows that other
// registries and RFCs know.
var blocks4 = []block{
	row("0.0.0.0/8", "This network", "RFC 791, Section 3.2", never),
	row("0.0.0.0/32", "This host on this network", "RFC 1122, Section 3.2.1.3", never),
	row("10.0.0.0/8", "Private-Use", "RFC 1918", named),
	row("100.64.0.0/10", "Shared Address Space", "RFC 6598", named),
	row("127.0.0.0/8", "Loopback", "RFC 1122, Section 3.2.1.3", named),
	row("169.254.0.0/16", "Link Local", "RFC 3927", named),
	row("172.16.0.0/12", "Private-Use", "RFC 1918", named),
	row("192.0.0.0/24", "IETF Protocol Assignments", "RFC 6890, Section 2.1", named),
	row("192.0.0.0/29", "IPv4 Service Continuity Prefix", "RFC 7335", named),
	row("192.0.0.8/32", "IPv4 dummy address", "RFC 7600", named),
	row("192.0.0.9/32", "Port Control Protocol Anycast", "RFC 7723", public),
	row("192.0.0.10/32", "Traversal Using Relays around NAT Anycast", "RFC 8155", public),
	row("192.0.0.170/32", "NAT64/DNS64 Discovery", "RFC 8880, RFC 7050, Section 2.2", named),
	row("192.0.0.171/32", "NAT64/DNS64 Discovery", "RFC 8880, RFC 7050, Section 2.2", named),
	row("192.0.2.0/24", "Documentation (TEST-NET-1)", "RFC 5737", named),
	row("192.31.196.0/24", "AS112-v4", "RFC 7535", public),
	row("192.52.193.0/24", "AMT", "RFC 7450", public),
	row("192.88.99.0/24", "Deprecated (6to4 Relay Anycast)", "RFC 7526", named),
	row("192.88.99.2/32", "6a44-relay anycast address", "RFC 6751", named),
	row("192.168.0.0/16", "Private-Use", "RFC 1918", named),
	row("192.175.48.0/24", "Direct Delegation AS112 Service", "RFC 7534", public),
	row("198.18.0.0/15", "Benchmarking", "RFC 2544", named),
	row("198.51.100.0/24", "Documentation (TEST-NET-2)", "RFC 5737", named),
	row("203.0.113.0/24", "Documentation (TEST-NET-3)", "RFC 5737", named),
	row("240.0.0.0/4", "Reserved", "RFC 1112, Section 4", named),
	row("255.255.255.255/32", "Limited Broadcast", "RFC 8190, RFC 919, Section 7", never),

	row("0.0.0.0/0", "Unicast", "RFC 791", public),
	row("224.0.0.0/4", "Multicast", "RFC 5771", never),
}

// blocks6 is the IANA IPv6 Special-Purpose Address Registry as of 2025-10-09, but
// for ::ffff:0:0/96: such an address is looked up as the IPv4 address that the
// kernel makes of it. Below it stands what is no special purpose: only 2000::/3 is
// delegated for global unicast (RFC 3587; IANA, Internet Protocol Version 6 Address
// Space).
var blocks6 = []block{
	row("::1/128", "Loopback Address", "RFC 4291", named),
	row("::/128", "Unspecified Address", "RFC 4291", never),
	row("64:ff9b::/96", "IPv4-IPv6 Translat.", "RFC 6052", public), // see carried
	row("64:ff9b:1::/48", "IPv4-IPv6 Translat.", "RFC 8215", never),
	row("100::/64", "Discard-Only Address Block", "RFC 6666", named),
	row("100:0:0:1::/64", "Dummy IPv6 Prefix", "RFC 9780", named),
	row("2001::/23", "IETF Protocol Assignments", "RFC 2928", named),
	row("2001::/32", "TEREDO", "RFC 4380, RFC 8190", never),
	row("2001:1::1/128", "Port Control Protocol Anycast", "RFC 7723", public),
	row("2001:1::2/128", "Traversal Using Relays around NAT Anycast", "RFC 8155", public),
	row("2001:1::3/128", "DNS-SD Service Registration Protocol Anycast", "RFC 9665", public),
	row("2001:2::/48", "Benchmarking", "RFC 5180, RFC Errata 1752", named),
	row("2001:3::/32", "AMT", "RFC 7450", public),
	row("2001:4:112::/48", "AS112-v6", "RFC 7535", public),
	row("2001:10::/28", "Deprecated (previously ORCHID)", "RFC 4843", named),
	row("2001:20::/28", "ORCHIDv2", "RFC 7343", public),
	row("2001:30::/28", "Drone Remote ID Protocol Entity Tags (DETs) Prefix", "RFC 9374", public),
	row("2001:db8::/32", "Documentation", "RFC 3849", named),
	row("2002::/16", "6to4", "RFC 3056", never),
	row("2620:4f:8000::/48", "Direct Delegation AS112 Service", "RFC 7534", public),
	row("3fff::/20", "Documentation", "RFC 9637", named),
	row("5f00::/16", "Segment Routing (SRv6) SIDs", "RFC 9602", named),
	row("fc00::/7", "Unique-Local", "RFC 4193, RFC 8190", named),
	row("fe80::/10", "Link-Local Unicast", "RFC 4291", named),

	row("::/0", "not delegated for global unicast", "RFC 4291, Section 2.4", never),
	row("2000::/3", "Global Unicast", "RFC 3587", public),
	row("::/96", "IPv4-Compatible Address (deprecated)", "RFC 4291, Section 2.5.5.1", never),
	row("::ffff:0:0:0/96", "IPv4-translated Address", "RFC 2765", never),
	row("fec0::/10", "Site-Local (deprecated)", "RFC 3879", named),
	row("ff00::/8", "Multicast", "RFC 4291, Section 2.7", never),
}

// metadata are the addresses at which providers tell a machine who it is, which
// mostly means: hand out credentials. Some look public. They are never reached. The
// rows name whose they are where others name an RFC.
var metadata = []block{
	row("169.254.169.254/32", "instance metadata", "used by most providers", never),
	row("169.254.169.253/32", "VPC resolver", "AWS", never),
	row("169.254.170.2/32", "task credentials", "AWS ECS", never),
	row("169.254.170.23/32", "pod identity", "AWS EKS", never),
	row("169.254.0.23/32", "instance metadata", "Tencent Cloud", never),
	row("169.254.42.42/32", "instance metadata", "Scaleway", never),
	row("100.96.0.96/32", "instance metadata", "Volcano Engine", never),
	row("100.100.100.200/32", "instance metadata", "Alibaba Cloud", never),
	row("168.63.129.16/32", "platform services", "Azure", never),
	row("192.0.0.192/32", "instance metadata", "Oracle Cloud Classic", never),
	row("fd00:ec2::23/128", "pod identity", "AWS EKS", never),
	row("fd00:ec2::253/128", "VPC resolver", "AWS", never),
	row("fd00:ec2::254/128", "instance metadata", "AWS", never),
	row("fd00:42::42/128", "instance metadata", "Scaleway", never),
	row("fd20:ce::254/128", "instance metadata", "Google Cloud", never),
	row("fe80::a9fe:a9fe/128", "instance metadata", "OpenStack", never),
}
