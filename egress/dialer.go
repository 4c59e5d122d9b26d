// Package egress resolves and dials the destinations that a decision has permitted.
//
// It promises that a connection is made only to an address that was looked at: a name
// is resolved once, without search domains; every address that it has must be
// globally reachable by the IANA registries, or in a network that the deciding rule
// names on purpose; one that is not refuses the name as a whole. Addresses of this host
// and of metadata services are refused beyond that. What is dialled is the address and
// never the name, directly and over TCP, whatever proxy the environment names.
//
// What it does not protect against: a public address that leads back in (a router
// that forwards a port or sends traffic around, a NAT64 prefix of the network's own, a
// route of type local that is no interface's address), and a server that relays. That
// the right server answers is for TLS to prove.
package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"tendril/destination"
	"tendril/fault"
)

// The bounds of one Dial.
const (
	lookupTime  = 5 * time.Second
	connectTime = 5 * time.Second // of each address
	totalTime   = 20 * time.Second

	// mostAnswers is how many addresses a name may have. A UDP answer holds some 40.
	mostAnswers = 64
)

// Dialer connects to what was permitted. The zero Dialer is ready to use. Its methods
// are safe for concurrent use; its fields must not change meanwhile.
type Dialer struct {
	// Resolver answers for names; nil means [System].
	Resolver Resolver

	// Connect opens a TCP connection to an address, and its RemoteAddr must be that
	// address; nil means the host's network. A test sets it to stand in for the Internet.
	Connect func(ctx context.Context, to netip.AddrPort) (net.Conn, error)

	own func() ([]netip.Addr, error) // this host's addresses; nil: those of its interfaces
}

// Dial resolves the authority's host, looks at every address, and connects to one of
// them, in the resolver's order. networks are those that the deciding rule names on
// purpose although they are not globally reachable. It returns the connection and the
// address that it leads to.
//
// Faults: denied, if any address may not be reached (the rule is the address's block);
// unavailable, if the name has no address or none answers in time.
func (d *Dialer) Dial(ctx context.Context, to destination.Authority, networks []netip.Prefix) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, totalTime)
	defer cancel()
	addresses, err := d.resolve(ctx, to.Host)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	if err := d.judge(to.Host, addresses, networks); err != nil {
		return nil, netip.AddrPort{}, err
	}
	return d.first(ctx, to, addresses)
}

// resolve returns the addresses of a host, each once and as it is dialled.
func (d *Dialer) resolve(ctx context.Context, host destination.Host) ([]netip.Addr, error) {
	if host == (destination.Host{}) {
		return nil, fault.New(fault.Invalid, "there is no destination")
	}
	if address, ok := host.Address(); ok {
		return []netip.Addr{address.Unmap()}, nil
	}
	resolver := d.Resolver
	if resolver == nil {
		resolver = System{}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	answers, err := resolver.Lookup(ctx, host.String())
	if err != nil {
		return nil, unresolved(host, err)
	}
	if len(answers) > mostAnswers {
		return nil, fault.New(fault.Unavailable, "%s has %d addresses, and no more than %d are looked at", host, len(answers), mostAnswers).
			WithHint("name a host that has fewer, if there is one")
	}
	var addresses []netip.Addr
	for _, answer := range answers {
		if address := answer.Unmap(); !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	if len(addresses) == 0 {
		return nil, unresolved(host, errNoAddress)
	}
	return addresses, nil
}

var errNoAddress = errors.New("it has no address")

func unresolved(host destination.Host, err error) error {
	f := fault.New(fault.Unavailable, "resolve %s: %w", host, err)
	var dns *net.DNSError
	switch {
	case errors.Is(err, errNoAddress), errors.As(err, &dns) && dns.IsNotFound:
		return f.WithHint("check the name; it is looked up as it is written, without a search domain")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &dns) && dns.IsTimeout:
		return f.WithHint("the host's name servers did not answer within %s; check them, and try again", lookupTime)
	}
	return f.WithHint("check the host's name servers, and try again")
}

// judge refuses a host if any one of its addresses may not be dialled.
func (d *Dialer) judge(host destination.Host, addresses []netip.Addr, networks []netip.Prefix) error {
	read := d.own
	if read == nil {
		read = interfaces
	}
	own, err := read()
	if err != nil {
		return fault.New(fault.Unavailable, "read the addresses of this host: %w", err).
			WithHint("they must not be reached from inside, so nothing is until they are known")
	}
	for _, address := range addresses {
		if err := permit(host, address, networks, own); err != nil {
			return err
		}
	}
	return nil
}

// permit says whether an address of a host may be dialled.
func permit(host destination.Host, address netip.Addr, networks []netip.Prefix, own []netip.Addr) error {
	b := find(address)
	meant := slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
	inside, _ := carried(address)
	switch {
	case b.reach == never:
		return refused(host, address, b).WithHint("no rule can permit this address")
	case b.reach == named && !meant:
		return refused(host, address, b).WithHint("if it is meant, the rule has to name a network that holds it")
	case b.reach == public && (slices.Contains(own, address) || slices.Contains(own, inside)):
		return refused(host, address, block{name: "this host", rfc: "an address of its interfaces"}).
			WithHint("if a service of this host is meant, name loopback or a private network in the rule")
	}
	return nil
}

func refused(host destination.Host, address netip.Addr, b block) *fault.Error {
	class := Class{Block: b.name, RFC: b.rfc}
	if literal, ok := host.Address(); ok && literal.Unmap() == address {
		return fault.New(fault.Denied, "%s may not be reached: %s", host, class).WithRule(class.String())
	}
	return fault.New(fault.Denied, "%s has the address %s, which may not be reached: %s", host, address, class).WithRule(class.String())
}

// interfaces returns the addresses of this host as they are now.
func interfaces() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range list {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, err
		}
		own = append(own, prefix.Addr().Unmap())
	}
	return own, nil
}

// first connects to the first address that answers.
func (d *Dialer) first(ctx context.Context, to destination.Authority, addresses []netip.Addr) (net.Conn, netip.AddrPort, error) {
	connect := d.Connect
	if connect == nil {
		connect = tcp
	}
	var last error
	for _, address := range addresses {
		dialled := netip.AddrPortFrom(address, uint16(to.Port))
		conn, err := within(ctx, connect, dialled)
		if err != nil {
			last = err
			if ctx.Err() != nil {
				break
			}
			continue
		}
		if reached := remote(conn); reached != dialled {
			conn.Close()
			return nil, netip.AddrPort{}, fault.New(fault.BrokenBoundary, "dialled %s for %s and reached %s", dialled, to, reached)
		}
		return conn, dialled, nil
	}
	return nil, netip.AddrPort{}, fault.New(fault.Unavailable, "connect to %s, which has %d addresses: %w", to, len(addresses), last).
		WithHint("check that the server runs and that this host reaches it")
}

// within gives one address its share of the time.
func within(ctx context.Context, connect func(context.Context, netip.AddrPort) (net.Conn, error), to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	return connect(ctx, to)
}

func tcp(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, to)
	if err != nil {
		return nil, err // a nil *TCPConn is no nil Conn
	}
	return conn, nil
}

// remote returns where a connection leads to, or the zero AddrPort.
func remote(conn net.Conn) netip.AddrPort {
	to, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
}
