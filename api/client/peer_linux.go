package client

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the effective uid with which the server began to listen (SO_PEERCRED,
// unix(7)).
func peerUID(conn net.Conn) (int, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var got error
	err = raw.Control(func(fd uintptr) {
		peer, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, got); err != nil {
		return 0, err
	}
	return int(peer.Uid), nil
}
