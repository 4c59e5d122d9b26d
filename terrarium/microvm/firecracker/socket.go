//go:build linux

package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Socket is a Unix socket that a process of ours listens at.
type Socket struct {
	Dir  string // a directory that the process may write to
	Name string
	PID  int // of the process
}

// dial connects once. The address goes through a descriptor of the directory, because an
// address has room for 107 bytes and a path may be longer.
func (s Socket) dial(ctx context.Context) (*net.UnixConn, error) {
	dir, err := os.OpenFile(s.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(int(dir.Fd()))+"/"+s.Name)
	if err != nil {
		return nil, err
	}
	unixConn := conn.(*net.UnixConn)
	if err := s.check(unixConn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return unixConn, nil
}

// check refuses a connection to somebody else: the process could have put a link to another
// socket of the host there.
func (s Socket) check(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if int(peer.Pid) != s.PID {
		return fault.New(fault.BrokenBoundary, "process %d listens at the machine's socket %s, and not the machine's own, which is %d", peer.Pid, s.Name, s.PID)
	}
	return nil
}

// Pauses between two tries to connect to a process that is starting.
const (
	shortestPause = time.Millisecond
	longestPause  = 50 * time.Millisecond
)

// again calls try until it succeeds, fails for good, or ctx ends.
func again[T any](ctx context.Context, try func() (T, error)) (T, error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		got, err := try()
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return got, fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case !notYet(err):
			return got, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// notYet reports whether an error is one of a process, or of a guest, that does not listen
// yet.
func notYet(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errNobodyListens)
}
