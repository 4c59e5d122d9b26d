//go:build linux

package stem

import (
	"context"
	"time"

	"tendril/capability"
	"tendril/fault"
	"tendril/grant"
	"tendril/run"
	"tendril/state"
)

// eventPage is how many events are read at a time.
const eventPage = 256

func ignoreNotFound(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (s *Stem) listRuns(ctx context.Context, c *call, in capability.ListInput) ([]run.Run, error) {
	limit := in.Limit
	if limit == 0 {
		limit = capability.DefaultListed
	}
	filter := state.Filter{State: in.State, Visible: c.visible()}
	if in.Substrate != nil {
		filter.Substrate = *in.Substrate
	}
	return s.state.List(ctx, filter, limit, in.After)
}

// visible is what a list of runs may show; nil is everything.
func (c *call) visible() []state.Visible {
	if c.actor.Botanist() {
		return nil
	}
	list := []state.Visible{}
	for name, whose := range c.permit.scope {
		v := state.Visible{Substrate: name}
		if whose != grant.SubstrateRuns {
			v.Pollen = c.actor.Name()
		}
		list = append(list, v)
	}
	return list
}

func (s *Stem) getRun(ctx context.Context, _ *call, in capability.RunInput) (run.Run, error) {
	return s.state.Get(ctx, in.Run)
}

func (s *Stem) watchRun(ctx context.Context, _ *call, in capability.WatchInput) (run.Run, error) {
	return s.follow(ctx, in.Run, in.After, true, func(run.Event) bool { return true })
}

func (s *Stem) logsOfRun(ctx context.Context, _ *call, in capability.LogsInput) (run.Run, error) {
	return s.follow(ctx, in.Run, in.After, in.Follow, func(e run.Event) bool {
		_, output := e.Data.(run.OutputChunk)
		return output
	})
}

// follow emits the wanted events of a run and, with wait, those to come until the
// run has ended. It reads the store, so it also sees runs of other processes.
func (s *Stem) follow(ctx context.Context, id run.ID, after int64, wait bool, wanted func(run.Event) bool) (run.Run, error) {
	poll := time.NewTicker(cancelPoll)
	defer poll.Stop()
	for {
		// The record is read before the events: what an ended run has to say is
		// all there by then.
		record, err := s.state.Get(ctx, id)
		if err != nil {
			return run.Run{}, err
		}
		for {
			events, err := s.state.Events(ctx, id, after, eventPage)
			if err != nil {
				return run.Run{}, err
			}
			for _, e := range events {
				after = e.ID
				if wanted(e) {
					capability.Emit(ctx, e)
				}
			}
			if len(events) < eventPage {
				break
			}
		}
		if record.State.Ended() || !wait {
			return record, nil
		}
		select {
		case <-ctx.Done():
			return record, context.Cause(ctx)
		case <-poll.C:
		}
	}
}

func (s *Stem) cancelRun(ctx context.Context, c *call, in capability.RunInput) (run.Run, error) {
	record, err := s.state.Get(ctx, in.Run)
	if err != nil {
		return run.Run{}, err
	}
	if record.State.Ended() {
		return record, fault.New(fault.Invalid, "run %s has ended already: it is %s", in.Run, record.State)
	}
	if err := s.state.RequestCancel(ctx, in.Run, c.actor.Name(), c.change("run.cancelling", "")); err != nil {
		return run.Run{}, err
	}
	return s.state.Get(ctx, in.Run)
}
