//go:build linux

package guest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// plain is a workspace that is a directory of its own, in a container in which nothing
// can be mounted: the tree of the base is brought in, and what was brought is remembered.
type plain struct {
	dir    int
	target string
	disk   int64 // bytes that the Sprout may use here and in scratch, told by the host
	others []int // further scratch that counts

	base     atomic.Pointer[baseDir] // nil: no base was brought
	baseSize atomic.Int64            // bytes that the base takes
}

// plainWorkspace opens the workspace and the other places that count against the limit of
// the disk.
func plainWorkspace(target string, scratch []string, disk int64) (*plain, error) {
	p := &plain{target: target, disk: disk}
	for _, path := range append([]string{target}, scratch...) {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		p.others = append(p.others, fd)
	}
	p.dir, p.others = p.others[0], p.others[1:]
	return p, nil
}

func (p *plain) path() string { return p.target }

// inodeBytes is what a name in memory costs the kernel beside its content, about: an inode
// and an entry of a directory.
const inodeBytes = 1 << 10

// usage adds up what was written beside the base. Each file system by itself can hold as
// much as all may together, so the sum can go beyond the size.
func (p *plain) usage() (used, size int64) {
	for _, dir := range append([]int{p.dir}, p.others...) {
		var fs unix.Statfs_t
		if unix.Fstatfs(dir, &fs) == nil {
			if outOfInodes(fs) {
				return p.disk, p.disk
			}
			used += int64(fs.Blocks-fs.Bfree) * fs.Bsize
			if fs.Type == unix.TMPFS_MAGIC {
				used += int64(fs.Files-fs.Ffree) * inodeBytes
			}
		}
	}
	return max(used-p.baseSize.Load(), 0), p.disk
}

func (p *plain) top() (place, int64, error) {
	at, err := openTop(p.dir, func() (layer, error) { return plainLayer{p.base.Load()}, nil })
	return at, sizeOf(p.dir), err
}

// plainLayer is one directory of what was brought in; nil: nothing was here. Everything in
// the workspace is looked at, but only what differs from it is read.
type plainLayer struct{ *baseDir }

func (l plainLayer) candidates(merged int) ([]string, error) { return list(merged) }

// same relies on the time of the last change of the inode, which nobody sets without
// privilege.
func (l plainLayer) same(name string, now *unix.Stat_t) bool {
	e := l.find(name)
	return e != nil && e.below == nil && e.what == whatOf(now)
}

func (l plainLayer) was(name string) uint32 {
	e := l.find(name)
	switch {
	case e == nil:
		return 0
	case e.below != nil:
		return unix.S_IFDIR
	}
	return e.what.mode & unix.S_IFMT
}

func (l plainLayer) names() ([]string, error) {
	if l.baseDir == nil {
		return nil, nil
	}
	names := make([]string, len(l.entries))
	for i, e := range l.entries {
		names[i] = e.name
	}
	return names, nil
}

func (l plainLayer) enter(name string) (layer, error) {
	if e := l.find(name); e != nil {
		return plainLayer{e.below}, nil
	}
	return plainLayer{}, nil
}

func (l plainLayer) close() {}

// preferCommands makes commands a likelier end of the kernel's, when memory runs out, than
// this process: it is what hands over the work. It has to be asked for before
// this process is closed to its own account, which then may not open the file any more.
func preferCommands() (*victim, error) {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a kernel without, as gVisor's is: whoever bounds memory looks from outside
	}
	if err != nil {
		return nil, err
	}
	var own [16]byte
	n, err := f.Read(own[:])
	if err != nil {
		return nil, fmt.Errorf("read oom_score_adj: %w", err)
	}
	return &victim{f, strings.TrimSpace(string(own[:n]))}, nil
}

// victim is this process's own mark, which whatever it starts inherits.
type victim struct {
	mark *os.File
	own  string // to go back to
}

const likeliest = 1000 // oom_score_adj goes no higher (proc_pid_oom_score_adj(5))

// raise marks what is started until lower. Raising needs no privilege, nor does going back
// to where a privileged process put it.
func (v *victim) raise() error { return v.set(strconv.Itoa(likeliest)) }
func (v *victim) lower() error { return v.set(v.own) }

func (v *victim) set(value string) error {
	if v == nil {
		return nil
	}
	if _, err := v.mark.WriteAt([]byte(value), 0); err != nil {
		return fmt.Errorf("set oom_score_adj to %s: %w", value, err)
	}
	return nil
}
