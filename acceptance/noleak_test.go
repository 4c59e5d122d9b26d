//go:build linux

package acceptance_test

import (
	byteorder "encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"tendril/run"
)

const (
	// ownNamespace is set in a process that has a namespace of its own.
	ownNamespace = "TENDRIL_TEST_OWN_NAMESPACE"

	// elsewhere4 and elsewhere6 belong to nobody (RFC 5737, RFC 3849).
	elsewhere4 = "203.0.113.9"
	elsewhere6 = "2001:db8::9"
)

// How an attempt of attempt.pl ends inside: for want of a route (ENETUNREACH) or of a
// capability (EPERM). The loopback is there, but is none of the host's.
const (
	noRoute    = " failed: errno 101,"
	noSocket   = "socket failed: errno 1,"
	noneOfHost = "\nsent\n"
)

// attempts are what a program inside may try in order to send a packet. Each of them sends
// one where nothing holds it back, and the test looks that it does. PORT is a server's on
// the host's own loopback. What it says inside shows that it was held back there, and by what.
var attempts = []struct{ name, command, inside string }{
	{"tcp", "perl attempt.pl tcp " + elsewhere4 + " 80", "connect" + noRoute},
	{"tcp by the shell", "timeout 1 bash -c 'echo >/dev/tcp/" + elsewhere4 + "/80'", "connect: Network is unreachable"},
	{"tcp over ipv6", "perl attempt.pl tcp6 " + elsewhere6 + " 80", "connect" + noRoute},
	{"tcp over ipv6 that is ipv4", "perl attempt.pl tcp6 ::ffff:" + elsewhere4 + " 80", "connect" + noRoute},
	{"udp", "perl attempt.pl udp " + elsewhere4 + " 443", "send" + noRoute},
	{"udp over ipv6", "perl attempt.pl udp6 " + elsewhere6 + " 443", "send" + noRoute},
	{"broadcast", "perl attempt.pl udp 255.255.255.255 9", "send" + noRoute},
	{"multicast", "perl attempt.pl udp 224.0.0.251 5353", "send" + noRoute},
	{"icmp as ping(1) does", "perl attempt.pl ping " + elsewhere4, "send" + noRoute},
	{"icmp", "perl attempt.pl icmp " + elsewhere4, noSocket},
	{"icmp over ipv6", "perl attempt.pl icmp6 " + elsewhere6, noSocket},
	{"a raw socket", "perl attempt.pl raw " + elsewhere4, noSocket},
	{"a packet socket", "perl attempt.pl packet", noSocket},
	{"dns", "perl attempt.pl udp " + elsewhere4 + " 53", "send" + noRoute},
	{"dns by libc", "RES_OPTIONS='timeout:1 attempts:1' timeout 5 getent ahosts leak.example", "status 2\n"},
	{"metadata", "perl attempt.pl tcp 169.254.169.254 80", "connect" + noRoute},
	{"--noproxy", "curl -sS --connect-timeout 1 --noproxy '*' http://" + elsewhere4 + "/", "curl: (7)"},
	{"NO_PROXY", "NO_PROXY='*' no_proxy='*' curl -sS --connect-timeout 1 http://" + elsewhere4 + "/", "curl: (7)"},
	{"no proxy in the environment", "env -i curl -sS --connect-timeout 1 http://" + elsewhere4 + "/", "curl: (7)"},
	{"a name that the grant does not have", "RES_OPTIONS='timeout:1 attempts:1' curl -sS --connect-timeout 2 https://leak.example/", "response 403"},
	{"an address that the grant does not have", "curl -sS --connect-timeout 1 https://" + elsewhere4 + "/", "response 403"},
	{"the host's loopback", "perl attempt.pl tcp 127.0.0.1 PORT", noneOfHost},
	{"the host's loopback by udp", "perl attempt.pl udp 127.0.0.1 PORT", noneOfHost},
	{"the host's loopback over ipv6", "perl attempt.pl tcp6 ::1 PORT", noneOfHost},
	{"the host's loopback by the proxy", "curl -sS -m 5 --noproxy '' http://127.0.0.1:PORT/", "no rule names the host 127.0.0.1"},
}

