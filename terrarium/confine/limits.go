//go:build linux

package confine

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/terrarium"
)

// maxMemory is the most memory that a Terrarium gets for which nobody asked for a limit.
const maxMemory = 4 << 30

// Limits are the bounds of one Terrarium with the defaults filled in.
type Limits struct {
	User   terrarium.User
	CPUs   float64 // 0: all that the host has
	Memory int64
	Disk   int64
	Pids   int
	Wall   time.Duration // 0: none
}

// Smallest is what a wall needs at least, in bytes.
type Smallest struct {
	Memory, Disk int64
}

// LimitsOf fills in the defaults, and refuses what this host or a wall cannot keep.
func LimitsOf(spec terrarium.Spec, least Smallest) (Limits, error) {
	l := Limits{User: spec.User, CPUs: spec.CPUs.Value, Memory: spec.Memory.Value, Disk: spec.Disk.Value, Pids: spec.Pids.Value, Wall: spec.Wall.Value}
	if l.User == (terrarium.User{}) {
		l.User = terrarium.DefaultUser
	}
	if l.Pids == 0 {
		l.Pids = terrarium.DefaultPids
	}
	if l.Disk == 0 {
		l.Disk = terrarium.DefaultDisk
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return l, fault.New(fault.Unavailable, "asking how much memory the host has: %w", err)
	}
	total := int64(info.Totalram) * int64(info.Unit)
	if l.Memory == 0 {
		l.Memory = min(maxMemory, total/2)
	}
	switch {
	case l.Memory < least.Memory:
		return l, fault.New(fault.Invalid, "the memory limit of %d bytes is too small for a sandbox", l.Memory).WithHint("give it at least %dMiB", least.Memory>>20)
	case l.Memory > total:
		return l, fault.New(fault.Invalid, "the memory limit of %d bytes is more than the host's %d", l.Memory, total)
	case l.CPUs > float64(runtime.NumCPU()):
		return l, fault.New(fault.Invalid, "the limit of %g processors is more than the host's %d", l.CPUs, runtime.NumCPU())
	case l.Pids > 1<<22:
		return l, fault.New(fault.Invalid, "the limit of %d processes is more than Linux can count", l.Pids)
	case l.Disk < least.Disk:
		return l, fault.New(fault.Invalid, "the disk limit of %d bytes is too small for a workspace", l.Disk).WithHint("give it at least %dMiB", least.Disk>>20)
	}
	return l, nil
}
