//go:build linux

package docker

import (
	"fmt"
	"os"

	"tendril/fault"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

const (
	smallestMemory = 64 << 20
	smallestDisk   = 1 << 20
	// smallestPids is what the Stoma's own threads, which count, and a command need.
	smallestPids = 24
)

// limitsOf fills in the defaults, and refuses what does not fit: base is the size of the
// tree that is brought in, in bytes. It, the workspace and scratch are in memory.
func limitsOf(spec terrarium.Spec) (l confine.Limits, base int64, err error) {
	if l, err = confine.LimitsOf(spec, confine.Smallest{Memory: smallestMemory, Disk: smallestDisk}); err != nil {
		return l, 0, err
	}
	info, err := os.Stat(spec.Workspace.Image)
	if err != nil {
		return l, 0, fault.New(fault.Unavailable, "looking at the base image: %w", err)
	}
	// Each file of the image begins on a page of its own, as it does in memory: the tree takes
	// less than the image.
	base = info.Size()
	room := l.Memory - base
	if spec.Disk.Value == 0 {
		l.Disk = room / 2
	}
	switch {
	case l.Disk < smallestDisk:
		return l, 0, fault.New(fault.Invalid, "the memory limit of %d bytes has no room for a workspace: the base takes %d, and a container's workspace is in memory", l.Memory, base).
			WithHint("give it more memory, or choose a wall with a workspace on the disk: runsc")
	case l.Disk > room:
		return l, 0, fault.New(fault.Invalid, "the disk limit of %d bytes and the base's %d do not fit into the memory limit of %d bytes: a container's workspace is in memory", l.Disk, base, l.Memory).
			WithHint("give it at least %d bytes of memory, or a smaller disk, or choose a wall with a workspace on the disk: runsc", l.Disk+base)
	case l.Pids < smallestPids:
		return l, 0, fault.New(fault.Invalid, "the limit of %d processes and threads is too small for a container", l.Pids).
			WithHint("give it at least %d: those of the Stoma count too", smallestPids)
	}
	return l, base, nil
}

// unkept says of each limit that the daemon cannot keep here why.
func (s support) unkept(limit terrarium.LimitName) string {
	kept := map[terrarium.LimitName]bool{terrarium.LimitMemory: s.memory && s.swap, terrarium.LimitCPU: s.cpus, terrarium.LimitPids: s.pids}
	switch {
	case kept[limit]:
		return ""
	case s.rootless:
		return fmt.Sprintf("the daemon is an ordinary user's, and no control group with the controller for %s was delegated to it", limit)
	case limit == terrarium.LimitMemory && s.memory:
		return "this kernel does not account for swap, and there is some"
	}
	return fmt.Sprintf("the kernel has no controller for %s", limit)
}
