//go:build linux

package api

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/site"
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
	if site.Unmapped(int(peer.Uid)) {
		return 0, fault.New(fault.Denied, "the caller's uid has no number in the Stem's user namespace").
			WithRule("a caller is known by its uid").
			WithHint("call from an account that the Stem's user namespace maps")
	}
	return int(peer.Uid), nil
}
