package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tendril/destination"
	"tendril/fault"
)

func TestDial(t *testing.T) {
	const host = "8.7.6.5" // this host's own, in this test, beside 10.0.0.7 and 127.0.0.1
	for _, test := range []struct {
		answers, networks string
		reached, rule     string // one of the two
	}{
		{answers: "1.1.1.1", reached: "1.1.1.1:443"},
		{answers: "1.1.1.1 2606:4700::1", reached: "1.1.1.1:443"},
		{answers: "2606:4700::1 1.1.1.1", reached: "[2606:4700::1]:443"},
		{answers: "1.1.1.1 1.1.1.1 ::ffff:1.1.1.1", reached: "1.1.1.1:443"},
		{answers: "::ffff:1.1.1.1", reached: "1.1.1.1:443"},
		// One address that may not be reached refuses the name, wherever it stands.
		{answers: "1.1.1.1 127.0.0.1", rule: "Loopback (RFC 1122, Section 3.2.1.3)"},
		{answers: "127.0.0.1 1.1.1.1", rule: "Loopback (RFC 1122, Section 3.2.1.3)"},
		{answers: "1.1.1.1 ::1", rule: "Loopback Address (RFC 4291)"},
		{answers: "1.1.1.1 ::ffff:10.0.0.1", rule: "Private-Use (RFC 1918)"},
		{answers: "2606:4700::1%eth0", rule: "an address with a zone, which means something on one host only (RFC 4007)"},
		// A network that the rule names.
		{answers: "10.0.0.1", networks: "10.0.0.0/8", reached: "10.0.0.1:443"},
		{answers: "::ffff:10.0.0.1", networks: "10.0.0.0/8", reached: "10.0.0.1:443"},
		{answers: "10.0.0.1 1.1.1.1", networks: "10.0.0.0/8", reached: "10.0.0.1:443"},
		{answers: "10.0.0.1 10.1.0.1", networks: "10.0.0.0/16", rule: "Private-Use (RFC 1918)"},
		{answers: "10.0.0.1", networks: "10.0.0.2/32 fd00::/8", rule: "Private-Use (RFC 1918)"},
		{answers: "fd00::1", networks: "10.0.0.2/32 fd00::/8", reached: "[fd00::1]:443"},
		{answers: "127.0.0.1", networks: "127.0.0.0/8", reached: "127.0.0.1:443"},
		{answers: "::1", networks: "::1/128", reached: "[::1]:443"},
		{answers: "10.0.0.1", networks: "::/0", rule: "Private-Use (RFC 1918)"},
		// What no rule can name.
		{answers: "169.254.169.254", networks: "0.0.0.0/0 169.254.169.254/32", rule: "instance metadata (used by most providers)"},
		{answers: "::ffff:169.254.169.254", networks: "::/0 0.0.0.0/0", rule: "instance metadata (used by most providers)"},
		{answers: "64:ff9b::a9fe:a9fe", networks: "::/0 0.0.0.0/0", rule: "instance metadata (used by most providers)"},
		{answers: "64:ff9b:1::a9fe:a9fe", networks: "::/0 0.0.0.0/0", rule: "IPv4-IPv6 Translat. (RFC 8215)"},
		{answers: "fd00:ec2::254", networks: "fd00::/8", rule: "instance metadata (AWS)"},
		{answers: "fd00::5efe:169.254.169.254", networks: "fd00::/8", rule: "instance metadata (used by most providers)"},
		{answers: "168.63.129.16", networks: "168.63.129.16/32", rule: "platform services (Azure)"},
		{answers: "64:ff9b::10.0.0.1", networks: "64:ff9b::/96 10.0.0.0/8", rule: "Private-Use (RFC 1918)"},
		{answers: "2002:a00:1::1", networks: "2002::/16", rule: "6to4 (RFC 3056)"},
		{answers: "0.0.0.0", networks: "0.0.0.0/8 127.0.0.0/8", rule: "This host on this network (RFC 1122, Section 3.2.1.3)"},
		{answers: "::", networks: "::/0", rule: "Unspecified Address (RFC 4291)"},
		{answers: "224.0.0.1", networks: "224.0.0.0/4", rule: "Multicast (RFC 5771)"},
		// This host's own addresses.
		{answers: host, rule: "this host (an address of its interfaces)"},
		{answers: host, networks: "8.0.0.0/8", rule: "this host (an address of its interfaces)"},
		{answers: "1.1.1.1 " + host, rule: "this host (an address of its interfaces)"},
		{answers: "64:ff9b::" + host, rule: "this host (an address of its interfaces)"},
		{answers: "10.0.0.7", rule: "Private-Use (RFC 1918)"},
		{answers: "10.0.0.7", networks: "10.0.0.0/24", reached: "10.0.0.7:443"},
	} {
		world := newInternet(t)
		d := Dialer{
			Resolver: answers(strings.Fields(test.answers)...), Connect: world.Connect,
			own: func() ([]netip.Addr, error) { return addrs(host, "10.0.0.7", "127.0.0.1"), nil },
		}
		name := test.answers + " with " + test.networks
		reached, err := dial(&d, authority(t, "x.example.org:443"), prefixes(strings.Fields(test.networks)...)...)
		if test.rule != "" {
			t.Run(name, func(t *testing.T) {
				wantDenied(t, err, test.rule)
				wantCalls(t, world)
			})
			continue
		}
		if err != nil || reached.String() != test.reached {
			t.Errorf("%s: %s, %v", name, reached, err)
		}
	}
}

