//go:build linux

package api

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// longestPath is what fits sockaddr_un, with the NUL at its end (unix(7)).
const longestPath = 107

// listener is a Unix listener that removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path   string
	dir    *os.File
	socket fs.FileInfo
	closed sync.Once
}

// Listen makes a Unix socket at an absolute path, of the mode, and listens on it. Its
// directory has to be there, and this account's or root's, and writable for nobody else
// unless it is sticky. The socket appears with its mode, all at once. One that is there
// is replaced if it is this account's and nobody answers on it; if somebody does, or if
// it is anything else, that is a fault of the kind unavailable. Closing the listener
// removes the socket, if it is still the same.
func Listen(path string, mode fs.FileMode) (net.Listener, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > longestPath {
		return nil, fault.New(fault.Invalid, "%q cannot be the path of a socket", path).
			WithHint("give a clean absolute path of at most %d bytes", longestPath)
	}
	if mode&^0o666 != 0 || mode&0o600 != 0o600 {
		return nil, fault.New(fault.Invalid, "%04o cannot be the mode of a socket", uint32(mode)).
			WithHint("0600 lets this account alone call, 0660 its group as well, 0666 everybody")
	}
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	l, err := listenIn(dir, path, mode)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return l, nil
}

// openDir opens the directory of a socket and refuses one in which others could put
// another in its place.
func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the directory of the socket: %s: %w", path, err).
			WithHint("make it: install -d -m 0700 %s", path)
	}
	dir := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, errors.Join(fault.New(fault.Unavailable, "look at %s: %w", path, err), dir.Close())
	}
	if owner := int(stat.Uid); owner != os.Geteuid() && owner != 0 {
		return nil, errors.Join(fault.New(fault.Unavailable, "%s belongs to uid %d, which could put another socket there", path, owner).
			WithHint("serve on a socket in a directory of this account"), dir.Close())
	}
	if stat.Mode&0o022 != 0 && stat.Mode&unix.S_ISVTX == 0 {
		return nil, errors.Join(fault.New(fault.Unavailable, "other accounts can write %s (mode %04o)", path, stat.Mode&0o7777).
			WithHint("chmod go-w %s", path), dir.Close())
	}
	return dir, nil
}

// listenIn makes the socket and puts it in its place, while no other tendril does the
// same in this directory.
func listenIn(dir *os.File, path string, mode fs.FileMode) (*listener, error) {
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fault.New(fault.Unavailable, "another process is opening a socket in %s: %w", dir.Name(), err).
			WithHint("try again")
	}
	defer unix.Flock(int(dir.Fd()), unix.LOCK_UN)
	if err := makeRoom(path); err != nil {
		return nil, err
	}
	// Bound in a directory that nobody else can enter, so that its mode is right before
	// anybody reaches it; the umask belongs to the whole process.
	private := ".tendril-" + rand.Text()
	failed := func(err error) error {
		return fault.New(fault.Unavailable, "making the socket %s: %w", path, err).
			WithHint("make %s writable for this account, or serve elsewhere with --socket PATH", dir.Name())
	}
	if err := unix.Mkdirat(int(dir.Fd()), private, 0o700); err != nil {
		return nil, failed(err)
	}
	defer unix.Unlinkat(int(dir.Fd()), private, unix.AT_REMOVEDIR)
	// Through the descriptor, because the longer path need not fit an address.
	bound := fmt.Sprintf("/proc/self/fd/%d/%s/socket", dir.Fd(), private)
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Name: bound, Net: "unix"})
	if err != nil {
		return nil, failed(err)
	}
	inner.SetUnlinkOnClose(false) // not by that name
	l := &listener{UnixListener: inner, path: path, dir: dir}
	err = os.Chmod(bound, mode)
	if err == nil {
		l.socket, err = os.Lstat(bound)
	}
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), private+"/socket", int(dir.Fd()), filepath.Base(path))
	}
	if err != nil {
		return nil, errors.Join(failed(err), os.Remove(bound), inner.Close())
	}
	return l, nil
}

// makeRoom says whether a socket may be put at path.
func makeRoom(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.New(fault.Unavailable, "look at %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fault.New(fault.Unavailable, "%s is there, and is not a socket", path).WithHint("move it away, or serve elsewhere with --socket PATH")
	}
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return fault.New(fault.Unavailable, "look at %s: %w", path, err)
	}
	if int(stat.Uid) != os.Geteuid() {
		return fault.New(fault.Unavailable, "the socket %s belongs to uid %d", path, stat.Uid).WithHint("serve elsewhere with --socket PATH")
	}
	conn, err := net.Dial("unix", path)
	switch {
	case err == nil:
		conn.Close()
	case errors.Is(err, unix.ECONNREFUSED):
		return nil // its process is gone
	}
	// Any other error, such as EAGAIN from a full queue, is not a sign that nobody serves.
	return fault.New(fault.Unavailable, "another tendril serves at %s", path).
		WithHint("end it first, or serve elsewhere with --socket PATH")
}

// Addr is the socket's address.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket and stops listening, in this order: as long as it is there,
// somebody answers on it.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.closed.Do(func() {
		var removed error
		if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.socket) {
			removed = os.Remove(l.path)
		}
		err = errors.Join(removed, l.UnixListener.Close(), l.dir.Close())
	})
	return err
}
