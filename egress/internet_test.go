package egress

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"tendril/destination"
)

// internet stands in for every address: it accepts connections on loopback, and
// remembers which addresses were dialled.
type internet struct {
	listener *net.TCPListener
	closed   []netip.AddrPort // those that refuse connections

	mu      sync.Mutex
	dialled []netip.AddrPort
}

func newInternet(t testing.TB) *internet {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return &internet{listener: listener}
}

// Connect is for Dialer.Connect.
func (i *internet) Connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	i.mu.Lock()
	i.dialled = append(i.dialled, to)
	i.mu.Unlock()
	if slices.Contains(i.closed, to) {
		return nil, syscall.ECONNREFUSED
	}
	conn, err := tcp(ctx, i.listener.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return nil, err
	}
	return pretending{conn, to}, nil
}

// calls returns the addresses that were dialled since it was last called.
func (i *internet) calls() []netip.AddrPort {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := i.dialled
	i.dialled = nil
	return list
}

// pretending is a connection that claims to lead elsewhere.
type pretending struct {
	net.Conn
	to netip.AddrPort
}

func (p pretending) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(p.to) }

// fixed answers each lookup with the next list, and the last one again and again.
type fixed struct {
	mu    sync.Mutex
	lists [][]netip.Addr
	asked []string
}

func (f *fixed) Lookup(_ context.Context, host string) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, host)
	list := f.lists[0]
	if len(f.lists) > 1 {
		f.lists = f.lists[1:]
	}
	return list, nil
}

func answers(list ...string) *fixed { return &fixed{lists: [][]netip.Addr{addrs(list...)}} }

func addrs(list ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, text := range list {
		parsed = append(parsed, netip.MustParseAddr(text))
	}
	return parsed
}

func prefixes(list ...string) []netip.Prefix {
	var parsed []netip.Prefix
	for _, text := range list {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

func authority(t testing.TB, text string) destination.Authority {
	t.Helper()
	a, err := destination.ParseAuthority(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// dial dials and hangs up.
func dial(d *Dialer, to destination.Authority, networks ...netip.Prefix) (netip.AddrPort, error) {
	conn, reached, err := d.Dial(context.Background(), to, networks)
	if err == nil {
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	return reached, err
}
