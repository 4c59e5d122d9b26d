//go:build linux

package docker

import (
	"context"
	"math"
	"time"

	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// startWatching looks at the control group of the container, or asks the daemon where it
// cannot be seen from here.
func (t *open) startWatching() {
	limits := t.print.limits
	if !t.print.kind.own {
		// The kernel keeps it, and says when it did: a look that comes sooner changes nothing.
		limits.Memory = math.MaxInt64
	}
	t.Watch(&confine.Monitor{
		Limits: limits, Kill: t.kill, CPUSampled: limits.CPUs > 0 && !t.print.support.cpus,
		Memory: t.memory, Look: t.lookAround,
	}, nil)
}

func (t *open) memory() (int64, error) {
	u, err := t.meter.Usage()
	return u.Memory, err
}

// lookAround is what the container uses, and whether its kernel met a limit.
func (t *open) lookAround(ctx context.Context, memory int64) (terrarium.Usage, terrarium.LimitName) {
	usage := terrarium.Usage{Memory: memory}
	if u, err := t.meter.Usage(); err == nil {
		usage.CPU = u.CPU
	}
	if events, err := t.meter.Events(); err == nil {
		switch {
		case events.OOMKills > 0:
			return usage, terrarium.LimitMemory
		case events.PidsMax > 0 && !t.print.kind.own:
			return usage, terrarium.LimitPids
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stat, err := t.Client.Stat(ctx)
	if err != nil {
		return usage, ""
	}
	usage.Processes = stat.Processes
	if pids, err := t.meter.Processes(); err == nil && len(pids) > 0 && !t.print.kind.own {
		usage.Processes = len(pids) - 1 // PID 1 aside
	}
	switch {
	case stat.AtMax > 0:
		return usage, terrarium.LimitPids
	case stat.ScratchFull():
		return usage, terrarium.LimitDisk
	}
	return usage, ""
}
