//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits are the bounds of a group. A zero field is no bound.
type Limits struct {
	CPUs       float64 // processors
	MemoryHigh int64   // bytes; above it the group is slowed down and reclaimed from (version 2 only)
	MemoryMax  int64   // bytes; above it something in the group is killed; swap is part of it
	Pids       int     // processes and threads
}

// Usage is what a group or a tree of processes uses.
type Usage struct {
	Memory int64         // bytes
	CPU    time.Duration // user and system time since it began
	Pids   int           // processes and threads
}

// Events counts what the bounds did.
type Events struct {
	OOMKills  uint64 // processes killed at MemoryMax
	PidsMax   uint64 // forks refused at Pids
	Throttled uint64 // periods in which CPUs ran out
}

// Group is one control group, with a directory in each hierarchy that bounds it. Its
// methods may be called from several goroutines.
type Group struct {
	name    string
	dirs    []place // dir is the group's own directory
	applied Limits
	notes   []string
}

// period is the time over which CPUs is kept, in microseconds: the kernel's default.
const period = 100_000

// validName allows letters, digits and some punctuation, which does not come first.
// A regular expression would be compiled at the start of every process of a sandbox.
func validName(name string) bool {
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("_.-", rune(c))) {
			return false
		}
	}
	return name != "" && len(name) <= 128
}

// Create makes a group below this process's own (version 1) or the nearest that serves
// (version 2), sets the limits for which there is a controller, and reads them back.
// [Group.Applied] says which there are. The error wraps [ErrUnavailable] when no
// controller is there at all. On any error nothing is left.
func Create(name string, limits Limits) (*Group, error) {
	return create(hostTree, name, limits)
}

func create(t tree, name string, limits Limits) (_ *Group, err error) {
	if !validName(name) {
		return nil, fmt.Errorf("%q is no name for a control group", name)
	}
	if limits.CPUs < 0 || limits.MemoryHigh < 0 || limits.MemoryMax < 0 || limits.Pids < 0 {
		return nil, fmt.Errorf("limits of control group %s are negative: %+v", name, limits)
	}
	places, missing, err := findPlaces(t)
	if err != nil {
		return nil, err
	}
	g := &Group{name: name, notes: missing}
	defer func() {
		if err != nil {
			for _, d := range g.dirs {
				_ = os.Remove(d.dir)
			}
		}
	}()
	for _, p := range places {
		if err := enable(p); err != nil {
			return nil, fmt.Errorf("create control group %s: %w", name, err)
		}
		child := p
		child.dir = filepath.Join(p.dir, name)
		if err := os.Mkdir(child.dir, 0o755); err != nil {
			return nil, fmt.Errorf("create control group %s: %w", name, err)
		}
		g.dirs = append(g.dirs, child)
	}
	if err := g.apply(limits); err != nil {
		return nil, fmt.Errorf("create control group %s: %w", name, err)
	}
	return g, nil
}

func enable(p place) error {
	if len(p.enable) == 0 {
		return nil
	}
	return write(p.dir, "cgroup.subtree_control", "+"+strings.Join(p.enable, " +"))
}

// Name returns the group's name.
func (g *Group) Name() string { return g.name }

// Applied returns the limits that were read back from the kernel. A field is zero
// where none was asked for or no controller is there.
func (g *Group) Applied() Limits { return g.applied }

// Notes says what could not be bounded and why, one clause each.
func (g *Group) Notes() []string { return slices.Clone(g.notes) }

func (g *Group) apply(want Limits) error {
	if p, ok := g.with("cpu"); ok && want.CPUs > 0 {
		if err := g.applyCPU(p, want.CPUs); err != nil {
			return err
		}
	}
	if p, ok := g.with("memory"); ok {
		if err := g.applyMemory(p, want); err != nil {
			return err
		}
	}
	if p, ok := g.with("pids"); ok && want.Pids > 0 {
		n, err := set(p.dir, "pids.max", int64(want.Pids))
		if err != nil {
			return err
		}
		g.applied.Pids = int(n)
	}
	return nil
}

func (g *Group) applyCPU(p place, cpus float64) error {
	quota := int64(cpus * period)
	if quota < 1000 {
		return fmt.Errorf("%g processors are less than the kernel can count", cpus) // 1 ms, the scheduler's minimum
	}
	if !p.unified {
		if _, err := set(p.dir, "cpu.cfs_period_us", period); err != nil {
			return err
		}
		n, err := set(p.dir, "cpu.cfs_quota_us", quota)
		if err != nil {
			return err
		}
		g.applied.CPUs = float64(n) / period
		return nil
	}
	if err := write(p.dir, "cpu.max", fmt.Sprintf("%d %d", quota, period)); err != nil {
		return err
	}
	data, err := read(p.dir, "cpu.max")
	if err != nil {
		return err
	}
	gotQuota, gotPeriod, err := parseCPUMax(data)
	if err != nil {
		return fmt.Errorf("read back %s: %w", filepath.Join(p.dir, "cpu.max"), err)
	}
	if gotQuota != quota || gotPeriod != period {
		return fmt.Errorf("%s reads back as %q", filepath.Join(p.dir, "cpu.max"), strings.TrimSpace(data))
	}
	g.applied.CPUs = float64(gotQuota) / float64(gotPeriod)
	return nil
}

