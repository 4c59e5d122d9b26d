package client

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the effective uid with which the server began to listen
// (LOCAL_PEERCRED, unix(4) of macOS).
func peerUID(conn net.Conn) (int, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Xucred
	var got error
	err = raw.Control(func(fd uintptr) {
		peer, got = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	if err = errors.Join(err, got); err != nil {
		return 0, err
	}
	return int(peer.Uid), nil
}
