//go:build linux

package guest

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// listening is a loopback listener whose connections go to the host. The guest
// copies bytes and looks at none.
type listening struct {
	name   string
	socket *os.File
}

// backlog is how many connections may wait to be accepted.
const backlog = 128

// listen opens the port. Package net would be most of this program's size.
func (sv *server) listen(l listener) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	socket := os.NewFile(uintptr(fd), "listener")
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: l.port}),
		unix.Listen(fd, backlog),
	)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	sv.listeners = append(sv.listeners, &listening{l.name, socket})
	return nil
}

func (sv *server) startListening() {
	for _, l := range sv.listeners {
		go sv.acceptConns(l)
	}
}

func (sv *server) acceptConns(l *listening) {
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return
	}
	for {
		fd, failed := -1, error(nil)
		err := raw.Read(func(s uintptr) bool {
			fd, _, failed = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return failed != unix.EAGAIN
		})
		if err != nil {
			return
		}
		if failed != nil {
			// Out of descriptors, or the connection is gone already: the next one
			// may work. The wait keeps a full table from becoming a busy loop.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go sv.conn(l.name, os.NewFile(uintptr(fd), "connection"))
	}
}

// conn carries one connection until both directions are closed.
func (sv *server) conn(name string, socket *os.File) {
	defer socket.Close()
	st, err := sv.session.Open(stoma.ConnHeader(name))
	if err != nil {
		return
	}
	defer st.Close()
	var up sync.WaitGroup
	up.Go(func() {
		if _, err := io.Copy(struct{ io.Writer }{st}, struct{ io.Reader }{socket}); err != nil {
			st.Reset(stoma.CodeCanceled, "")
			return
		}
		_ = st.CloseWrite() // never fails
	})
	if _, err := io.Copy(struct{ io.Writer }{socket}, struct{ io.Reader }{st}); err != nil {
		// Ends the other direction as well.
		_ = shutdown(socket, unix.SHUT_RDWR)
		st.Reset(stoma.CodeCanceled, "")
	} else {
		_ = shutdown(socket, unix.SHUT_WR) // the peer may have closed already
	}
	up.Wait()
}

func shutdown(socket *os.File, how int) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), how) })
	return errors.Join(err, failed)
}