// applyMemory bounds memory and swap together: what is swapped out is used all the
// same.
func (g *Group) applyMemory(p place, want Limits) (err error) {
	if want.MemoryHigh > 0 {
		if !p.unified {
			g.notes = append(g.notes, "memory.high: version 1 has none")
		} else if g.applied.MemoryHigh, err = set(p.dir, "memory.high", want.MemoryHigh); err != nil {
			return err
		}
	}
	if want.MemoryMax <= 0 {
		return nil
	}
	limit, swap, swapLimit := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", want.MemoryMax
	if p.unified {
		limit, swap, swapLimit = "memory.max", "memory.swap.max", 0
	}
	if g.applied.MemoryMax, err = set(p.dir, limit, want.MemoryMax); err != nil {
		return err
	}
	switch _, err := set(p.dir, swap, swapLimit); {
	case errors.Is(err, os.ErrNotExist):
		g.notes = append(g.notes, "swap: the kernel does not account for it")
	case err != nil:
		return err
	}
	if p.unified {
		// What is left after one process of a sandbox was killed is of no use.
		if err := write(p.dir, "memory.oom.group", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// set writes a number and reads it back. The kernel rounds memory down to pages;
// anything else that differs is an error.
func set(dir, file string, n int64) (int64, error) {
	if err := write(dir, file, strconv.FormatInt(n, 10)); err != nil {
		return 0, err
	}
	got, err := value(dir, file)
	if err != nil {
		return 0, err
	}
	if got > n || got <= n-int64(os.Getpagesize()) || got < 0 {
		return 0, fmt.Errorf("%s reads back as %d after %d was written", filepath.Join(dir, file), got, n)
	}
	return got, nil
}

// Add puts a process into the group; what it starts from then on is in it too. Its
// other threads move along.
func (g *Group) Add(pid int) error {
	if pid <= 0 {
		return fmt.Errorf("put process %d into control group %s: not a process", pid, g.name)
	}
	for _, d := range g.dirs {
		if err := write(d.dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("put process %d into control group %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// Usage returns what the group uses now. What no controller measures is zero.
func (g *Group) Usage() (Usage, error) {
	var u Usage
	if p, ok := g.with("memory"); ok {
		n, err := value(p.dir, pick(p, "memory.current", "memory.usage_in_bytes"))
		if err != nil {
			return Usage{}, err
		}
		u.Memory = n
	}
	if p, ok := g.with("pids"); ok {
		n, err := value(p.dir, "pids.current")
		if err != nil {
			return Usage{}, err
		}
		u.Pids = int(n)
	}
	if p, ok := g.with("cpuacct"); ok {
		n, err := value(p.dir, "cpuacct.usage")
		if err != nil {
			return Usage{}, err
		}
		u.CPU = time.Duration(n) // nanoseconds
	} else if i := slices.IndexFunc(g.dirs, func(p place) bool { return p.unified }); i >= 0 {
		data, err := read(g.dirs[i].dir, "cpu.stat") // there without the controller, too
		if err != nil {
			return Usage{}, err
		}
		u.CPU = time.Duration(parseFlat(data, "usage_usec")) * time.Microsecond
	}
	return u, nil
}

// Events returns what the bounds did so far.
func (g *Group) Events() (Events, error) {
	var e Events
	if p, ok := g.with("memory"); ok {
		data, err := read(p.dir, pick(p, "memory.events", "memory.oom_control"))
		if err != nil {
			return Events{}, err
		}
		e.OOMKills = parseFlat(data, "oom_kill")
	}
	if p, ok := g.with("pids"); ok {
		data, err := read(p.dir, "pids.events")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return Events{}, err
		}
		e.PidsMax = parseFlat(data, "max")
	}
	if p, ok := g.with("cpu"); ok {
		data, err := read(p.dir, "cpu.stat")
		if err != nil {
			return Events{}, err
		}
		e.Throttled = parseFlat(data, "nr_throttled")
	}
	return e, nil
}

// with returns the directory in which a controller bounds the group.
func (g *Group) with(controller string) (place, bool) {
	i := slices.IndexFunc(g.dirs, func(p place) bool { return slices.Contains(p.controllers, controller) })
	if i < 0 {
		return place{}, false
	}
	return g.dirs[i], true
}

func pick(p place, v2, v1 string) string {
	if p.unified {
		return v2
	}
	return v1
}

// maxFile bounds what is read of a control file, in bytes. The longest is
// cgroup.procs.
const maxFile = 4 << 20

func read(dir, file string) (string, error) {
	f, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b strings.Builder
	buf := make([]byte, 4096)
	for b.Len() < maxFile {
		n, err := f.Read(buf)
		b.Write(buf[:n])
		if err != nil || n == 0 {
			break
		}
	}
	return b.String(), nil
}

func value(dir, file string) (int64, error) {
	data, err := read(dir, file)
	if err != nil {
		return 0, err
	}
	n, err := parseValue(data)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", filepath.Join(dir, file), err)
	}
	return n, nil
}

// write writes a control file in one call, as the kernel wants it.
func write(dir, file, content string) error {
	path := filepath.Join(dir, file)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(content)); err != nil {
		return &os.PathError{Op: "write " + content + " to", Path: path, Err: err}
	}
	return nil
}
