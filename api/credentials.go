//go:build linux

package api

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// peerUID returns the effective uid that the peer had when it connected (SO_PEERCRED,
// unix(7)). The kernel translates it into this process's user namespace; a uid that has
// no number there becomes the overflow uid, which proves nothing and is refused.
func peerUID(conn net.Conn) (int, error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0, fault.New(fault.Internal, "a %T has no peer that the kernel knows", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, fault.New(fault.Internal, "asking for the peer of a connection: %w", err)
	}
	var peer *unix.Ucred
	var got error
	err = raw.Control(func(fd uintptr) {
		peer, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, got); err != nil {
		return 0, fault.New(fault.Internal, "asking for the peer of a connection: %w", err)
	}
	if unmapped := unmappedUID(); unmapped == int(peer.Uid) {
		return 0, fault.New(fault.Denied, "the caller's uid has no number in the Stem's user namespace").
			WithRule("a caller is known by its uid").
			WithHint("call from an account that the Stem's user namespace maps")
	}
	return int(peer.Uid), nil
}

// unmappedUID returns what the kernel calls a uid without a number in this user
// namespace; -1 if every uid has one.
var unmappedUID = sync.OnceValue(func() int {
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err == nil && mapsAll(string(uids)) {
		return -1
	}
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err == nil {
		if uid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return uid
		}
	}
	return 65534 // DEFAULT_OVERFLOWUID of the kernel
})

// mapsAll says whether a uid_map (user_namespaces(7)) has a number for every uid.
func mapsAll(text string) bool {
	var covered int64
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // their ranges do not overlap
		if len(fields) != 3 {
			return false
		}
		count, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return false
		}
		covered += count
	}
	return covered >= 1<<32-1 // (uid_t)-1 is no uid
}
