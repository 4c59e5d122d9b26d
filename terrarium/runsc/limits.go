//go:build linux

package runsc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"tendril/cgroup"
	"tendril/fault"
	"tendril/terrarium"
)

// maxMemory is the most memory that a Terrarium gets for which nobody asked for a limit.
const maxMemory = 4 << 30

// limits are the bounds of one Terrarium with the defaults filled in.
type limits struct {
	user   terrarium.User
	cpus   float64 // 0: all that the host has
	memory int64
	disk   int64
	pids   int
	wall   time.Duration // 0: none
}

func applyDefaults(spec terrarium.Spec) (limits, error) {
	l := limits{user: spec.User, cpus: spec.CPUs.Value, memory: spec.Memory.Value, disk: spec.Disk.Value, pids: spec.Pids.Value, wall: spec.Wall.Value}
	if l.user == (terrarium.User{}) {
		l.user = terrarium.DefaultUser
	}
	if l.pids == 0 {
		l.pids = terrarium.DefaultPids
	}
	if l.disk == 0 {
		l.disk = terrarium.DefaultDisk
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return l, fault.New(fault.Unavailable, "asking how much memory the host has: %w", err)
	}
	total := int64(info.Totalram) * int64(info.Unit)
	if l.memory == 0 {
		l.memory = min(maxMemory, total/2)
	}
	switch {
	case l.memory < smallestMemory:
		return l, fault.New(fault.Invalid, "the memory limit of %d bytes is too small for a sandbox", l.memory).WithHint("give it at least 64MiB")
	case l.memory > total:
		return l, fault.New(fault.Invalid, "the memory limit of %d bytes is more than the host's %d", l.memory, total)
	case l.cpus > float64(runtime.NumCPU()):
		return l, fault.New(fault.Invalid, "the limit of %g processors is more than the host's %d", l.cpus, runtime.NumCPU())
	case l.pids > 1<<22:
		return l, fault.New(fault.Invalid, "the limit of %d processes is more than Linux can count", l.pids)
	case l.disk < smallestDisk:
		return l, fault.New(fault.Invalid, "the disk limit of %d bytes is too small for a workspace", l.disk).WithHint("give it at least 1MiB")
	}
	return l, nil
}

const (
	smallestMemory = 64 << 20
	smallestDisk   = 1 << 20
)

// confinement is what the host keeps the sandbox's processes in.
type confinement struct {
	group   *cgroup.Group // nil: no cgroup could be made
	why     string        // why there is none
	applied cgroup.Limits // as read back from the group
}

// The group's memory bound lies above the limit by this much. The limit itself
// is kept by looking (see monitor), so that the work can still be collected;
// the kernel's bound is for what grows faster than anybody can look, and it
// takes everything with it.
func memoryBackstop(limit int64) int64 { return limit + max(limit/4, 128<<20) }

// tasksPerProcess is how many tasks of the host one process inside costs at most
// while it is being made, plus the wall's own threads. The sentry counts the
// processes inside; the group only bounds the host's side of them.
func taskBackstop(pids int) int { return 1024 + 4*pids }

// confine makes the run's cgroup, if this host lets us.
func confine(name string, l limits) (confinement, error) {
	group, err := cgroup.Create(name, cgroup.Limits{
		CPUs: l.cpus, MemoryHigh: l.memory + l.memory/16, MemoryMax: memoryBackstop(l.memory), Pids: taskBackstop(l.pids),
	})
	if errors.Is(err, cgroup.ErrUnavailable) {
		return confinement{why: err.Error()}, nil
	}
	if err != nil {
		return confinement{}, fault.New(fault.Unavailable, "making the run's cgroup: %w", err)
	}
	return confinement{group: group, applied: group.Applied()}, nil
}

// take puts the keeper, and so everything it starts, under the limits.
func (c confinement) take(pid int, l limits) error {
	if c.group != nil {
		if err := c.group.Add(pid); err != nil {
			return fault.New(fault.Unavailable, "putting the sandbox into its cgroup: %w", err)
		}
	}
	if l.cpus > 0 {
		if err := pin(pid, l.cpus); err != nil {
			return fault.New(fault.Unavailable, "giving the sandbox %g processors: %w", l.cpus, err)
		}
	}
	none := unix.Rlimit{}
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, &none, nil); err != nil {
		return fmt.Errorf("turning off core dumps of the sandbox: %w", err)
	}
	return nil
}

// pin lets the process and its children run on as many processors as cpus rounds
// up to. It needs no privilege, and makes a whole number of processors exact
// where there is no cgroup.
func pin(pid int, cpus float64) error {
	var have, want unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &have); err != nil {
		return err
	}
	for cpu := 0; want.Count() < have.Count() && float64(want.Count()) < cpus; cpu++ {
		if have.IsSet(cpu) {
			want.Set(cpu)
		}
	}
	return unix.SchedSetaffinity(pid, &want)
}

func (c confinement) release(ctx context.Context) error {
	if c.group == nil {
		return nil
	}
	return errors.Join(c.group.Kill(ctx), c.group.Delete(ctx))
}
