//go:build linux

package guest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func (o *overlaid) path() string { return o.target }

// usage is how full the scratch file system is.
func (o *overlaid) usage() (used, size int64) {
	var fs unix.Statfs_t
	if unix.Fstatfs(o.scratch, &fs) != nil {
		return 0, 0
	}
	if outOfInodes(fs) {
		used = int64(fs.Blocks) * int64(fs.Bsize)
		return used, used
	}
	return int64(fs.Blocks-fs.Bfree) * int64(fs.Bsize), int64(fs.Blocks) * int64(fs.Bsize)
}

// outOfInodes says whether a file system holds as many files as it can, which makes it full
// whatever is in them. One that does not count them says 0 of 0.
func outOfInodes(fs unix.Statfs_t) bool { return fs.Files > 0 && fs.Ffree == 0 }

func (o *overlaid) top() (place, int64, error) {
	at, err := openTop(o.merged, o.layers)
	return at, sizeOf(o.scratch), err
}

func (o *overlaid) layers() (layer, error) {
	l := &overlayLayer{upper: -1, lower: -1}
	for _, d := range []struct {
		fd   *int
		from int
	}{{&l.upper, o.upper}, {&l.lower, o.lower}} {
		fd, err := openDir(d.from, ".")
		if err != nil {
			l.close()
			return nil, fmt.Errorf("open a layer of the workspace: %w", err)
		}
		*d.fd = fd
	}
	return l, nil
}

// overlayLayer is one directory in the layers of an overlay. It does not rely on how an
// overlay marks what is deleted or opaque: what is in the upper layer and in the merged
// view is reported as the merged view has it, and what the lower layer has and the merged
// view has not is deleted.
type overlayLayer struct {
	upper int
	lower int // -1: the base has no directory here
}

func (l *overlayLayer) candidates(int) ([]string, error) { return list(l.upper) }

func (l *overlayLayer) same(string, *unix.Stat_t) bool { return false }

func (l *overlayLayer) was(name string) uint32 {
	var st unix.Stat_t
	if l.lower < 0 || unix.Fstatat(l.lower, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Mode & unix.S_IFMT
}

func (l *overlayLayer) names() ([]string, error) {
	if l.lower < 0 {
		return nil, nil
	}
	return list(l.lower)
}

func (l *overlayLayer) enter(name string) (layer, error) {
	down := &overlayLayer{upper: -1, lower: -1}
	var err error
	if down.upper, err = openDir(l.upper, name); err != nil {
		return nil, err
	}
	if l.was(name) == unix.S_IFDIR {
		if down.lower, err = openDir(l.lower, name); err != nil {
			down.close()
			return nil, err
		}
	}
	return down, nil
}

func (l *overlayLayer) close() {
	for _, fd := range []int{l.upper, l.lower} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
