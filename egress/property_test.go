package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// Whatever a resolver answers, and whatever else it answers the next time, nothing is
// dialled that is neither reachable nor named.
func TestNoAnswerLeadsElsewhere(t *testing.T) {
	const host = "8.7.6.5"
	to := authority(t, "x.example.org:443")
	rapid.Check(t, func(rt *rapid.T) {
		drawn := func() []netip.Addr {
			list := make([]netip.Addr, rapid.IntRange(0, 4).Draw(rt, "answers"))
			for i := range list {
				list[i] = drawAddress(rt)
			}
			return list
		}
		networks := []netip.Prefix{}
		for range rapid.IntRange(0, 3).Draw(rt, "networks") {
			address := drawAddress(rt)
			prefix, err := address.Prefix(rapid.IntRange(0, address.BitLen()).Draw(rt, "bits"))
			if err != nil {
				rt.Fatal(err)
			}
			networks = append(networks, prefix)
		}
		resolver := &fixed{lists: [][]netip.Addr{drawn(), drawn(), drawn()}}
		d := Dialer{
			Resolver: resolver,
			own:      func() ([]netip.Addr, error) { return addrs(host, "127.0.0.1"), nil },
			Connect: func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
				address := to.Addr()
				named := false
				for _, network := range networks {
					named = named || network.Contains(address)
				}
				if !Classify(address).Reachable && !named {
					rt.Errorf("%s was dialled: %s", address, Classify(address))
				}
				if address.Is4In6() || address.IsUnspecified() || address.IsMulticast() || address.String() == host || address.String() == "169.254.169.254" {
					rt.Errorf("%s was dialled", address)
				}
				return nil, syscall.ECONNREFUSED // so that all of them are tried
			},
		}
		for range 4 {
			before := len(resolver.asked)
			if _, err := dial(&d, to, networks...); err == nil {
				rt.Errorf("nobody answers, and one is reached")
			}
			if len(resolver.asked) != before+1 {
				rt.Errorf("one dial looked up %d times", len(resolver.asked)-before)
			}
		}
	})
}

// The same over real sockets: of sixteen listeners only those in the named network are
// ever connected to.
func TestOnlyTheNamedNetworkIsReached(t *testing.T) {
	listeners, port := loopbacks(t, 16)
	named := netip.MustParsePrefix("127.77.0.8/29") // 127.77.0.8 to 127.77.0.15
	server := &fixed{lists: [][]netip.Addr{nil}}
	d := Dialer{Resolver: server}
	to := authority(t, netip.AddrPortFrom(netip.MustParseAddr("1.1.1.1"), port).String())
	to.Host = authority(t, "x.example.org:1").Host
	reached := 0
	rapid.Check(t, func(rt *rapid.T) {
		list := make([]netip.Addr, rapid.IntRange(1, 3).Draw(rt, "answers"))
		for i := range list {
			list[i] = netip.AddrFrom4([4]byte{127, 77, 0, byte(rapid.IntRange(0, 15).Draw(rt, "listener"))})
			if rapid.Bool().Draw(rt, "mapped") {
				list[i] = netip.AddrFrom16(list[i].As16())
			}
		}
		server.lists = [][]netip.Addr{list}
		conn, _, err := d.Dial(context.Background(), to, []netip.Prefix{named})
		if err == nil {
			reached++
			defer conn.Close()
		}
		for address, listener := range listeners {
			if waiting(rt, listener) && (!named.Contains(address) || err != nil) {
				rt.Errorf("%v led to %s", list, address)
			}
		}
	})
	if reached == 0 {
		t.Error("nothing was reached")
	}
}

// loopbacks listens at 127.77.0.0 and the addresses after it, all at one port.
func loopbacks(t *testing.T, n int) (map[netip.Addr]*net.TCPListener, uint16) {
	t.Helper()
	for range 16 {
		listeners := map[netip.Addr]*net.TCPListener{}
		address, port := netip.MustParseAddr("127.77.0.0"), 0
		for range n {
			listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: address.AsSlice(), Port: port})
			if err != nil {
				break
			}
			t.Cleanup(func() { listener.Close() })
			listeners[address] = listener
			port = listener.Addr().(*net.TCPAddr).Port
			address = address.Next()
		}
		if len(listeners) == n {
			return listeners, uint16(port)
		}
		if len(listeners) == 0 {
			t.Skip("nothing can listen at 127.77.0.0: this system's loopback is 127.0.0.1 alone")
		}
	}
	t.Fatal("no port is free at all addresses")
	return nil, 0
}

// waiting takes a connection that waits at a listener, if there is one. Connecting to
// loopback is done when it returns, so there is nothing to wait for.
func waiting(t interface{ Fatal(...any) }, listener *net.TCPListener) bool {
	raw, err := listener.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var fd int
	var accepting error
	if err := raw.Control(func(listening uintptr) {
		fd, _, accepting = syscall.Accept4(int(listening), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
	}); err != nil {
		t.Fatal(err)
	}
	switch {
	case errors.Is(accepting, syscall.EAGAIN):
		return false
	case accepting != nil:
		t.Fatal(accepting)
	}
	syscall.Close(fd)
	return true
}
