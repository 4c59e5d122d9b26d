package hold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Area is a directory of scratch directories. It is safe for concurrent use, by
// several processes too.
type Area struct {
	dir  string
	lock string
}

// OpenArea makes the directory dir, and names the lock that its processes share:
// a file outside of it, which is made when it is needed.
func OpenArea(dir, lock string) (*Area, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, NoSpace(err, filepath.Dir(dir))
	}
	return &Area{dir, lock}, nil
}

// CheckOurs refuses a directory that belongs to somebody else, or that others can
// write.
func CheckOurs(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fault.New(fault.Unavailable, "%s is no directory, is writable by others or belongs to uid %d", dir, st.Uid).
			WithHint("chown it to uid %d and chmod it to 0700", os.Geteuid())
	}
	return nil
}

// Dir is a scratch directory that goes when its owner closes it or dies.
type Dir struct {
	Path string
	area *Area
	held *os.File
}

// New makes a scratch directory. A sweep cannot meet one that is not locked yet,
// because both hold the area's lock meanwhile.
func (a *Area) New() (*Dir, error) {
	l, err := Lock(a.lock, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	path, err := os.MkdirTemp(a.dir, "")
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", NoSpace(err, a.dir))
	}
	held, err := Lock(filepath.Join(path, "lock"), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && held == nil {
		err = fmt.Errorf("scratch directory %s: somebody else locked it", path)
	}
	if err != nil {
		return nil, errors.Join(NoSpace(err, a.dir), os.RemoveAll(path))
	}
	return &Dir{path, a, held}, nil
}

// Close removes the directory with everything in it. A sweep cannot meet one that is half
// gone, as with [Area.New].
func (d *Dir) Close() error {
	l, err := Lock(d.area.lock, unix.LOCK_SH)
	if err == nil {
		defer l.Close()
	}
	return errors.Join(err, os.RemoveAll(d.Path), d.held.Close())
}

// Sweep removes the directories of dead processes, then calls also with no
// directory being made meanwhile.
func (a *Area) Sweep(also func() error) error {
	l, err := Lock(a.lock, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer l.Close()
	dirs, err := os.ReadDir(a.dir)
	if err != nil {
		return fmt.Errorf("sweep %s: %w", a.dir, err)
	}
	for _, d := range dirs {
		path := filepath.Join(a.dir, d.Name())
		held, err := Lock(filepath.Join(path, "lock"), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return err
		}
		if held == nil {
			continue // its owner lives
		}
		err = os.RemoveAll(path)
		held.Close()
		if err != nil {
			return fmt.Errorf("sweep %s: %w", a.dir, err)
		}
	}
	return also()
}

// SweepLocks removes the locks in a directory that nobody holds any more. Who
// waits for one of them makes it again.
func SweepLocks(pattern string) error {
	locks, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range locks {
		held, err := Lock(path, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return err
		}
		if held == nil {
			continue // its owner lives
		}
		err = os.Remove(path)
		held.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
