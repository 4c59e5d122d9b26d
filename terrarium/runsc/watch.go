//go:build linux

package runsc

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"tendril/cgroup"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// smallest is what a sandbox needs.
var smallest = confine.Smallest{Memory: 64 << 20, Disk: 1 << 20}

func (t *open) startWatching(scratch string) {
	t.Watch(&confine.Monitor{
		Limits: t.limits, Kill: t.process.kill, CPUSampled: !t.Confinement.KeepsCPUs(),
		// The sentry holds the memory of all that runs inside.
		Memory: func() (int64, error) { return cgroup.SampleMemory(t.process.sentry) },
		Look: func(ctx context.Context, memory int64) (terrarium.Usage, terrarium.LimitName) {
			return t.look(ctx, scratch, memory)
		},
	}, nil)
}

// look is what the sandbox uses, and whether its processes or its disk are used up.
func (t *open) look(ctx context.Context, scratch string, memory int64) (terrarium.Usage, terrarium.LimitName) {
	usage := terrarium.Usage{Memory: memory}
	// The keeper: everything of the sandbox descends from it.
	if tree, err := cgroup.Sample([]int{t.process.cmd.Process.Pid}); err == nil {
		usage.CPU = tree.CPU
		usage.Memory = max(memory, tree.Memory)
	}
	tasks := t.process.tasks.Load()
	if tasks != nil {
		usage.Processes = tasks.Now
	}
	switch {
	case tasks != nil && (tasks.Refused > 0 || tasks.Now > t.limits.Pids):
		return usage, terrarium.LimitPids
	case scratchBytes(scratch) > t.limits.Disk+t.limits.Disk/8:
		return usage, terrarium.LimitDisk
	}
	if full, ok := t.scratchFull(ctx); ok && full {
		return usage, terrarium.LimitDisk
	}
	return usage, ""
}

// scratchFull asks the guest half, which is not the Sprout's: that the file system
// is full can only be seen from inside. That it cannot grow is the sentry's doing.
func (t *open) scratchFull(ctx context.Context) (full, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stat, err := t.Client.Stat(ctx)
	return err == nil && stat.ScratchFull(), err == nil
}

// scratchBytes is what the scratch file system holds on the host's disk. The
// sentry bounds it; this is the look from outside.
func scratchBytes(dir string) int64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	var total int64
	for _, entry := range entries {
		var st unix.Stat_t
		if unix.Lstat(dir+"/"+entry.Name(), &st) == nil {
			total += st.Blocks * 512
		}
	}
	return total
}
