package substrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// root is a directory whose content its owner may be changing while we look.
// Every path is resolved beneath it by the kernel, and through no symbolic
// link: openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS.
type root struct {
	dir  *os.File
	path string // for messages
}

func openRoot(path string) (*root, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &root{os.NewFile(uintptr(fd), path), path}, nil
}

func (r *root) Close() error { return r.dir.Close() }

// open opens a path beneath the root. O_NONBLOCK keeps a FIFO from holding us.
func (r *root) open(path string, flags int, mode os.FileMode) (*os.File, error) {
	if flags&unix.O_PATH == 0 { // which openat2 does not take together
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Mode:    uint64(mode.Perm()),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(r.dir.Fd()), path, &how)
		// EAGAIN: a component was renamed during the walk.
		if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if errors.Is(err, syscall.ELOOP) {
			return nil, fault.New(fault.Invalid, "%s/%s leads through a symbolic link, which is not followed: %w", r.path, path, err)
		}
		if errors.Is(err, syscall.ENOSYS) {
			return nil, fault.New(fault.Unavailable, "this kernel has no openat2").WithHint("Linux 5.6 or newer is needed")
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: r.path + "/" + path, Err: err}
		}
		return os.NewFile(uintptr(fd), r.path+"/"+path), nil
	}
}

// sub opens a directory beneath the root as a root.
func (r *root) sub(path string) (*root, error) {
	f, err := r.open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &root{f, f.Name()}, nil
}

// readFile reads a regular file of at most limit bytes.
func (r *root) readFile(path string, limit int64) ([]byte, error) {
	f, err := r.open(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, limit)
}

func readBounded(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: syscall.EISDIR}
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "%s is not a regular file", f.Name())
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if int64(len(data)) > limit {
		return nil, fault.New(fault.Invalid, "%s is larger than %d bytes", f.Name(), limit)
	}
	return data, nil
}

// lstat looks at a path beneath the root without following a last link.
func (r *root) lstat(path string) (unix.Stat_t, error) {
	f, err := r.open(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return unix.Stat_t{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	return st, err
}

func isDir(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// absent reports whether a path does not exist, which includes that a parent
// of it is a file.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
