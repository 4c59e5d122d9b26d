package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Lock takes a flock(2) on a file, which it makes if it is not there. how is one
// of unix.LOCK_*. It returns nil and no error when LOCK_NB is set and somebody
// else holds it. Closing the file gives the lock back.
func Lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return flock(f, how)
}

// flock locks an open file, and closes it when it cannot.
func flock(f *os.File, how int) (*os.File, error) {
	var err error
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
}

// Wait waits for an exclusive lock, and no longer than ctx lasts. Who has it may
// remove the file before giving it back.
func Wait(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := Lock(path, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return nil, err
		}
		if f != nil {
			if isAt(f, path) {
				return f, nil
			}
			f.Close() // its last owner removed it, and somebody may hold the next one
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// Open opens a file that is there and holds it against [Evict]. It returns nil
// and no error when there is none.
func Open(path string) (*os.File, error) {
	for {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if f, err = flock(f, unix.LOCK_SH); err != nil {
			return nil, err
		}
		if isAt(f, path) {
			return f, nil
		}
		f.Close() // it was evicted between opening and locking
	}
}

// isAt reports whether an open file is what a path names.
func isAt(f *os.File, path string) bool {
	held, err1 := f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(held, there)
}

// Used makes a file that is held the most recently used one. Nothing but the
// order of eviction depends on it.
func Used(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}

// Kept is a file of a cache.
type Kept struct {
	Path string
	Size int64 // bytes that go with it
	Used time.Time
}

// Evict calls remove for the least recently used files that nobody holds until
// the rest has at most limit bytes. A file is locked while remove is called, so
// that nobody can come to hold it. An error of remove ends it.
func Evict(files []Kept, limit int64, remove func(path string) error) error {
	var total int64
	for _, f := range files {
		total += f.Size
	}
	slices.SortFunc(files, func(a, b Kept) int { return a.Used.Compare(b.Used) })
	for _, kept := range files {
		if total <= limit {
			break
		}
		removed, err := Remove(kept.Path, remove)
		if err != nil {
			return err
		}
		if removed {
			total -= kept.Size
		}
	}
	return nil
}

// Remove calls remove for a file, unless somebody holds it, and reports whether
// it is gone.
func Remove(path string, remove func(path string) error) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil // another process was faster
	}
	if err != nil {
		return false, err
	}
	if f, err = flock(f, unix.LOCK_EX|unix.LOCK_NB); f == nil {
		return false, err
	}
	defer f.Close()
	return true, remove(path)
}

// NoSpace makes a full disk a fault that names it; path is on that disk. Any other
// error is returned as it is.
func NoSpace(err error, path string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.New(fault.Unavailable, "no space left on the disk that holds %s: %w", path, err).
			WithHint("free some space there, or move the state directory to a larger disk")
	}
	return err
}