// An address that stands in the place of a name is looked at alike, and nobody is asked.
func TestDialLiteral(t *testing.T) {
	resolver := answers("1.1.1.1")
	for to, want := range map[string]string{
		"1.1.1.1:443":               "",
		"[2606:4700::1]:8443":       "",
		"127.0.0.1:80":              "127.0.0.1 may not be reached: Loopback (RFC 1122, Section 3.2.1.3)",
		"[::1]:80":                  "[::1] may not be reached: Loopback Address (RFC 4291)",
		"[64:ff9b::a00:1]:80":       "[64:ff9b::a00:1] may not be reached: Private-Use (RFC 1918)",
		"[2002:7f00:1::1]:80":       "[2002:7f00:1::1] may not be reached: 6to4 (RFC 3056)",
		"[2400::5efe:a9fe:a9fe]:80": "[2400::5efe:a9fe:a9fe] may not be reached: instance metadata (used by most providers)",
	} {
		world := newInternet(t)
		d := Dialer{Resolver: resolver, Connect: world.Connect}
		reached, err := dial(&d, authority(t, to))
		if want == "" {
			if err != nil || reached.String() != to {
				t.Errorf("%s: %s, %v", to, reached, err)
			}
			wantCalls(t, world, to)
		} else {
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", to, err, want)
			}
			wantCalls(t, world)
		}
	}
	if len(resolver.asked) > 0 {
		t.Errorf("%q was looked up", resolver.asked)
	}
}

func TestFailover(t *testing.T) {
	world := newInternet(t)
	d := Dialer{Resolver: answers("1.1.1.1", "1.0.0.1", "::ffff:1.1.1.1", "1.1.1.1", "9.9.9.9"), Connect: world.Connect}
	world.closed = []netip.AddrPort{netip.MustParseAddrPort("1.1.1.1:443"), netip.MustParseAddrPort("1.0.0.1:443")}
	if reached, err := dial(&d, authority(t, "x.example.org:443")); err != nil || reached.String() != "9.9.9.9:443" {
		t.Errorf("%s, %v", reached, err)
	}
	wantCalls(t, world, "1.1.1.1:443", "1.0.0.1:443", "9.9.9.9:443")
	world.closed = append(world.closed, netip.MustParseAddrPort("9.9.9.9:443"))
	_, err := dial(&d, authority(t, "x.example.org:443"))
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "x.example.org:443") {
		t.Error(err)
	}
	wantCalls(t, world, "1.1.1.1:443", "1.0.0.1:443", "9.9.9.9:443")
}

