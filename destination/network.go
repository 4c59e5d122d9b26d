package destination

import (
	"net/netip"

	"tendril/fault"
)

// Network is a range of addresses, such as 10.1.0.0/16. The zero Network holds none.
type Network struct{ prefix netip.Prefix }

// widest are the fewest bits that a network may fix: what is wider is no network of
// anybody's.
const widest4, widest6 = 8, 16

// ParseNetwork takes a prefix whose address has no bit set beyond its length.
func ParseNetwork(text string) (Network, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil || prefix.String() != text || prefix.Addr().Is4In6():
		return Network{}, fault.New(fault.Invalid, "%q is not a network", clip(text)).WithHint("write it like 10.1.0.0/16 or fd12:3456::/32")
	case prefix.Masked() != prefix:
		return Network{}, fault.New(fault.Invalid, "%s has bits beyond its length", text).WithHint("write %s", prefix.Masked())
	case prefix.Bits() < widest4 || prefix.Addr().Is6() && prefix.Bits() < widest6:
		return Network{}, fault.New(fault.Invalid, "%s is wider than any one network", text).WithHint("name the network that is meant")
	}
	return Network{prefix}, nil
}

// Prefix is the range.
func (n Network) Prefix() netip.Prefix { return n.prefix }

func (n Network) String() string { return n.prefix.String() }

// MarshalText returns the network as a file has it.
func (n Network) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText is ParseNetwork.
func (n *Network) UnmarshalText(text []byte) error {
	parsed, err := ParseNetwork(string(text))
	if err == nil {
		*n = parsed
	}
	return err
}

// within reports whether the other holds every address of n.
func (n Network) within(other Network) bool {
	return other.prefix.Bits() <= n.prefix.Bits() && other.prefix.Contains(n.prefix.Addr())
}
