//go:build linux

package stem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/run"
	"tendril/terrarium"
)

// A run belongs to the process that holds an exclusive flock on its lock file,
// runs/<id>/lock, until the run ends. The kernel gives the lock back when its
// owner dies, however it dies, so whoever gets it may clean up.
//
// A directory appears under its run's name only with its lock already held, and goes
// while it still is; the birth lock keeps whoever recovers from meeting it in between.

// plot is one run's own directory, and the lock on it.
type plot struct {
	dir   string
	lock  *os.File
	walls bool // something of its wall could not be removed
}

// claim makes the directory of a new run.
func claim(runs string, id run.ID) (*plot, error) {
	birth, err := lockFile(filepath.Join(runs, birthLock), true)
	if err != nil {
		return nil, err
	}
	defer birth.Close()
	dir := filepath.Join(runs, string(id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "making the run's directory: %w", err).WithHint("is the disk full, or %s read-only?", runs)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"), false)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &plot{dir: dir, lock: lock}, nil
}

// takeOver returns the directory of a run whose owner is gone, and nil if the
// owner lives. The caller holds the birth lock.
func takeOver(runs string, id run.ID) (*plot, error) {
	dir := filepath.Join(runs, string(id))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("taking over run %s: %w", id, err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"), false)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &plot{dir: dir, lock: lock}, nil
}

// end ends the caller's own run: it removes the directory and gives back the lock.
// The birth lock keeps whoever recovers from looking into it meanwhile. A directory whose
// wall could not be removed stays, and the next start sweeps.
func (p *plot) end() error {
	if p.walls {
		return p.lock.Close()
	}
	birth, err := lockFile(filepath.Join(filepath.Dir(p.dir), birthLock), true)
	if err != nil {
		return errors.Join(err, p.lock.Close()) // the next start removes it
	}
	defer birth.Close()
	return p.remove()
}

// remove removes the directory, and then gives back the lock. The caller holds the
// birth lock.
func (p *plot) remove() error {
	return errors.Join(os.RemoveAll(p.dir), p.lock.Close())
}

// wallFile names the provider whose Terrarium the run has, or had when its owner died.
const wallFile = "wall"

// builds records that the provider is about to open the run's Terrarium.
func (p *plot) builds(provider string) error {
	if err := os.WriteFile(filepath.Join(p.dir, wallFile), []byte(provider), 0o600); err != nil {
		return fault.New(fault.Unavailable, "recording the run's wall: %w", err)
	}
	return nil
}

// wall is the provider that the run was about to open a Terrarium of; "" if it had not come
// to that.
func (p *plot) wall() (string, error) {
	name, err := os.ReadFile(filepath.Join(p.dir, wallFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(name), err
}

// close closes the run's Terrarium. If something of it stays, so does the plot.
func (p *plot) close(ctx context.Context, opened terrarium.Terrarium) error {
	if err := opened.Close(ctx); err != nil {
		p.walls = true
		return fmt.Errorf("closing the Terrarium: %w", err)
	}
	return nil
}

// sweep makes sure that a Terrarium which could not be opened left nothing. If something
// stays, so does the plot.
func (p *plot) sweep(ctx context.Context, provider terrarium.Provider) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	defer cancel()
	if err := provider.Sweep(ctx, filepath.Base(p.dir), p.dir); err != nil {
		p.walls = true
		return fmt.Errorf("removing what was begun of the Terrarium: %w", err)
	}
	return nil
}

const birthLock = "birth.lock"

// lockFile opens the file, makes it if need be, and takes an exclusive lock.
func lockFile(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "opening a lock: %w", err)
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}