type failing struct{ err error }

func (f failing) Lookup(context.Context, string) ([]netip.Addr, error) { return nil, f.err }

func TestDialIsRefused(t *testing.T) {
	to := authority(t, "x.example.org:443")
	var many []netip.Addr
	for i := range mostAnswers + 1 {
		many = append(many, netip.AddrFrom4([4]byte{1, 1, 1, byte(i)}))
	}
	for _, test := range []struct {
		what   string
		dialer Dialer
		to     destination.Authority
		kind   fault.Kind
		says   string
	}{
		{"no destination", Dialer{}, destination.Authority{}, fault.Invalid, "there is no destination"},
		{"no address", Dialer{Resolver: answers()}, to, fault.Unavailable, "it has no address"},
		{"too many addresses", Dialer{Resolver: &fixed{lists: [][]netip.Addr{many}}}, to, fault.Unavailable, "has 65 addresses"},
		{"no such name", Dialer{Resolver: failing{&net.DNSError{Err: "no such host", Name: "x.example.org.", IsNotFound: true}}}, to, fault.Unavailable, "no such host"},
		{"a time-out", Dialer{Resolver: failing{&net.DNSError{Err: "timeout", IsTimeout: true}}}, to, fault.Unavailable, "timeout"},
		{"another error", Dialer{Resolver: failing{io.ErrUnexpectedEOF}}, to, fault.Unavailable, "unexpected EOF"},
		{"own addresses are not known", Dialer{Resolver: answers("1.1.1.1"), own: func() ([]netip.Addr, error) { return nil, io.ErrNoProgress }}, to, fault.Unavailable, "read the addresses of this host"},
	} {
		world := newInternet(t)
		test.dialer.Connect = world.Connect
		conn, reached, err := test.dialer.Dial(t.Context(), test.to, prefixes("0.0.0.0/0"))
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != test.kind || !strings.Contains(f.Detail, test.says) || (f.Hint == "") != (test.kind == fault.Invalid) {
			t.Errorf("%s: %v", test.what, err)
		}
		if conn != nil || reached.IsValid() {
			t.Errorf("%s: %v to %s beside the error", test.what, conn, reached)
		}
		wantCalls(t, world)
	}
	many = many[:mostAnswers]
	world := newInternet(t)
	if _, err := dial(&Dialer{Resolver: &fixed{lists: [][]netip.Addr{many}}, Connect: world.Connect}, to); err != nil {
		t.Error(err)
	}
}

// closing says when it is closed.
type closing struct {
	pretending
	closed *bool
}

func (c closing) Close() error {
	*c.closed = true
	return c.pretending.Close()
}

// A connection that leads elsewhere than where it was dialled to is not used.
func TestWhatIsDialledIsWhatIsReached(t *testing.T) {
	for _, elsewhere := range []string{"1.1.1.2:443", "1.1.1.1:444", "127.0.0.1:443"} {
		world := newInternet(t)
		closed := false
		d := Dialer{Resolver: answers("1.1.1.1", "1.0.0.1"), Connect: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			conn, err := world.Connect(ctx, to)
			return closing{pretending{conn, netip.MustParseAddrPort(elsewhere)}, &closed}, err
		}}
		conn, _, err := d.Dial(t.Context(), authority(t, "x.example.org:443"), nil)
		if !fault.Is(err, fault.BrokenBoundary) || conn != nil || !closed {
			t.Errorf("%s: %v, closed %t", elsewhere, err, closed)
		}
		wantCalls(t, world, "1.1.1.1:443")
	}
	if to := remote(unixConn{}); to.IsValid() {
		t.Errorf("a connection that is no TCP leads to %s", to)
	}
}

