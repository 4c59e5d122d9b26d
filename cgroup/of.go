//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Other is a group that somebody else made: it is read, and never written. Its methods may
// be called from several goroutines.
type Other struct{ group Group }

// Of returns the group that a process is in, wherever its controllers are mounted. Its name
// is the last part of its path, the same in every hierarchy that bounds it.
func Of(pid int) (*Other, error) {
	t := hostTree
	t.self = "/proc/" + strconv.Itoa(pid) + "/cgroup"
	return of(t)
}

func of(t tree) (*Other, error) {
	mounts, own, err := t.read()
	if err != nil {
		return nil, fmt.Errorf("find the control group of a process: %w", err)
	}
	o := &Other{}
	for _, m := range mounts {
		for _, c := range append(slices.Clone(wanted), helpers...) {
			key := c
			if m.unified {
				key = ""
			} else if !slices.Contains(m.controllers, c) {
				continue
			}
			dir, ok := m.locate(own[key])
			if !ok || dir == filepath.Clean(m.target) && m.root == "/" {
				continue // it cannot be seen from here, or is everybody's
			}
			dir = t.prefix + dir
			if m.unified && !slices.Contains(controllerSet(filepath.Join(dir, "cgroup.controllers")), c) {
				continue
			}
			o.add(dir, m.unified, c)
		}
	}
	if !slices.ContainsFunc(o.group.dirs, func(p place) bool {
		return slices.ContainsFunc(p.controllers, func(c string) bool { return slices.Contains(wanted, c) })
	}) {
		return nil, fmt.Errorf("%w: no controller has a group of the process that can be seen from here", ErrUnavailable)
	}
	return o, nil
}

func (o *Other) add(dir string, unified bool, controller string) {
	if _, twice := o.group.with(controller); twice {
		return
	}
	if slices.Contains(wanted, controller) {
		o.group.name = filepath.Base(dir)
	}
	if i := slices.IndexFunc(o.group.dirs, func(p place) bool { return p.dir == dir }); i >= 0 {
		o.group.dirs[i].controllers = append(o.group.dirs[i].controllers, controller)
		return
	}
	o.group.dirs = append(o.group.dirs, place{dir: dir, unified: unified, controllers: []string{controller}})
}

// Name is the last part of the group's path.
func (o *Other) Name() string { return o.group.name }

// Usage is what the group uses now. Memory is without what the kernel only keeps of files
// and can drop.
func (o *Other) Usage() (Usage, error) {
	u, err := o.group.Usage()
	if err != nil {
		return u, err
	}
	if p, ok := o.group.with("memory"); ok {
		data, err := read(p.dir, "memory.stat")
		if err != nil {
			return u, err
		}
		prefix := pick(p, "", "total_")
		u.Memory -= int64(parseFlat(data, prefix+"inactive_file") + parseFlat(data, prefix+"active_file"))
		u.Memory = max(u.Memory, 0)
	}
	return u, nil
}

// Events returns what the bounds did so far.
func (o *Other) Events() (Events, error) { return o.group.Events() }

// Processes lists the processes of the group.
func (o *Other) Processes() ([]int, error) {
	for _, p := range o.group.dirs {
		data, err := read(p.dir, "cgroup.procs")
		return parsePids(data), err
	}
	return nil, nil
}

// Limits reads the bounds that the group has now. A field is zero where it has none.
// MemoryMax is with swap, or as good as none where swap is not bounded.
func (o *Other) Limits() (Limits, error) {
	var l Limits
	if p, ok := o.group.with("memory"); ok {
		memory, err := value(p.dir, pick(p, "memory.max", "memory.limit_in_bytes"))
		if err != nil {
			return l, err
		}
		if l.MemoryMax, err = withSwap(p, memory); err != nil {
			return l, err
		}
	}
	if p, ok := o.group.with("pids"); ok {
		n, err := value(p.dir, "pids.max")
		if err != nil {
			return l, err
		}
		l.Pids = int(max(n, 0))
	}
	p, ok := o.group.with("cpu")
	if !ok {
		return l, nil
	}
	quota, period, err := quotaOf(p)
	if err != nil {
		return l, err
	}
	if quota > 0 && period > 0 {
		l.CPUs = float64(quota) / float64(period)
	}
	return l, nil
}

// huge is what no host has: version 1 writes no bound as about that.
const huge = 1 << 60

// withSwap is the bound of memory and swap together. Where the kernel does not account for
// swap, that of memory is all that there is.
func withSwap(p place, memory int64) (int64, error) {
	if memory < 0 || memory >= huge {
		return 0, nil
	}
	swap, err := value(p.dir, pick(p, "memory.swap.max", "memory.memsw.limit_in_bytes"))
	switch {
	case os.IsNotExist(err):
		return memory, nil
	case err != nil:
		return 0, err
	case swap < 0 || swap >= huge:
		return huge, nil
	case p.unified:
		return memory + swap, nil
	}
	return swap, nil
}

func quotaOf(p place) (quota, period int64, err error) {
	if p.unified {
		data, err := read(p.dir, "cpu.max")
		if err != nil {
			return 0, 0, err
		}
		return parseCPUMax(data)
	}
	if quota, err = value(p.dir, "cpu.cfs_quota_us"); err != nil {
		return 0, 0, err
	}
	period, err = value(p.dir, "cpu.cfs_period_us")
	return quota, period, err
}
