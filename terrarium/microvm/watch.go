//go:build linux

package microvm

import (
	"context"
	"fmt"
	"time"

	"tendril/cgroup"
	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

func (t *open) startWatching() {
	t.Watch(&confine.Monitor{
		Limits: t.blueprint.limits, Kill: t.process.kill, CPUSampled: !t.Confinement.KeepsCPUs(),
		Memory: t.memory, Look: t.look,
	}, nil)
}

// memory is what the machine's process holds, as far as it is the machine's: what the
// emulator needs beside it is not the Sprout's, and more than the machine has the Sprout
// cannot use. That it wanted more is seen inside.
func (t *open) memory() (int64, error) {
	used, err := cgroup.SampleMemory(t.process.pid())
	return min(used, t.blueprint.limits.Memory), err
}

// look is what the machine uses, and whether its memory, processes or disk are used up. The
// last three are what the guest says; that it has no more is the host's doing.
func (t *open) look(ctx context.Context, memory int64) (terrarium.Usage, terrarium.LimitName) {
	usage := terrarium.Usage{Memory: memory}
	if tree, err := cgroup.Sample([]int{t.process.pid()}); err == nil {
		usage.CPU = tree.CPU
	}
	ctx, cancel := context.WithTimeout(ctx, statTime)
	defer cancel()
	inside, err := t.Client.Stat(ctx)
	if err != nil {
		return usage, "" // its end is noticed by whoever uses it
	}
	usage.Processes = inside.Processes
	return usage, reached(inside)
}

// statTime bounds one look inside.
const statTime = 5 * time.Second

// reached is the limit that the guest's kernel had to keep.
func reached(inside stoma.Stat) terrarium.LimitName {
	switch {
	case inside.OOMKills > 0:
		return terrarium.LimitMemory
	case inside.AtMax > 0:
		return terrarium.LimitPids
	case inside.ScratchFull():
		return terrarium.LimitDisk
	default:
		return ""
	}
}

// checkInside compares what the guest's kernel has with what it was given.
func (t *open) checkInside() error {
	given := t.blueprint.memoryMiB() << 20
	// The kernel keeps its own code and the table of all pages to itself.
	if least := given - given/8 - 64<<20; t.inside.Memory > given || t.inside.Memory < least {
		return fault.New(fault.BrokenBoundary, "the guest has %d bytes of memory where the machine has %d", t.inside.Memory, given).
			WithRule("asked = applied")
	}
	// A file system keeps a part of its drive for itself.
	disk := t.blueprint.limits.Disk
	if least := disk - disk/8 - 8<<20; t.inside.ScratchSize > disk || t.inside.ScratchSize < least {
		return fault.New(fault.BrokenBoundary, "the guest has %d bytes of scratch where its drive has %d", t.inside.ScratchSize, disk).
			WithRule("asked = applied")
	}
	if t.inside.OOMKills != 0 || t.inside.AtMax != 0 {
		return fault.New(fault.BrokenBoundary, "the guest says that limits were reached before anything ran: %s", fmt.Sprintf("%+v", t.inside))
	}
	return nil
}