type unixConn struct{ net.Conn }

func (unixConn) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "/socket", Net: "unix"} }

type unanswered struct{}

func (unanswered) Lookup(ctx context.Context, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDialEndsInTime(t *testing.T) {
	silent := func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	to := authority(t, "x.example.org:443")
	own := func() ([]netip.Addr, error) { return nil, nil }
	for what, test := range map[string]struct {
		dialer Dialer
		want   time.Duration
	}{
		"no answer":              {Dialer{Resolver: unanswered{}}, lookupTime},
		"one silent address":     {Dialer{Resolver: answers("1.1.1.1"), Connect: silent, own: own}, connectTime},
		"two silent addresses":   {Dialer{Resolver: answers("1.1.1.1", "1.0.0.1"), Connect: silent, own: own}, 2 * connectTime},
		"seven silent addresses": {Dialer{Resolver: answers("1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5", "1.1.1.6", "1.1.1.7"), Connect: silent, own: own}, totalTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, _, err := test.dialer.Dial(t.Context(), to, nil)
			if !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != test.want {
				t.Errorf("%s: %v after %s", what, err, time.Since(start))
			}
		})
		synctest.Test(t, func(t *testing.T) { // who asked hangs up
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start := time.Now()
			_, _, err := test.dialer.Dial(ctx, to, nil)
			if !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %s", what, err, time.Since(start))
			}
		})
	}
}

// Without a stand-in: the host's own network, and nothing of the environment.
func TestDialForReal(t *testing.T) {
	proxy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://"+proxy.Addr().String())
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	var d Dialer
	conn, reached, err := d.Dial(t.Context(), authority(t, fmt.Sprintf("localhost:%d", port)), prefixes("127.0.0.0/8", "::1/128"))
	if err != nil || reached.String() != listener.Addr().String() {
		t.Fatalf("%s, %v", reached, err)
	}
	defer conn.Close()
	served, err := listener.Accept()
	if err != nil || served.RemoteAddr().String() != conn.LocalAddr().String() {
		t.Fatalf("%v, %v", served, err)
	}
	served.Write([]byte("hello"))
	served.Close()
	if got, err := io.ReadAll(conn); string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if _, _, err := d.Dial(t.Context(), authority(t, fmt.Sprintf("localhost:%d", port)), prefixes("127.0.0.0/8")); !fault.Is(err, fault.Denied) {
		t.Errorf("::1 was not named: %v", err)
	}
	listener.Close()
	conn, _, err = d.Dial(t.Context(), authority(t, listener.Addr().String()), prefixes("127.0.0.0/8"))
	if !fault.Is(err, fault.Unavailable) || conn != nil {
		t.Errorf("nobody listens: %v, %v", conn, err)
	}
}

// Every address of an interface is this host's.
func TestInterfaces(t *testing.T) {
	own, err := interfaces()
	if err != nil || len(own) == 0 {
		t.Fatalf("%v, %v", own, err)
	}
	for _, address := range own {
		listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), "0"))
		if address.IsLinkLocalUnicast() {
			continue // needs a zone to be bound
		}
		if err != nil {
			t.Errorf("%s is not of this host: %v", address, err)
			continue
		}
		listener.Close()
	}
}

func TestDialersAreShared(t *testing.T) {
	server := zone(t, func(string) string { return "A 1.1.1.1" })
	world := newInternet(t)
	d := Dialer{Resolver: server.resolver(), Connect: world.Connect}
	var dialling sync.WaitGroup
	for i := range 64 {
		dialling.Go(func() {
			if _, err := dial(&d, authority(t, fmt.Sprintf("x%d.example.org:443", i))); err != nil {
				t.Error(err)
			}
		})
	}
	dialling.Wait()
	if n := len(world.calls()); n != 64 {
		t.Errorf("%d calls", n)
	}
}
