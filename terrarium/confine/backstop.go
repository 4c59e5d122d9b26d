//go:build linux

package confine

import "tendril/cgroup"

// Backstop is what the host's kernel keeps the sandbox's processes in. The memory bound lies
// above the limit: the limit itself is kept by looking (see [Monitor]), so that the
// work can still be collected; the kernel's bound is for what grows faster than anybody can
// look, and it takes everything with it.
func Backstop(l Limits) cgroup.Limits {
	return cgroup.Limits{
		CPUs: l.CPUs, MemoryHigh: l.Memory + l.Memory/16, MemoryMax: l.Memory + max(l.Memory/4, 128<<20), Pids: taskBackstop(l.Pids),
	}
}

// taskBackstop is how many tasks of the host the sandbox may have: what so many processes
// inside cost at most while they are being made, plus the wall's own threads. The sentry
// counts the processes inside; the group only bounds the host's side of them.
func taskBackstop(pids int) int { return 1024 + 4*pids }
