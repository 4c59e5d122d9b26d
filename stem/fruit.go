//go:build linux

package stem

import (
	"context"
	"fmt"
	"time"

	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
	"tendril/substrate"
)

// fruitRun returns a run that has a Fruit nobody has decided about, and its
// repository.
func (s *Stem) fruitRun(ctx context.Context, id run.ID) (run.Run, *substrate.Repository, error) {
	r, err := s.state.Get(ctx, id)
	if err != nil {
		return run.Run{}, nil, err
	}
	if r.Commit == nil || r.Base == nil {
		return run.Run{}, nil, fault.New(fault.NotFound, "run %s has no Fruit: it is %s", id, r.State)
	}
	repository, err := s.open(ctx, r.Substrate)
	return r, repository, err
}

func (s *Stem) diffFruit(ctx context.Context, _ *call, in capability.DiffInput) (capability.Diff, error) {
	r, repository, err := s.fruitRun(ctx, in.Run)
	if err != nil {
		return capability.Diff{}, err
	}
	defer repository.Close()
	diff, err := repository.Diff(ctx, *r.Base, *r.Commit, substrate.DiffOptions{})
	if err != nil {
		return capability.Diff{}, err
	}
	out := capability.Diff{Run: in.Run, Base: *r.Base, Commit: *r.Commit, Changes: []capability.Change{}, Flags: recordFlags(diff.Flags), Truncated: diff.Truncated}
	for _, f := range diff.Files {
		change := capability.Change{
			Path: run.Path(f.Path), Kind: string(f.Status), OldMode: fmt.Sprintf("%06o", f.OldMode), NewMode: fmt.Sprintf("%06o", f.NewMode),
			Hunks: f.Hunks, Truncated: f.Truncated,
		}
		if f.RenamedFrom != "" {
			change.RenamedFrom = new(run.Path(f.RenamedFrom))
		}
		if in.NoPatch {
			change.Hunks = ""
		}
		out.Changes = append(out.Changes, change)
	}
	return out, nil
}

func (s *Stem) acceptFruit(ctx context.Context, c *call, in capability.AcceptInput) (capability.Acceptance, error) {
	r, repository, err := s.fruitRun(ctx, in.Run)
	if err != nil {
		return capability.Acceptance{}, err
	}
	defer repository.Close()
	if err := undecided(r); err != nil {
		return capability.Acceptance{}, err
	}
	into := in.Into
	if into == "" {
		head, err := repository.Resolve(ctx, "")
		if err != nil {
			return capability.Acceptance{}, err
		}
		if head.Branch == "" {
			return capability.Acceptance{}, fault.New(fault.Invalid, "HEAD is on no branch, so there is none to merge into").WithHint("name one with --into")
		}
		into = head.Branch
	}
	done, err := repository.Accept(ctx, substrate.Acceptance{Run: string(r.ID), Commit: *r.Commit, Into: into, Time: time.Now()})
	if err != nil {
		return capability.Acceptance{}, err
	}
	if err := s.review(ctx, c, r.ID, run.Accepted); err != nil {
		return capability.Acceptance{}, err
	}
	how := "merge"
	switch {
	case done.From == done.To:
		how = "already"
	case done.FastForward:
		how = "fast-forward"
	}
	return capability.Acceptance{Run: r.ID, Into: run.Path("refs/heads/" + done.Branch), Before: done.From, After: done.To, How: how}, nil
}

func (s *Stem) rejectFruit(ctx context.Context, c *call, in capability.RunInput) (capability.Rejection, error) {
	r, repository, err := s.fruitRun(ctx, in.Run)
	if err != nil {
		return capability.Rejection{}, err
	}
	defer repository.Close()
	if err := undecided(r); err != nil {
		return capability.Rejection{}, err
	}
	if err := repository.Reject(ctx, string(r.ID), *r.Commit); err != nil {
		return capability.Rejection{}, err
	}
	if err := s.review(ctx, c, r.ID, run.Rejected); err != nil {
		return capability.Rejection{}, err
	}
	return capability.Rejection{Run: r.ID, Branch: r.ID.Branch(), Commit: *r.Commit}, nil
}

func undecided(r run.Run) error {
	if !r.State.Ended() {
		return fault.New(fault.Invalid, "run %s is still %s", r.ID, r.State)
	}
	if r.Review != nil {
		return fault.New(fault.Invalid, "run %s was %s already", r.ID, *r.Review)
	}
	return nil
}

func (s *Stem) review(ctx context.Context, c *call, id run.ID, review run.Review) error {
	_, _, err := s.state.UpdateRun(ctx, id, func(r *run.Run) error {
		r.Review = &review
		return nil
	}, func(r run.Run) ledger.Entry { return c.runChange("fruit."+string(review), r) })
	return err
}
