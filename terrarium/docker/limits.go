//go:build linux

package docker

import (
	"time"

	"golang.org/x/sys/unix"
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
	base   int64 // bytes that the base takes, beside the disk
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
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return l, fault.New(fault.Unavailable, "asking how much memory the host has: %w", err)
	}
	total := int64(info.Totalram) * int64(info.Unit)
	if l.memory == 0 {
		l.memory = min(maxMemory, total/2)
	}
	if l.disk == 0 {
		l.disk = l.memory / 2
	}
	return l, nil
}