// A network namespace has a way out, on which every packet is counted. What a program
// inside tries beside its proxy sends none, while what its grant permits does.
func TestNoPacketLeaves(t *testing.T) {
	needs(t, "ip", "perl", "curl", "bash", "timeout", "getent")
	if !inNamespace(t, syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}) {
		return
	}
	g := newGarden(t)
	g.shell(`ip link set lo up
		ip link add out0 type veth peer name wire0
		ip link set out0 arp off up && ip link set wire0 arp off up # packets leave without an answer from a neighbour
		ip address add 192.0.2.1/24 dev out0 && ip -6 address add 2001:db8::1/64 dev out0 nodad
		ip route add default dev out0 && ip -6 route add default dev out0 metric 1
		echo '0 0' >/proc/sys/net/ipv4/ping_group_range`)
	neighbour, port := loopbackServer(t)
	o := g.goOutside(t)
	g.permit(o, "")
	copyFile(t, "testdata/leak/attempt.pl", filepath.Join(g.repo, "attempt.pl"))
	g.git("add", "-A")
	g.git("commit", "-qm", "attempts")
	counted := countPackets(t, netip.MustParseAddrPort(o.Listener.Addr().String()))
	command := func(i int) string { return strings.ReplaceAll(attempts[i].command, "PORT", port) }

	// Here, where nothing holds it back, each attempt is counted.
	for i, attempt := range attempts {
		before := len(counted.foreign(t))
		out, _ := g.tryShell("cd "+g.repo+"\n"+command(i), "")
		if len(counted.foreign(t)) == before {
			t.Errorf("%s sends nothing that is counted, also outside: %s", attempt.name, out)
		}
	}
	if neighbour.visits() == 0 {
		t.Error("nobody came to the host's loopback, also from outside")
	}
	if t.Failed() {
		return
	}
	neighbour.forget()

	// Another run listens on its own loopback, and can be reached there by itself.
	other := g.grow(`perl -MIO::Socket::INET -e '
		$s = IO::Socket::INET->new(LocalAddr => "0.0.0.0", LocalPort => 4040, Listen => 5, ReuseAddr => 1) or die; $| = 1;
		$me = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => 4040) or die;
		while ($s->accept) { print "visited\n" }'`)
	otherRun := g.awaitOutput(other, nil, "visited")

	before, ours := len(counted.foreign(t)), counted.own(t)
	var script strings.Builder
	base := "https://" + net.JoinHostPort(o.host, o.port)
	fmt.Fprintf(&script, "curl -sS -m 20 %s/ok/before\n", base)
	for i := range attempts {
		fmt.Fprintf(&script, "echo \"trying %d\"; { %s; } 2>&1; echo \"status $?\"; echo \"tried %[1]d\"\n", i, command(i))
	}
	fmt.Fprintf(&script, "echo tried the other; perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => 4040) ? \"reached\" : $@'\n")
	fmt.Fprintf(&script, "curl -sS -m 20 %s/ok/after\n", base)
	said := g.succeed("--json", "pass", "--substrate", "handbook", "--", "sh", "-c", script.String())
	var passed struct {
		Run    run.Run `json:"run"`
		Stdout []byte  `json:"stdout_b64"`
	}
	if err := json.Unmarshal([]byte(said.stdout), &passed); err != nil {
		t.Fatal(err)
	}
	out := string(passed.Stdout)
	t.Logf("inside:\n%s", out)
	for _, packet := range counted.foreign(t)[before:] {
		t.Errorf("left: %s", packet)
	}
	if counted.own(t) == ours {
		t.Error("not even what the grant permits was counted")
	}
	for i, attempt := range attempts {
		_, said, _ := strings.Cut(out, fmt.Sprintf("trying %d\n", i))
		said, _, tried := strings.Cut(said, fmt.Sprintf("tried %d\n", i))
		kind, ofPerl := strings.CutPrefix(attempt.command, "perl attempt.pl ")
		kind, _, _ = strings.Cut(kind, " ")
		if !tried || !strings.Contains(said, attempt.inside) || ofPerl && !strings.HasPrefix(said, "trying "+kind+"\n") {
			t.Errorf("%s was not tried, or not held back as it should be (%q): %q", attempt.name, attempt.inside, said)
		}
	}
	if !strings.Contains(out, "hello from /ok/before") || !strings.Contains(out, "hello from /ok/after") {
		t.Error("what the grant permits was not reached")
	}
	if n := neighbour.visits(); n > 0 {
		t.Errorf("the host's loopback was reached %d times", n)
	}
	if !strings.Contains(out, "tried the other") || !strings.Contains(out, "Connection refused") || strings.Contains(out, "reached") || strings.Count(g.output(otherRun.ID), "visited") != 1 {
		t.Errorf("another run's loopback was reached: %s", g.output(otherRun.ID))
	}
	if said := g.tendril("run", "cancel", string(otherRun.ID)); said.status != 0 {
		t.Errorf("the other run: %+v", said)
	}
	other.wait()
}

