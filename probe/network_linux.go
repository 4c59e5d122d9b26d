package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var networkProbes = []Probe{
	{ID: "N02", Dimension: "network", Seal: Network, What: "the routing table leads nowhere but to loopback", Run: routes},
	{ID: "N03", Dimension: "network", Seal: Network, What: "public addresses are unreachable", Run: func() Result {
		return connects("1.1.1.1:443", "8.8.8.8:53", "[2606:4700:4700::1111]:443")
	}},
	{ID: "N04", Dimension: "network", Seal: Network, What: "metadata services of clouds are unreachable", Run: func() Result {
		return connects("169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "168.63.129.16:80")
	}},
	{ID: "N05", Dimension: "network", Seal: Network, What: "private and neighbouring addresses are unreachable", Run: func() Result {
		return connects("10.0.0.1:22", "172.17.0.1:2375", "192.168.0.1:80", "192.0.2.1:80", "100.64.0.1:80", "[fd00::1]:80")
	}},
	{ID: "N06", Dimension: "network", Seal: Network, What: "no resolver is configured", Run: resolver},
	{ID: "N07", Core: true, Dimension: "network", Seal: Network, What: "there is no interface but loopback", Run: interfaces},
	{ID: "N11", Dimension: "network", Seal: Network, What: "loopback addresses are not routed from outside", Run: routeLocalnet},
	{ID: "N12", Dimension: "network", Seal: Network, What: "no named Unix socket of another process is in the abstract or file namespace", Run: unixSockets},
	{ID: "N14", Dimension: "network", Seal: Network, What: "the network cannot be configured", Run: configureNetwork},
}

// netlink dumps one table of rtnetlink(7): up to 256 messages of the kind.
func netlink(request, answer int) ([]syscall.NetlinkMessage, error) {
	data, err := syscall.NetlinkRIB(request, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	all, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		return nil, err
	}
	var out []syscall.NetlinkMessage
	for _, m := range all[:min(len(all), 256)] {
		if int(m.Header.Type) == answer {
			out = append(out, m)
		}
	}
	return out, nil
}

// routes judges by the flags of an interface, so that it needs neither iproute2 nor
// /proc.
func routes() Result {
	loopback, _, err := links()
	if err != nil {
		return unknown("list interfaces: %s", errno(err))
	}
	messages, err := netlink(syscall.RTM_GETROUTE, syscall.RTM_NEWROUTE)
	if err != nil {
		return unknown("list routes: %s", errno(err))
	}
	var away []string
	for _, m := range messages {
		if len(m.Data) < unix.SizeofRtMsg {
			continue
		}
		kind := m.Data[7] // rtmsg.rtm_type
		if kind != unix.RTN_UNICAST {
			continue // local, broadcast, unreachable: nothing leaves by them
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			continue
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.RTA_OIF && len(a.Value) >= 4 && !loopback[int32(binary.NativeEndian.Uint32(a.Value))] {
				away = append(away, fmt.Sprintf("family %d, prefix /%d", m.Data[0], m.Data[1]))
			}
		}
	}
	if len(away) > 0 {
		return leak("%d routes lead away from loopback: %s", len(away), strings.Join(away[:min(len(away), 4)], "; "))
	}
	return sealed("no route leads away from loopback")
}

// links returns the indices of loopback interfaces, and the names of the others that
// are up.
func links() (loopback map[int32]bool, others []string, err error) {
	messages, err := netlink(syscall.RTM_GETLINK, syscall.RTM_NEWLINK)
	if err != nil {
		return nil, nil, err
	}
	loopback = map[int32]bool{}
	for _, m := range messages {
		if len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		index := int32(binary.NativeEndian.Uint32(m.Data[4:8]))
		flags := binary.NativeEndian.Uint32(m.Data[8:12])
		if flags&unix.IFF_LOOPBACK != 0 {
			loopback[index] = true
			continue
		}
		name := fmt.Sprintf("interface %d", index)
		if attrs, err := syscall.ParseNetlinkRouteAttr(&m); err == nil {
			for _, a := range attrs {
				if a.Attr.Type == unix.IFLA_IFNAME {
					name = unix.ByteSliceToString(a.Value)
				}
			}
		}
		others = append(others, name)
	}
	return loopback, others, nil
}

func interfaces() Result {
	loopback, others, err := links()
	switch {
	case err != nil:
		return unknown("list interfaces: %s", errno(err))
	case len(others) > 0:
		return leak("interfaces besides loopback: %s", strings.Join(others, " "))
	case len(loopback) == 0:
		return sealed("no interface at all")
	}
	return sealed("loopback alone")
}

// connects tries to give a datagram socket each address. That sends nothing: the
// kernel only looks for a route (connect(2)).
func connects(addresses ...string) Result {
	var t tried
	for _, a := range addresses {
		ap := netip.MustParseAddrPort(a)
		family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()})
		if ap.Addr().Is4() {
			family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			t.sealed++
			continue
		}
		if err != nil {
			t.unknowns = append(t.unknowns, "socket: "+errno(err))
			continue
		}
		err = unix.Connect(fd, sa)
		unix.Close(fd)
		switch {
		case err == nil:
			t.leak("route to " + a)
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			t.sealed++
		default:
			t.unknowns = append(t.unknowns, a+": "+errno(err))
		}
	}
	return t.result("unreachable")
}

func resolver() Result {
	var t tried
	if data, err := read("/etc/resolv.conf"); err == nil {
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
				t.leak("nameserver " + f[1] + " in /etc/resolv.conf")
			}
		}
	}
	if data, err := read("/etc/nsswitch.conf"); err == nil {
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "hosts:" {
				for _, source := range f[1:] {
					if source == "dns" || source == "resolve" || strings.HasPrefix(source, "mdns") || source == "ldap" || source == "sss" {
						t.leak("hosts are looked up by " + source)
					}
				}
			}
		}
	}
	for _, path := range []string{"/run/nscd/socket", "/var/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve"} {
		if exists(path) {
			t.leak(path)
		}
	}
	return t.result("no resolver")
}

func routeLocalnet() Result {
	data, err := read("/proc/sys/net/ipv4/conf/all/route_localnet")
	switch {
	case err != nil:
		return sealed("not there: %s", errno(err))
	case strings.TrimSpace(string(data)) == "0":
		return sealed("0")
	default:
		return leak("route_localnet is %q", strings.TrimSpace(string(data)))
	}
}

// unixSockets looks for names that this process did not bind. A fresh Terrarium has
// none.
func unixSockets() Result {
	data, err := read("/proc/net/unix")
	if err != nil {
		return unknown("/proc/net/unix: %s", errno(err))
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 8 && f[0] != "Num" {
			names = append(names, f[7])
		}
	}
	if len(names) > 0 {
		return leak("%d named sockets, such as %s", len(names), names[0])
	}
	return sealed("no named socket")
}

// configureNetwork asks for what needs CAP_NET_ADMIN and changes nothing: it sets
// loopback's flags to what they are.
func configureNetwork() Result {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unknown("socket: %s", errno(err))
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return unknown("%s", errno(err))
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return notApplicable("no loopback interface: %s", errno(err))
	}
	err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return sealed("the kernel has no such operation: %s", errno(err))
	}
	return verdict("set interface flags", err)
}
