//go:build linux

package runsc

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"tendril/cgroup"
	"tendril/terrarium"
	"tendril/terrarium/runsc/keeper"
)

const (
	// slowLook is how often everything is looked at.
	slowLook = 200 * time.Millisecond
	// fastLook is the shortest pause between two looks at the memory alone.
	fastLook = 3 * time.Millisecond
	// fastestGrowth is how many bytes a second a sandbox can claim; the nearer
	// the limit, the sooner the next look.
	fastestGrowth = 4 << 30
	// cpuWindow is over how long the use of processors is averaged, and
	// cpuTolerance what an average may exceed before it is more than a rounding.
	cpuWindow    = 5 * time.Second
	cpuTolerance = 1.15
)

// monitor watches one sandbox from outside. It is one goroutine, which ends with
// its context.
type monitor struct {
	limits   limits
	group    *cgroup.Group
	root     int    // the keeper: everything of the sandbox descends from it
	sentry   int    // holds the memory of all that runs inside
	scratch  string // directory with the file behind the scratch file system
	exceeded chan terrarium.LimitName
	kill     func()                                    // ends the sandbox
	tasks    func() *keeper.Tasks                      // nil until something was counted
	full     func(ctx context.Context) (full, ok bool) // whether the scratch file system is

	mu    sync.Mutex
	usage terrarium.Usage

	windowStart time.Time
	windowCPU   time.Duration
}

func (m *monitor) Usage() terrarium.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage
}

// watch returns when ctx ends, or with the first limit that was reached.
func (m *monitor) watch(ctx context.Context) {
	start := time.Now()
	m.windowStart = start
	pause := time.NewTimer(0)
	defer pause.Stop()
	lastFull := start // what is as new as this has nothing to look at
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		now := time.Now()
		if m.limits.wall > 0 && now.Sub(start) >= m.limits.wall {
			m.report(terrarium.LimitWall)
			return
		}
		memory, err := cgroup.SampleMemory(m.sentry)
		if err != nil {
			// The sentry is gone, or it cannot be watched: then nothing may go on.
			m.kill()
			return
		}
		if memory > m.limits.memory {
			m.report(terrarium.LimitMemory)
			return
		}
		if now.Sub(lastFull) >= slowLook {
			lastFull = now
			if limit, reached := m.lookAtAll(ctx, now, memory); reached {
				m.report(limit)
				return
			}
		}
		pause.Reset(m.untilNextLook(memory, start))
	}
}

// untilNextLook is how long the memory cannot reach its limit, within reason.
func (m *monitor) untilNextLook(memory int64, start time.Time) time.Duration {
	left := time.Duration(float64(m.limits.memory-memory) / fastestGrowth * float64(time.Second))
	next := min(max(left, fastLook), slowLook)
	if m.limits.wall > 0 {
		next = min(next, max(m.limits.wall-time.Since(start), 0))
	}
	return next
}

func (m *monitor) lookAtAll(ctx context.Context, now time.Time, memory int64) (terrarium.LimitName, bool) {
	usage := terrarium.Usage{Memory: memory}
	if tree, err := m.sample(); err == nil {
		usage.CPU = tree.CPU
		usage.Memory = max(memory, tree.Memory)
	}
	tasks := m.tasks()
	if tasks != nil {
		usage.Processes = tasks.Now
	}
	m.mu.Lock()
	m.usage = usage
	m.mu.Unlock()
	switch {
	case usage.Memory > m.limits.memory:
		return terrarium.LimitMemory, true
	case tasks != nil && (tasks.Refused > 0 || tasks.Now > m.limits.pids):
		return terrarium.LimitPids, true
	case m.scratchBytes() > m.limits.disk+m.limits.disk/8:
		return terrarium.LimitDisk, true
	case m.limits.cpus > 0 && m.group == nil && m.tooMuchCPU(now, usage.CPU):
		return terrarium.LimitCPU, true
	}
	if full, ok := m.full(ctx); ok && full {
		return terrarium.LimitDisk, true
	}
	return "", false
}

func (m *monitor) sample() (cgroup.Usage, error) {
	return cgroup.Sample([]int{m.root})
}

// tooMuchCPU averages over whole windows: a burst is not a breach.
func (m *monitor) tooMuchCPU(now time.Time, used time.Duration) bool {
	elapsed := now.Sub(m.windowStart)
	if elapsed < cpuWindow {
		return false
	}
	average := float64(used-m.windowCPU) / float64(elapsed)
	m.windowStart, m.windowCPU = now, used
	return average > m.limits.cpus*cpuTolerance
}

// scratchBytes is what the scratch file system holds on the host's disk. The
// sentry bounds it; this is the look from outside.
func (m *monitor) scratchBytes() int64 {
	entries, err := os.ReadDir(m.scratch)
	if err != nil {
		return 0
	}
	var total int64
	for _, entry := range entries {
		var st unix.Stat_t
		if unix.Lstat(m.scratch+"/"+entry.Name(), &st) == nil {
			total += st.Blocks * 512
		}
	}
	return total
}

func (m *monitor) report(limit terrarium.LimitName) {
	select {
	case m.exceeded <- limit:
	default:
	}
}
