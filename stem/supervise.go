//go:build linux

package stem

import (
	"context"
	"time"

	"tendril/fault"
	"tendril/run"
	"tendril/stoma"
	"tendril/terrarium"
)

const (
	cancelPoll = 200 * time.Millisecond
	// idleCPU is the share of one processor below which a sandbox counts as idle:
	// the sentry's own housekeeping stays under it.
	idleCPU = 0.15
)

// ending is how a Sprout's work came to its end: its own exit, or what stopped it.
type ending struct {
	exit *run.Exit
	stop *run.Stop
	err  error // the boundary or the store broke
}

// supervise returns when the Sprout's command has ended by itself or something
// ended the run first. It kills nothing.
func (g *growth) supervise(ctx context.Context, process *stoma.Process, output *recorder) ending {
	exited := make(chan ending, 1)
	waiting, stopWaiting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWaiting()
	go func() {
		exit, err := process.Wait(waiting)
		if err != nil {
			exited <- ending{err: fault.New(fault.BrokenBoundary, "the Stoma was lost while the Sprout worked: %w", err)}
			return
		}
		exited <- ending{exit: &run.Exit{Code: exit.Code, Signal: exit.Signal}}
	}()
	poll := time.NewTicker(cancelPoll)
	defer poll.Stop()
	idle := idleWatch{limit: g.plan.limits.Idle.Value, since: time.Now()}
	for {
		select {
		case e := <-exited:
			// A limit that killed the sandbox is the cause, not the silence after it.
			select {
			case limit := <-g.terrarium.Exceeded():
				return stoppedBy(limit)
			default:
				return e
			}
		case limit := <-g.terrarium.Exceeded():
			return stoppedBy(limit)
		case limit := <-g.reach.limit():
			return ending{stop: &run.Stop{Limit: limit}}
		case <-output.full:
			return stoppedBy(terrarium.LimitOutput)
		case <-output.failed:
			return ending{} // record says why; what cannot be recorded must not go on
		case <-ctx.Done():
			return ending{stop: g.cancelled(ctx)}
		case <-poll.C:
			if actor, asked, err := g.stem.state.CancelRequested(waiting, g.id); err == nil && asked {
				return ending{stop: &run.Stop{Cancel: actor}}
			}
			if idle.reached(output.quietFor(), g.terrarium.Usage().CPU) {
				return stoppedBy(terrarium.LimitIdle)
			}
		}
	}
}

// cancelled is the stop of a run whose context ended: its caller cancelled it, or lost
// the permit to have it run.
func (g *growth) cancelled(ctx context.Context) *run.Stop {
	if cause := context.Cause(ctx); fault.KindOf(cause) == fault.Denied {
		g.warn(ctx, "the run is ended: "+cause.Error())
		return &run.Stop{Cancel: "stem"}
	}
	return &run.Stop{Cancel: g.plan.call.actor.Name()}
}

func stoppedBy(limit terrarium.LimitName) ending {
	return ending{stop: &run.Stop{Limit: run.Limit(limit)}}
}

// idleWatch knows how long neither output nor the use of a processor showed work.
type idleWatch struct {
	limit time.Duration // 0: none
	since time.Time     // when work was last seen
	cpu   time.Duration // the reading then
}

func (w *idleWatch) reached(quiet time.Duration, cpu time.Duration) bool {
	if w.limit == 0 {
		return false
	}
	now := time.Now()
	elapsed := now.Sub(w.since)
	if quiet < elapsed || float64(cpu-w.cpu) > idleCPU*float64(max(elapsed, cancelPoll)) {
		w.since, w.cpu = now, cpu
		return false
	}
	return elapsed >= w.limit
}
