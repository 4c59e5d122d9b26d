//go:build linux

package host

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"tendril/cgroup"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// guestTasks is room for the guest half's own threads.
const guestTasks = 64

// backstop is what the host's kernel keeps the processes in: each is one of the run's.
func backstop(l confine.Limits) cgroup.Limits {
	bounds := confine.Backstop(l)
	bounds.Pids = l.Pids + guestTasks
	return bounds
}

// startWatching starts whoever watches. The base is in the workspace by now, and is no
// part of what the run uses.
func (t *open) startWatching(ctx context.Context) error {
	disk, err := weigh(ctx, t.place.dir)
	if err != nil {
		return err
	}
	stopWeighing := disk.start()
	pid := t.process.cmd.Process.Pid
	t.Watch(&confine.Monitor{
		Limits: t.limits, Kill: t.process.kill, CPUSampled: !t.Confinement.KeepsCPUs(),
		Memory: func() (int64, error) {
			tree, err := cgroup.Sample([]int{pid})
			return tree.Memory, err
		},
		Look: func(_ context.Context, memory int64) (terrarium.Usage, terrarium.LimitName) {
			return t.look(pid, memory, disk)
		},
	}, stopWeighing)
	return nil
}

// look is what the run uses, and whether its processes or its disk are used up.
func (t *open) look(pid int, memory int64, disk *scale) (terrarium.Usage, terrarium.LimitName) {
	usage := terrarium.Usage{Memory: memory}
	if tree, err := cgroup.Sample([]int{pid}); err == nil {
		usage.CPU, usage.Memory = tree.CPU, max(memory, tree.Memory)
		usage.Processes = max(tree.Pids-threadsOf(pid), 0)
	}
	switch {
	case usage.Processes > t.limits.Pids, t.refusedTasks():
		return usage, terrarium.LimitPids
	case disk.used() > t.limits.Disk:
		return usage, terrarium.LimitDisk
	}
	return usage, ""
}

// refusedTasks reports whether the group refused a process or a thread.
func (t *open) refusedTasks() bool {
	if t.Confinement.Group == nil {
		return false
	}
	events, err := t.Confinement.Group.Events()
	return err == nil && events.PidsMax > 0
}

// threadsOf counts the guest half's own threads, see proc_pid_status(5).
func threadsOf(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nThreads:")
	count, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(strings.TrimSpace(count)) // the kernel writes a number
	return n
}
