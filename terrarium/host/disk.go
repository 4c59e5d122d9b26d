//go:build linux

package host

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pauseBetween is how long a disk is not weighed at least, and pauseFactor how many
	// times as long as the last weighing took.
	pauseBetween = 500 * time.Millisecond
	pauseFactor  = 10
	// maxDepth bounds the directories within each other that are weighed: each costs a
	// descriptor.
	maxDepth = 200
)

// scale weighs a directory that the Sprout fills, again and again.
type scale struct {
	dir  int   // of the directory
	base int64 // bytes that were there before
	now  atomic.Int64
}

// weigh weighs the directory for the first time.
func weigh(ctx context.Context, path string) (*scale, error) {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("weighing %s: %w", path, err)
	}
	s := &scale{dir: dir}
	s.base = weight(ctx, dir, maxDepth)
	s.now.Store(s.base)
	return s, nil
}

// used is what was added since.
func (s *scale) used() int64 { return max(s.now.Load()-s.base, 0) }

// start weighs until stop, which waits, is called.
func (s *scale) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		pause := time.NewTimer(pauseBetween)
		defer pause.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
			start := time.Now()
			if weight := weight(ctx, s.dir, maxDepth); ctx.Err() == nil {
				s.now.Store(weight)
			}
			pause.Reset(max(pauseBetween, pauseFactor*time.Since(start)))
		}
	}()
	return func() {
		cancel()
		<-done
		unix.Close(s.dir)
	}
}

// weight is what a directory takes on the disk with everything in it. No name is followed
// out of it, and what cannot be looked at weighs nothing. It closes no descriptor but those
// that it opened.
func weight(ctx context.Context, dir, depth int) int64 {
	if _, err := unix.Seek(dir, 0, unix.SEEK_SET); err != nil {
		return 0
	}
	var total int64
	buf := make([]byte, 16<<10)
	for ctx.Err() == nil {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			total += weightOf(ctx, dir, name, depth)
		}
	}
	return total
}

func weightOf(ctx context.Context, dir int, name string, depth int) int64 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	total := st.Blocks * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || depth == 0 {
		return total
	}
	below, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return total
	}
	defer unix.Close(below)
	return total + weight(ctx, below, depth-1)
}