// inNamespace runs the test again in a process with namespaces of its own, as root, and
// reports whether this is that process.
func inNamespace(t *testing.T, attributes syscall.SysProcAttr) bool {
	t.Helper()
	path := binary(t)
	if os.Getuid() != 0 {
		t.Skip("a namespace for the test needs root")
	}
	if os.Getenv(ownNamespace) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownNamespace+"=1", "TENDRIL_TEST_BINARY="+path)
	cmd.SysProcAttr = &attributes
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil || strings.Contains(string(out), "--- FAIL: "):
		t.Fatalf("in a namespace: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "):
		t.Skipf("in a namespace:\n%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("in a namespace nothing passed:\n%s", out)
	case testing.Verbose():
		t.Logf("in a namespace:\n%s", out)
	}
	return false
}

// visited counts who connects to a server.
type visited struct {
	mu sync.Mutex
	n  int
}

func (v *visited) visits() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.n
}

func (v *visited) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.n = 0
}

// loopbackServer listens on the host's loopback, by either version of IP.
func loopbackServer(t *testing.T) (*visited, string) {
	t.Helper()
	var v visited
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			v.mu.Lock()
			v.n++
			v.mu.Unlock()
			fmt.Fprint(conn, "HTTP/1.0 200 OK\r\n\r\n")
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		accepting.Wait()
	})
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return &v, port
}

// packets counts what leaves on any interface of this process's network namespace.
type packets struct {
	server netip.AddrPort
	socket *os.File
	marker *net.UDPConn
	marks  chan struct{}

	mu     sync.Mutex
	others []string // what is neither the server's traffic nor the kernel's own
	served int
}

// markerPort is where the test's own datagrams go, by which it knows that everything
// before them was counted.
const markerPort = 7

func countPackets(t *testing.T, server netip.AddrPort) *packets {
	t.Helper()
	everything := int(byteorder.NativeEndian.Uint16(byteorder.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, everything)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		t.Fatal(err)
	}
	p := &packets{server: server, socket: os.NewFile(uintptr(fd), "packets"), marks: make(chan struct{}, 1)}
	if p.marker, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP("192.0.2.77"), Port: markerPort}); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(p.read)
	t.Cleanup(func() {
		p.marker.Close()
		p.socket.Close()
		reading.Wait()
	})
	return p
}

func (p *packets) read() {
	raw, err := p.socket.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, 64<<10)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buffer, 0)
			return failed != unix.EAGAIN
		})
		if err != nil {
			return // closed
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && failed == nil && at.Pkttype == unix.PACKET_OUTGOING {
			p.count(at, buffer[:n])
		}
	}
}

func (p *packets) count(at *unix.SockaddrLinklayer, content []byte) {
	source, destination, protocol, payload := parsePacket(content)
	const icmp6, udp, tcp = 58, 17, 6
	var from, to uint16
	if (protocol == udp || protocol == tcp) && len(payload) >= 8 {
		from, to = byteorder.BigEndian.Uint16(payload), byteorder.BigEndian.Uint16(payload[2:])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case protocol == udp && to == markerPort:
		p.marks <- struct{}{}
	case protocol == tcp && (netip.AddrPortFrom(destination, to) == p.server || netip.AddrPortFrom(source, from) == p.server):
		p.served++
	case protocol == icmp6 && len(payload) > 0 && payload[0] >= 130 && payload[0] <= 143:
		// Multicast groups, routers and neighbours of IPv6 (RFC 4861, RFC 3810) are the
		// kernel's own business; a ping is 128.
	default:
		p.others = append(p.others, fmt.Sprintf("interface %d, protocol %#x/%d, %v port %d to %v port %d, %d bytes",
			at.Ifindex, at.Protocol, protocol, source, from, destination, to, len(content)))
	}
}

// parsePacket takes an IP packet apart, as far as it is one.
func parsePacket(b []byte) (source, destination netip.Addr, protocol byte, payload []byte) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4 && len(b) >= int(b[0]&15)*4:
		source, destination = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		return source, destination, b[9], b[int(b[0]&15)*4:]
	case len(b) >= 40 && b[0]>>4 == 6:
		source, destination = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		protocol, payload = b[6], b[40:]
		if protocol == 0 && len(payload) >= 8 && len(payload) >= 8+int(payload[1])*8 { // hop-by-hop options
			return source, destination, payload[0], payload[8+int(payload[1])*8:]
		}
		return source, destination, protocol, payload
	}
	return netip.Addr{}, netip.Addr{}, 0, nil
}

// settle returns once everything that left before it was counted.
func (p *packets) settle(t *testing.T) {
	t.Helper()
	if _, err := p.marker.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.marks:
	case <-time.After(patience):
		t.Fatal("the test's own packet was not counted")
	}
	raw, err := p.socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || stats.Drops > 0 {
			t.Errorf("packets that were not counted: %+v, %v", stats, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// foreign is what left that is not the server's.
func (p *packets) foreign(t *testing.T) []string {
	t.Helper()
	p.settle(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.others...)
}

// own is how many packets went to and from the server.
func (p *packets) own(t *testing.T) int {
	t.Helper()
	p.settle(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served
}
