//go:build linux

package confine

import (
	"context"
	"sync"
	"time"

	"tendril/terrarium"
)

const (
	// slowLook is how often everything is looked at.
	slowLook = 200 * time.Millisecond
	// fastLook is the shortest pause between two looks at the memory alone.
	fastLook = 3 * time.Millisecond
	// fastestGrowth is how many bytes a second a Terrarium can claim; the nearer
	// the limit, the sooner the next look.
	fastestGrowth = 4 << 30
	// cpuWindow is over how long the use of processors is averaged, and
	// cpuTolerance what an average may exceed before it is more than a rounding.
	cpuWindow    = 5 * time.Second
	cpuTolerance = 1.15
)

// Monitor watches one Terrarium from outside. It is one goroutine, which ends with
// its context. All fields are set before.
type Monitor struct {
	Limits   Limits
	Exceeded chan<- terrarium.LimitName // has room for one

	// Memory is what is used now, quickly. An error says that what is watched is gone, or
	// cannot be watched.
	Memory func() (int64, error)

	// Look is everything that is used, given that much memory, and the limit that was
	// reached beside those of memory, processors and time, if one was.
	Look func(ctx context.Context, memory int64) (terrarium.Usage, terrarium.LimitName)

	// CPUSampled says that nobody else keeps the limit of processors.
	CPUSampled bool

	// Kill ends the Terrarium.
	Kill func()

	mu    sync.Mutex
	usage terrarium.Usage

	windowStart time.Time
	windowCPU   time.Duration
}

// Usage is what was used at the last look.
func (m *Monitor) Usage() terrarium.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage
}

// wallGrace is how long after the wall-clock limit the Terrarium is killed whether
// or not the Stem has ended the run in order.
const wallGrace = 2 * time.Minute

// Start watches until stop, which waits for the end of it, is called.
func (m *Monitor) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var hard *time.Timer
	if m.Limits.Wall > 0 {
		hard = time.AfterFunc(m.Limits.Wall+wallGrace, m.Kill)
	}
	go func() {
		defer close(done)
		m.watch(ctx)
	}()
	return func() {
		cancel()
		<-done
		if hard != nil {
			hard.Stop()
		}
	}
}

// watch returns when ctx ends, or with the first limit that was reached.
func (m *Monitor) watch(ctx context.Context) {
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
		if m.Limits.Wall > 0 && now.Sub(start) >= m.Limits.Wall {
			m.report(terrarium.LimitWall)
			return
		}
		memory, err := m.Memory()
		if err != nil {
			m.Kill() // nothing may go on that nobody watches
			return
		}
		if memory > m.Limits.Memory {
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
func (m *Monitor) untilNextLook(memory int64, start time.Time) time.Duration {
	left := time.Duration(float64(m.Limits.Memory-memory) / fastestGrowth * float64(time.Second))
	next := min(max(left, fastLook), slowLook)
	if m.Limits.Wall > 0 {
		next = min(next, max(m.Limits.Wall-time.Since(start), 0))
	}
	return next
}

func (m *Monitor) lookAtAll(ctx context.Context, now time.Time, memory int64) (terrarium.LimitName, bool) {
	usage, reached := m.Look(ctx, memory)
	m.mu.Lock()
	m.usage = usage
	m.mu.Unlock()
	switch {
	case usage.Memory > m.Limits.Memory:
		return terrarium.LimitMemory, true
	case reached != "":
		return reached, true
	case m.Limits.CPUs > 0 && m.CPUSampled && m.tooMuchCPU(now, usage.CPU):
		return terrarium.LimitCPU, true
	}
	return "", false
}

// tooMuchCPU averages over whole windows: a burst is not a breach.
func (m *Monitor) tooMuchCPU(now time.Time, used time.Duration) bool {
	elapsed := now.Sub(m.windowStart)
	if elapsed < cpuWindow {
		return false
	}
	average := float64(used-m.windowCPU) / float64(elapsed)
	m.windowStart, m.windowCPU = now, used
	return average > m.Limits.CPUs*cpuTolerance
}

func (m *Monitor) report(limit terrarium.LimitName) {
	select {
	case m.Exceeded <- limit:
	default:
	}
}
