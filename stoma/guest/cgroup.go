//go:build linux

package guest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// groups is a cgroup v2 hierarchy that only this process can reach. Each command
// gets a group of its own beneath one that bounds them together.
type groups struct {
	top   int // the group that holds all commands
	limit int // its pids.max; 0: none
	next  int
}

// mountGroups mounts the hierarchy at dir and sets the limit of processes and
// threads, when there is one.
func mountGroups(dir string, limit int) (*groups, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("cgroup2", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount cgroup2: %w", err)
	}
	root, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	if limit > 0 {
		if err := writeAt(root, "cgroup.subtree_control", "+pids"); err != nil {
			return nil, fmt.Errorf("enable the pids controller: %w", err)
		}
	}
	if err := unix.Mkdirat(root, "sprout", 0o700); err != nil {
		return nil, err
	}
	top, err := openDir(root, "sprout")
	if err != nil {
		return nil, err
	}
	g := &groups{top: top, limit: limit}
	if limit > 0 {
		if err := writeAt(top, "pids.max", strconv.Itoa(limit)); err != nil {
			return nil, err
		}
		got, err := readAt(top, "pids.max")
		if err != nil {
			return nil, err
		}
		if got != strconv.Itoa(limit) {
			return nil, fmt.Errorf("pids.max reads back as %q, want %d", got, limit)
		}
	}
	return g, nil
}

// atMax says how often the limit refused a process.
func (g *groups) atMax() int64 {
	if g.limit == 0 {
		return 0
	}
	s, err := readAt(g.top, "pids.events")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimPrefix(s, "max "), 10, 64) // 0 when it is something else
	return n
}

// group is the processes of one command.
type group struct {
	groups *groups
	reaper *reaper
	name   string
	fd     int
}

// newGroup makes a group. It is not safe for concurrent use.
func (g *groups) newGroup(r *reaper) (*group, error) {
	g.next++
	name := strconv.Itoa(g.next)
	if err := unix.Mkdirat(g.top, name, 0o700); err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	fd, err := openDir(g.top, name)
	if err != nil {
		return nil, fmt.Errorf("open a control group: %w", err)
	}
	return &group{groups: g, reaper: r, name: name, fd: fd}, nil
}

// place makes the process that is started next a member from its first
// instruction.
func (g *group) place(attr *syscall.SysProcAttr) {
	attr.UseCgroupFD = true
	attr.CgroupFD = g.fd
}

// end kills every member and returns when none is left and the group is gone. A
// group that cannot be removed has live members: there is no race between
// looking and removing.
func (g *group) end() {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		changed := g.reaper.changes()
		err := unix.Unlinkat(g.groups.top, g.name, unix.AT_REMOVEDIR)
		if err == nil || err == unix.ENOENT {
			break
		}
		_ = writeAt(g.fd, "cgroup.kill", "1") // tried again until nothing is left
		g.reaper.reap()
		g.reaper.await(changed, wait)
	}
	unix.Close(g.fd)
}

func openDir(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
}

func writeAt(dir int, name, value string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func readAt(dir int, name string) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	var b [256]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return string(bytes.TrimSpace(b[:n])), nil
}
